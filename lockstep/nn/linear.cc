#include "lockstep/nn/linear.h"

namespace lockstep {

Linear::Linear(LinearOptions options) : options_(options) {
  check(options.in_features >= 0 && options.out_features > 0, "linear: {} to {} features, expected at least 1",
        options.in_features, options.out_features);
  weight = add_parameter("weight", {.shape = {options.out_features, options.in_features}});
  if (options.bias) bias = add_parameter("bias", {.shape = {options.out_features}, .initializer = Constant{0}});
}

Tensor Linear::forward(const Tensor& x) {
  check(x.defined() && x.shape().dim() >= 1, "linear: input is {}, expected at least one axis (.., features)", x);
  if (!weight.shape_known()) weight.settle_shape({options_.out_features, x.size(-1)});
  return linear(x, weight, options_.bias ? bias.tensor() : Tensor());
}

}  // namespace lockstep
