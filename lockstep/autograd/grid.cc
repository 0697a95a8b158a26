// Evenly spaced numbers, and grids of coordinates.
#include "lockstep/autograd/grid.h"

#include <cmath>

#include "lockstep/autograd/functions.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"

namespace lockstep {

Tensor linspace(double start, double end, std::int64_t steps, const TensorOptions& options) {
  check(steps >= 0, "linspace: {} steps, expected at least 0", steps);
  const DType dtype = options.dtype.value_or(DType::f32);
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  Array y = Array::host({steps}, dtype);
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < steps; ++i) {
      // From both ends, so that the end is exact.
      const double value =
          i < (steps + 1) / 2 ? start + step * static_cast<double>(i) : end - step * static_cast<double>(steps - 1 - i);
      if constexpr (std::is_integral_v<T>) {
        ops::check_holds("linspace", dtype, std::trunc(value));
        y.view().as<T>()[i] = static_cast<T>(value);
      } else if constexpr (std::is_same_v<T, double>) {
        y.view().as<T>()[i] = value;
      } else {
        y.view().as<T>()[i] = T(static_cast<float>(value));
      }
    }
  });
  return options.device.is_host() ? Tensor(y) : Tensor(ops::to_device(y, options.device, {.non_blocking = true}));
}

std::vector<Tensor> meshgrid(std::span<const Tensor> tensors, GridIndexing indexing) {
  check(!tensors.empty(), "meshgrid: no tensors");
  const auto count = tensors.size();
  check(count <= Shape::kMaxDim, "meshgrid: {} tensors, at most {} are supported", count, Shape::kMaxDim);
  std::vector<std::int64_t> extents;
  for (const Tensor& x : tensors) {
    check(x.defined() && x.shape().dim() <= 1, "meshgrid: a tensor is {}, expected at most one axis", x.shape());
    extents.push_back(x.numel());
  }
  const auto axis_of = [&](std::size_t i) { return indexing == GridIndexing::xy && count > 1 && i < 2 ? 1 - i : i; };
  Shape shape{std::span<const std::int64_t>(extents)};
  for (std::size_t i = 0; i < count; ++i) shape[static_cast<int>(axis_of(i))] = extents[i];
  std::vector<Tensor> grids;
  for (std::size_t i = 0; i < count; ++i) {
    Tensor x = tensors[i].shape().dim() == 0 ? tensors[i].reshape({1}) : tensors[i];
    for (std::size_t k = 0; k < axis_of(i); ++k) x = unsqueeze(x, 0);
    while (x.shape().dim() < shape.dim()) x = unsqueeze(x, -1);
    grids.push_back(expand(x, shape));
  }
  return grids;
}

std::vector<Tensor> meshgrid(std::initializer_list<Tensor> tensors, GridIndexing indexing) {
  return meshgrid(std::span(tensors.begin(), tensors.size()), indexing);
}

}  // namespace lockstep
