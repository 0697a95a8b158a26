// Images as patches, and patches as images. nn/unfold.h has the layers.
//
//   Tensor patches = unfold(images, {.kernel_size = 3, .padding = 1});  // [N, C, H, W] -> [N, 9 C, H W]
#pragma once

#include <cstdint>

#include "lockstep/autograd/tensor.h"
#include "lockstep/backend/window.h"

namespace LOCKSTEP_API lockstep {

struct UnfoldOptions {
  HeightWidth kernel_size = 1;
  HeightWidth dilation = 1;
  HeightWidth padding = 0;  // zeros
  HeightWidth stride = 1;
};

// The window of a convolution at each of its L positions, as a column: [N, C, H, W] -> [N, C KH KW, L]. An input
// without a batch, [C, H, W], has a result without one.
Tensor unfold(const Tensor& x, const UnfoldOptions& options);
// Adds columns to images of the given extents where unfold() takes them from: [N, C KH KW, L] -> [N, C, H, W].
Tensor fold(const Tensor& x, HeightWidth output_size, const UnfoldOptions& options);

// [N, C r^2, H, W] -> [N, C, H r, W r]: channels become pixels (Shi et al. 2016). N may be missing.
Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor);
// The inverse: [N, C, H r, W r] -> [N, C r^2, H, W].
Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor);

}  // namespace lockstep
