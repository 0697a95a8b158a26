// Pictures turned about their middle.
//
//   auto data = photos | RandomRotation(15, {.interpolation = Interpolation::bilinear});
#pragma once

#include "lockstep/autograd/interpolate.h"
#include "lockstep/data/transforms/image_transform.h"

namespace LOCKSTEP_API lockstep {

struct RandomRotationOptions {
  Interpolation interpolation = Interpolation::nearest;  // or bilinear
  double fill = 0;                                       // of the corners that become free
};
// A uniform angle in degrees, counterclockwise. The size stays.
class RandomRotation : public ImageTransform {
 public:
  // Angles in [-degrees, degrees].
  explicit RandomRotation(double degrees, const RandomRotationOptions& options = {});
  RandomRotation(double min_degrees, double max_degrees, const RandomRotationOptions& options = {});
};

}  // namespace lockstep
