// Resizing of images.
//
//   net.append(Upsample({.scale_factor = 2}));
#pragma once

#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Resizes images [N, C, H, W]: see interpolate().
class Upsample : public Module {
 public:
  using Options = InterpolateOptions;
  explicit Upsample(InterpolateOptions options) : options_(options) {}
  Tensor forward(const Tensor& x) override { return interpolate(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  InterpolateOptions options_;
};

}  // namespace lockstep
