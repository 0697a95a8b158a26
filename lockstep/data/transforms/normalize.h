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

// f32 in 0 to 1: u8 divided by 255, as torchvision's ToTensor. f32 stays as it is.
class ToFloat : public ImageTransform {
 public:
  ToFloat();
};

// (x - mean) / std in f32, where x is as ToFloat makes it. One number for each channel, or one for all.
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
  std::int64_t part = 0;  // of the examples: the picture
  int threads = 1;        // without effect on the result
};
// Over all pixels of all examples as get(index) returns them, so give data without random transforms. Sums are integers
// and exact: they do not depend on the order of the examples. f32 pixels lie in [-16, 16] and count as multiples of
// 2^-20.
ChannelStatistics channel_statistics(const Dataset& data, const ChannelStatisticsOptions& options = {});

}  // namespace lockstep
