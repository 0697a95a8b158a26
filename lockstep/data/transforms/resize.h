// Pictures of another size.
//
//   Tensor thumbnail = Resize(64)(picture);         // the shorter edge has 64 pixels
//   auto data = photos | ResizeAndCrop(224);        // all of one size, nothing distorted
#pragma once

#include <cstdint>

#include "lockstep/autograd/interpolate.h"
#include "lockstep/data/transforms/image_transform.h"

namespace LOCKSTEP_API lockstep {

struct ResizeOptions {
  // bilinear or nearest. Bilinear averages over as many pixels as one pixel of the result covers (antialias), by
  // Pillow's formula, in integers for u8.
  Interpolation interpolation = Interpolation::bilinear;
};

// torchvision's Resize of PIL images, with its default antialias.
class Resize : public ImageTransform {
 public:
  // The shorter edge gets this many pixels; the other edge keeps the ratio, rounded down.
  explicit Resize(std::int64_t shorter_edge, const ResizeOptions& options = {});
  explicit Resize(ImageSize size, const ResizeOptions& options = {});
};

// The largest centered window with the ratio of `size`, resized to `size`.
class ResizeAndCrop : public ImageTransform {
 public:
  explicit ResizeAndCrop(std::int64_t size, const ResizeOptions& options = {});
  explicit ResizeAndCrop(ImageSize size, const ResizeOptions& options = {});
};

}  // namespace lockstep
