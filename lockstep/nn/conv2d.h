#pragma once

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct Conv2dLayerOptions {
  std::int64_t in_channels = 0;  // 0: inferred at the first forward pass
  std::int64_t out_channels = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

// [N, C, H, W] -> [N, O, H', W'] with square kernels.
class Conv2d : public Module {
 public:
  using Options = Conv2dLayerOptions;
  explicit Conv2d(Conv2dLayerOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [O, C / groups, kernel, kernel]
  Parameter bias;    // [O]

 protected:
  std::string extra_repr() const override;

 private:
  Conv2dLayerOptions options_;
};

}  // namespace lockstep
