#include "strides.h"

#include <algorithm>
#include <utility>

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

bool repeats_elements(const Shape& shape, const Strides& strides) {
  for (int axis = 0; axis < shape.dim(); ++axis) {
    if (shape[axis] > 1 && strides[static_cast<std::size_t>(axis)] == 0) return true;
  }
  return false;
}

Strides dense_strides(const Shape& shape, const Strides& strides) {
  const auto lies_inside = [&](int a, int b) {
    const std::int64_t of_a = strides[static_cast<std::size_t>(a)], of_b = strides[static_cast<std::size_t>(b)];
    // An axis that repeats its elements keeps its place.
    if (of_a == 0 || of_b == 0) return std::optional<bool>();
    if (of_a != of_b) return std::optional(of_a < of_b);
    return shape[a] < shape[b] ? std::optional(true) : std::nullopt;
  };
  std::vector<int> order;  // from the innermost axis outward
  for (int axis = shape.dim() - 1; axis >= 0; --axis) {
    order.push_back(axis);
    std::size_t at = order.size() - 1;
    for (std::size_t other = at; other-- > 0;) {
      const std::optional<bool> inside = lies_inside(order[at], order[other]);
      if (inside == false) break;
      if (inside != true) continue;
      std::swap(order[at], order[other]);
      at = other;
    }
  }
  Strides dense(strides.size());
  std::int64_t next = 1;
  for (const int axis : order) {
    dense[static_cast<std::size_t>(axis)] = next;
    next *= std::max<std::int64_t>(shape[axis], 1);
  }
  return dense;
}

// Neighboring axes without a gap between them are one run of elements. Each run must hold whole axes of the result.
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
