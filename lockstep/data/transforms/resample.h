// Internal: the resizing that Resize, ResizeAndCrop, and RandomResizedCrop share.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/autograd/interpolate.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/data/transforms/image_transform.h"

namespace lockstep {

// A window inside a picture.
struct ImageWindow {
  std::int64_t top, left, height, width;
};

// Returns the window in another size, or the picture itself if nothing changes. Bilinear makes Pillow's two passes:
// rows first, then columns, with weights of 22 bits for u8.
Tensor resample(std::string_view transform, const Tensor& image, const ImageWindow& window, ImageSize size,
                Interpolation interpolation);
// Throws unless resample() has this interpolation.
void check_interpolation(std::string_view transform, Interpolation interpolation);

}  // namespace lockstep
