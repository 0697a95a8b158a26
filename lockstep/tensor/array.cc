#include "lockstep/tensor/array.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lockstep/tensor/storage.h"

namespace lockstep {

Array Array::host(Shape shape, DType dtype) {
  View view{nullptr, dtype, Layout::plain, shape};
  auto storage = make_host_storage(view.bytes());
  view.data = storage->data;
  if (view.data) std::memset(view.data, 0, view.bytes());
  return {std::move(storage), view};
}

Array Array::from(const std::vector<bool>& values, Shape shape) {
  check(static_cast<std::int64_t>(values.size()) == shape.numel(),
        "array: {} values for shape {}, expected as many as it has elements", values.size(), shape);
  Array t = host(shape, DType::boolean);
  std::copy(values.begin(), values.end(), t.view().as<bool>());
  return t;
}

Device Array::device() const { return storage_ ? storage_->device : Device(); }

const Resource& Array::resource() const { return storage_->owner().resource; }

void Array::wait() const {
  check(defined(), "wait: undefined array");
  storage_->wait_readable();
}

namespace {

// Returns the name of the C++ type that reads elements of this dtype.
std::string_view element_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::bf16:
    case DType::f16: return "float";
    case DType::f64: return "double";
    case DType::i64: return "std::int64_t";
    case DType::u8: return "std::uint8_t";
    case DType::boolean: return "bool";
  }
  return "?";
}

}  // namespace

template <typename T>
std::vector<T> Array::to_vector() const {
  check(defined(), "to_vector: undefined array");
  check(device().host_visible(), "to_vector: the array is {}, expected memory that the host can read", *this);
  constexpr bool from_half = std::is_same_v<T, float>;
  constexpr bool from_truth = std::is_same_v<T, std::uint8_t>;
  check(dtype() == dtype_of<T> || (from_half && is_half_dtype(dtype())) || (from_truth && dtype() == DType::boolean),
        "to_vector: the elements are {}, requested as {}: name their type, as in item<{}>()", name(dtype()),
        name(dtype_of<T>), element_type(dtype()));
  wait();
  std::vector<T> values(static_cast<std::size_t>(numel()));
  for (std::int64_t i = 0; i < numel(); ++i) {
    const std::int64_t at = plain_offset(view_, i);
    if constexpr (from_half) {
      if (dtype() != DType::f32) {
        values[i] = dtype() == DType::bf16 ? static_cast<float>(static_cast<const BFloat16*>(view_.data)[at])
                                           : static_cast<float>(static_cast<const Float16*>(view_.data)[at]);
        continue;
      }
    }
    values[i] = static_cast<const T*>(view_.data)[at];
  }
  return values;
}

template std::vector<float> Array::to_vector<float>() const;
template std::vector<double> Array::to_vector<double>() const;
template std::vector<BFloat16> Array::to_vector<BFloat16>() const;
template std::vector<Float16> Array::to_vector<Float16>() const;
template std::vector<std::int64_t> Array::to_vector<std::int64_t>() const;
template std::vector<std::uint8_t> Array::to_vector<std::uint8_t>() const;
template std::vector<bool> Array::to_vector<bool>() const;

std::string Array::describe() const {
  if (!defined()) return "undefined";
  return fmt::format("{} {} on {}", shape().str(), name(dtype()), device().name());
}

}  // namespace lockstep
