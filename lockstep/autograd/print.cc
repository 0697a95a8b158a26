// A tensor's elements as text.
#include <string>
#include <type_traits>

#include "lockstep/autograd/tensor.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/tensor/view.h"

namespace lockstep {
namespace {

template <typename T>
std::string element(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (is_half<T>) {
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
  if (axis == v.shape.dim()) return element(static_cast<const T*>(v.data)[plain_offset(v, first)]);
  std::int64_t stride = 1;
  for (int i = axis + 1; i < v.shape.dim(); ++i) stride *= v.shape[i];
  std::int64_t n = v.shape[axis];
  std::string s = "[";
  for (std::int64_t i = 0; i < n; ++i) {
    if (i > 0) s += axis + 1 == v.shape.dim() ? ", " : ",\n" + std::string(8 + axis, ' ');
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

std::string Tensor::str() const {
  if (!defined()) return "tensor(undefined)";
  const Array all = readable("str");
  all.wait();
  const std::string elements = visit_dtype(dtype(), [&](auto zero) { return print<decltype(zero)>(all.view(), 0, 0); });
  // The elements of a cut tensor are joined in host memory.
  const Device where = impl_->kind == Kind::cut ? kHost : device();
  return fmt::format("tensor({}, {}, {})", elements, name(dtype()), where.name());
}

}  // namespace lockstep
