// Mirrored pictures.
//
//   auto data = photos | RandomHorizontalFlip() | RandomVerticalFlip(0.1);
#pragma once

#include "lockstep/data/transforms/image_transform.h"

namespace LOCKSTEP_API lockstep {

// Swaps left and right with this probability.
class RandomHorizontalFlip : public ImageTransform {
 public:
  explicit RandomHorizontalFlip(double p = 0.5);
};

// Swaps top and bottom with this probability.
class RandomVerticalFlip : public ImageTransform {
 public:
  explicit RandomVerticalFlip(double p = 0.5);
};

}  // namespace lockstep
