#include "lockstep/nn/residual.h"

namespace lockstep {

Residual::Residual(ResidualOptions options)
    : conv1_({.out_channels = options.channels, .kernel = 3, .stride = options.stride, .padding = 1}),
      conv2_({.out_channels = options.channels, .kernel = 3, .padding = 1}) {
  add("conv1", conv1_);
  add("conv2", conv2_);
  if (options.project) {
    conv3_.emplace(ConvLayerOptions{.out_channels = options.channels, .kernel = 1, .stride = options.stride});
    add("conv3", *conv3_);
  }
  add("bn1", bn1_);
  add("bn2", bn2_);
}

Tensor Residual::forward(const Tensor& x) {
  const Tensor shortcut = conv3_ ? (*conv3_)(x) : x;
  const Tensor y = bn1_.forward_fused(conv1_(x), {}, true);
  return bn2_.forward_fused(conv2_(y), shortcut, true);
}

}  // namespace lockstep
