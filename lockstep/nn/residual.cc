#include "lockstep/nn/residual.h"

#include "lockstep/nn/batch_norm.h"

namespace lockstep {

Residual::Residual(ResidualOptions options)
    : conv1_(make<Conv2d>(
          "conv1", {.out_channels = options.channels, .kernel_size = 3, .stride = options.stride, .padding = 1})),
      conv2_(make<Conv2d>("conv2", {.out_channels = options.channels, .kernel_size = 3, .padding = 1})),
      conv3_(
          options.project
              ? &make<Conv2d>("conv3", {.out_channels = options.channels, .kernel_size = 1, .stride = options.stride})
              : nullptr),
      bn1_(make<BatchNorm2d>("bn1")), bn2_(make<BatchNorm2d>("bn2")) {}

Tensor Residual::forward(const Tensor& x) {
  const Tensor shortcut = conv3_ ? (*conv3_)(x) : x;
  const Tensor y = bn1_.forward_fused(conv1_(x), {}, true);
  return bn2_.forward_fused(conv2_(y), shortcut, true);
}

}  // namespace lockstep
