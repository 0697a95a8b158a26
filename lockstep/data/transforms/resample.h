// Internal: the resizing behind Resize, ResizeAndCrop, and RandomResizedCrop.
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

// The window in another size. Returns the picture itself if that changes nothing. Pillow's two passes: rows first, then
// columns, with weights of 22 bits for u8.
Tensor resample(std::string_view transform, const Tensor& image, const ImageWindow& window, ImageSize size,
                Interpolation interpolation);
// Throws unless it is one of those that resample() has.
void check_interpolation(std::string_view transform, Interpolation interpolation);

}  // namespace lockstep
