// Cutout: a random rectangle of a picture is painted over.
//
//   auto data = photos | Normalize({0.5}, {0.25}) | RandomErasing();   // with 0, the mean
#pragma once

#include "lockstep/data/transforms/image_transform.h"

namespace LOCKSTEP_API lockstep {

struct RandomErasingOptions {
  double p = 0.5;  // the probability that it paints
  // Limits of the rectangle's share of the area, and of its ratio of height to width, whose logarithm is uniform.
  double min_scale = 0.02, max_scale = 0.33;
  double min_ratio = 0.3, max_ratio = 3.3;
  double value = 0;
};
// Returns the image unchanged if ten drawn rectangles do not fit, as torchvision does.
class RandomErasing : public ImageTransform {
 public:
  explicit RandomErasing(const RandomErasingOptions& options = {});
};

}  // namespace lockstep
