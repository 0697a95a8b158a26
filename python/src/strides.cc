#include "strides.h"

namespace lockstep::python {

Strides plain_strides(const Shape& shape) {
  Strides strides(static_cast<std::size_t>(shape.dim()));
  std::int64_t next = 1;
  for (int axis = shape.dim() - 1; axis >= 0; --axis) {
    strides[static_cast<std::size_t>(axis)] = next;
    next *= std::max<std::int64_t>(shape[axis], 1);
  }
  return strides;
}

bool is_plain(const Shape& shape, const Strides& strides) {
  const Strides plain = plain_strides(shape);
  for (int axis = 0; axis < shape.dim(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (shape[axis] != 1 && strides[i] != plain[i] && shape.numel() > 0) return false;
  }
  return true;
}

// Neighboring axes that lie one behind the other are one run of elements. Each run must hold whole axes of the result.
std::optional<Strides> reshaped_strides(const Shape& shape, const Strides& strides, const Shape& to) {
  if (shape.numel() == 0 || shape.dim() == 0) return plain_strides(to);
  Strides result(static_cast<std::size_t>(to.dim()));
  int next = to.dim() - 1;
  std::int64_t step = strides.back(), run = 1, filled = 1;
  for (int axis = shape.dim() - 1; axis >= 0; --axis) {
    run *= shape[axis];
    if (axis > 0) {
      const std::int64_t before = strides[static_cast<std::size_t>(axis) - 1];
      if (shape[axis - 1] == 1 || before == run * step) continue;
    }
    while (next >= 0 && (filled < run || to[next] == 1)) {
      result[static_cast<std::size_t>(next)] = filled * step;
      filled *= to[next--];
    }
    if (filled != run) return {};
    if (axis > 0) step = strides[static_cast<std::size_t>(axis) - 1];
    run = filled = 1;
  }
  if (next >= 0) return {};
  return result;
}

}  // namespace lockstep::python
