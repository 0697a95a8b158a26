// Pictures turned about their middle.
//
//   auto data = photos | RandomRotation(15, {.interpolation = Interpolation::bilinear});
#pragma once

#include "lockstep/autograd/interpolate.h"
#include "lockstep/data/transforms/image_transform.h"

namespace LOCKSTEP_API lockstep {

struct RandomRotationOptions {
  Interpolation interpolation = Interpolation::nearest;  // or bilinear
  double fill = 0;                                       // value of the pixels from outside the picture
};
// Rotates by a uniform angle in degrees, counterclockwise. Keeps the size.
class RandomRotation : public ImageTransform {
 public:
  // Angles in [-degrees, degrees].
  explicit RandomRotation(double degrees, const RandomRotationOptions& options = {});
  RandomRotation(double min_degrees, double max_degrees, const RandomRotationOptions& options = {});
};

}  // namespace lockstep
