#pragma once

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct Conv1dLayerOptions {
  std::int64_t in_channels = 0;  // 0: inferred at the first forward pass
  std::int64_t out_channels = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

// [N, C, L] -> [N, O, L'], L' = (L + 2 padding - dilation (kernel - 1) - 1) / stride + 1.
class Conv1d : public Module {
 public:
  using Options = Conv1dLayerOptions;
  explicit Conv1d(Conv1dLayerOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [O, C / groups, kernel]
  Parameter bias;    // [O]

 protected:
  std::string extra_repr() const override;

 private:
  Conv1dLayerOptions options_;
};

}  // namespace lockstep
