#include "lockstep/nn/sequential.h"

#include <typeinfo>

#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/module_tree.h"
#include "lockstep/nn/output_observer.h"
#include "lockstep/nn/pooling.h"

namespace lockstep {
namespace {

// Excludes derived classes, which may compute something else.
template <typename M>
bool is(const Module& module) {
  return typeid(module) == typeid(M) && !ModuleTree::has_call(module);
}

}  // namespace

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (std::size_t i = 0; i < size(); ++i) {
    Module& module = (*this)[i];
    const bool normalizes = is<BatchNorm2d>(module) || is<BatchNorm1d>(module);
    if (normalizes && i + 1 < size() && is<ReLU>((*this)[i + 1])) {
      y = static_cast<BatchNorm&>(module).forward_fused(y, {}, true);
      OutputObserver::report((*this)[++i], y);
    } else if (is<ReLU>(module) && i + 1 < size() && is<MaxPool2d>((*this)[i + 1]) && y.defined() && y.numel() > 0 &&
               !OutputObserver::observes()) {
      // The order changes no bit of the result or of a gradient, and pooled images are smaller. A window without pixels
      // would be an exception.
      y = module((*this)[++i](y));
    } else {
      y = module(y);
    }
  }
  return y;
}

}  // namespace lockstep
