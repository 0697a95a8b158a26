// Windows of pictures, centered or random.
//
//   auto data = small_photos | RandomCrop(32, {.padding = 4}) | RandomHorizontalFlip();
#pragma once

#include <cstdint>

#include "lockstep/autograd/interpolate.h"
#include "lockstep/data/transforms/image_transform.h"

namespace LOCKSTEP_API lockstep {

// Cuts out the middle. Pads a smaller picture with 0.
class CenterCrop : public ImageTransform {
 public:
  explicit CenterCrop(std::int64_t size);
  explicit CenterCrop(ImageSize size);
};

struct RandomCropOptions {
  std::int64_t padding = 0;    // pixels added on each side before the crop
  bool pad_if_needed = false;  // adds more if the picture is too small, which is otherwise an error
  double fill = 0;             // value of the added pixels
};
class RandomCrop : public ImageTransform {
 public:
  explicit RandomCrop(std::int64_t size, const RandomCropOptions& options = {});
  explicit RandomCrop(ImageSize size, const RandomCropOptions& options = {});
};

struct RandomResizedCropOptions {
  // Limits of the window's share of the area, and of its ratio of width to height, whose logarithm is uniform.
  double min_scale = 0.08, max_scale = 1;
  double min_ratio = 3. / 4, max_ratio = 4. / 3;
  Interpolation interpolation = Interpolation::bilinear;  // as in ResizeOptions
};
// A random window, resized. If ten draws do not fit, the largest centered window whose ratio is within the limits.
class RandomResizedCrop : public ImageTransform {
 public:
  explicit RandomResizedCrop(std::int64_t size, const RandomResizedCropOptions& options = {});
  explicit RandomResizedCrop(ImageSize size, const RandomResizedCropOptions& options = {});
};

}  // namespace lockstep
