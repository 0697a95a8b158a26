// The block that residual nets are made of.
#pragma once

#include <cstdint>

#include "lockstep/nn/conv.h"
#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

class BatchNorm2d;  // nn/batch_norm.h

struct ResidualOptions {
  std::int64_t channels = 0;
  std::int64_t stride = 1;
  // A 1x1 convolution on the shortcut. Required if the stride is above 1 or the number of channels changes.
  bool project = false;
};

// The residual block of He et al. 2015 as in the tutorials: relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), with
// 3x3 convolutions. With `project`, the shortcut is conv3, a 1x1 convolution.
//
//   net.append(Residual({.channels = 128, .stride = 2, .project = true}));
class Residual : public Module {
 public:
  using Options = ResidualOptions;
  explicit Residual(ResidualOptions options);
  Tensor forward(const Tensor& x) override;

 private:
  Conv2d &conv1_, &conv2_;
  Conv2d* conv3_;  // null without `project`
  BatchNorm2d &bn1_, &bn2_;
};

}  // namespace lockstep
