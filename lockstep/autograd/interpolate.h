// Resizing of images. nn/upsample.h has the layer.
//
//   Tensor y = interpolate(x, {.scale_factor = 2, .mode = Interpolation::bilinear});
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// area averages the pixels that a result pixel covers: adaptive_avg_pool2d().
enum class Interpolation : std::uint8_t { nearest, bilinear, bicubic, area };
struct InterpolateOptions {
  // Set one of the two: extents, or a factor for both axes.
  std::optional<std::array<std::int64_t, 2>> size = {};
  std::optional<double> scale_factor = {};
  Interpolation mode = Interpolation::nearest;
  // For bilinear and bicubic: corner pixels keep their values. Otherwise pixels are areas, and edge pixels are repeated
  // beyond the edge.
  bool align_corners = false;
};
// Resizes images: [N, C, H, W] -> [N, C, H', W']. bicubic follows Keys 1981 with a = -0.75. Throws unless exactly one
// of `size` and `scale_factor` is set.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

// Samples images at the places that a grid names, as spatial transformers do: x [N, C, H, W], grid [N, H', W', 2] ->
// [N, C, H', W']. A place is (x, y): -1 is the left, or upper, edge, and 1 the right, or lower, one. x and the grid get
// gradients. Outside the image, the value is 0 (zeros) or the nearest edge pixel (border).
enum class GridPadding : std::uint8_t { zeros, border };
struct GridSampleOptions {
  Interpolation mode = Interpolation::bilinear;  // or nearest, halves to the even pixel
  GridPadding padding_mode = GridPadding::zeros;
  // True: -1 and 1 are the middles of the outermost pixels. False: the outer sides of these pixels.
  bool align_corners = false;
};
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});

}  // namespace lockstep
