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
  // For bilinear and bicubic: corner pixels keep their values. Otherwise pixels are areas, and edge pixels extend beyond the edge.
  bool align_corners = false;
};
// Resizes images: [N, C, H, W] -> [N, C, H', W']. bicubic follows Keys 1981 with a = -0.75. Throws unless exactly one of `size` and `scale_factor` is set.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

}  // namespace lockstep
