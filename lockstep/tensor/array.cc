#include "lockstep/tensor/array.h"

#include <cstring>
#include <type_traits>

#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

// Offset in memory of element i in plain order.
std::int64_t memory_offset(const View& v, std::int64_t i) {
  if (v.layout == Layout::plain) return i;
  const Shape& s = v.shape;
  std::int64_t w = i % s[3], h = i / s[3] % s[2], c = i / (s[3] * s[2]) % s[1], n = i / (s[3] * s[2] * s[1]);
  return offset4(v.layout, s, n, c, h, w);
}

template <typename T>
std::string element(T value) {
  if constexpr (is_half<T>) {
    return fmt::format("{:.4g}", static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return fmt::format("{:.6g}", value);
  } else {
    return fmt::format("{}", static_cast<std::int64_t>(value));
  }
}

// Nested brackets. A tensor of many elements shows the first and the last three items of each axis, as in PyTorch.
template <typename T>
std::string print(const View& v, int axis, std::int64_t first) {
  constexpr std::int64_t kEdge = 3, kMost = 1000;
  if (axis == v.shape.rank()) return element(static_cast<const T*>(v.data)[memory_offset(v, first)]);
  std::int64_t stride = 1;
  for (int i = axis + 1; i < v.shape.rank(); ++i) stride *= v.shape[i];
  std::int64_t n = v.shape[axis];
  std::string s = "[";
  for (std::int64_t i = 0; i < n; ++i) {
    if (i > 0) s += axis + 1 == v.shape.rank() ? ", " : ",\n" + std::string(8 + axis, ' ');
    if (v.numel() > kMost && n > 2 * kEdge && i == kEdge) {
      s += "...";
      i = n - kEdge - 1;
      continue;
    }
    s += print<T>(v, axis + 1, first + i * stride);
  }
  return s + "]";
}

}  // namespace

Array Array::host(Shape shape, DType dtype) {
  View view{nullptr, dtype, Layout::plain, shape};
  auto storage = make_host_storage(view.bytes());
  view.data = storage->data;
  if (view.data) std::memset(view.data, 0, view.bytes());
  return {std::move(storage), view};
}

Device Array::device() const { return storage_ ? storage_->device : Device(); }

const Resource& Array::resource() const { return storage_->resource; }

void Array::wait() const {
  check(defined(), "wait: undefined tensor");
  if (storage_->engine) storage_->engine->wait_readable(storage_->resource);
}

namespace {

// The C++ type that reads these elements.
std::string_view element_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::bf16:
    case DType::f16: return "float";
    case DType::f64: return "double";
    case DType::i64: return "std::int64_t";
    case DType::u8: return "std::uint8_t";
  }
  return "?";
}

}  // namespace

template <typename T>
std::vector<T> Array::to_vector() const {
  check(defined(), "to_vector: undefined tensor");
  if (!device().host_visible()) return to(Device()).to_vector<T>();
  constexpr bool from_half = std::is_same_v<T, float>;
  check(dtype() == dtype_of<T> || (from_half && is_half_dtype(dtype())),
        "to_vector: the tensor holds {}, requested as {}: name its type, as in item<{}>()", name(dtype()),
        name(dtype_of<T>), element_type(dtype()));
  wait();
  std::vector<T> values(static_cast<std::size_t>(numel()));
  for (std::int64_t i = 0; i < numel(); ++i) {
    std::int64_t at = memory_offset(view_, i);
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

std::string Array::str() const {
  if (!defined()) return "tensor(undefined)";
  const Array readable = device().host_visible() ? *this : to(Device());
  readable.wait();
  std::string elements = visit_dtype(dtype(), [&](auto zero) { return print<decltype(zero)>(readable.view_, 0, 0); });
  return fmt::format("tensor({}, {}, {})", elements, name(dtype()), device().name());
}

std::string Array::describe() const {
  if (!defined()) return "undefined";
  return fmt::format("{} {} on {}", shape().str(), name(dtype()), device().name());
}

}  // namespace lockstep
