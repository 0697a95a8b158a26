// Pixels as f32, shifted and scaled for training.
//
//   const ChannelStatistics s = channel_statistics(photos | ResizeAndCrop(64));
//   auto data = photos | ResizeAndCrop(64) | Normalize(s.mean, s.std);
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transforms/image_transform.h"

namespace LOCKSTEP_API lockstep {

// Converts u8 to f32 in 0 to 1 by division by 255, as torchvision's ToTensor. Leaves f32 unchanged.
class ToFloat : public ImageTransform {
 public:
  ToFloat();
};

// Returns (x - mean) / std in f32, where x is as ToFloat makes it. One number for each channel, or one for all.
class Normalize : public ImageTransform {
 public:
  Normalize(std::vector<double> mean, std::vector<double> std);
};

// Mean and standard deviation (divided by n, not n - 1) of each channel, of pixels in 0 to 1.
struct ChannelStatistics {
  std::vector<double> mean;
  std::vector<double> std;
};

struct ChannelStatisticsOptions {
  std::int64_t part = 0;  // index of the picture among the parts of an example
  int threads = 1;        // no effect on the result
};
// Computes them over all pixels of all examples as get(index) returns them, so pass data without random transforms.
// Sums are exact integers, so they do not depend on the order of the examples. f32 pixels must lie in [-16, 16] and are
// rounded to multiples of 2^-20.
ChannelStatistics channel_statistics(const Dataset& data, const ChannelStatisticsOptions& options = {});

}  // namespace lockstep
