#include "lockstep/nn/residual.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/module_tree.h"

namespace lockstep {
namespace {

// relu(norm(x) + shortcut), in one pass unless a program has put a call of its own into the norm, such as a hook.
Tensor normalized(BatchNorm2d& norm, const Tensor& x, const Tensor& shortcut) {
  if (!ModuleTree::has_call(norm)) return norm.forward_fused(x, shortcut, true);
  const Tensor y = norm(x);
  return relu(shortcut.defined() ? y + shortcut : y);
}

}  // namespace

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
  return normalized(bn2_, conv2_(normalized(bn1_, conv1_(x), {})), shortcut);
}

}  // namespace lockstep
