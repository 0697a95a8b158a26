#include "lockstep/nn/linear.h"

#include "lockstep/nn/initial_values.h"
#include "lockstep/nn/sizes.h"

namespace lockstep {
namespace {

const LinearOptions& checked(const LinearOptions& o) {
  check(o.in_features >= 0 && o.out_features > 0, "linear: {} to {} features, expected at least 1", o.in_features,
        o.out_features);
  const Shape shape{o.out_features, o.in_features};
  check(!o.weight.defined() || o.weight.fits(shape) ||
            (o.in_features == 0 && o.weight.shape().dim() == 2 && o.weight.shape()[0] == o.out_features),
        "linear: shares a weight {}, expected {} (0: any)", o.weight.defined() ? o.weight.shape() : shape, shape);
  return o;
}

}  // namespace

Linear::Linear(LinearOptions options)
    : weight(checked(options).weight.defined()
                 ? share("weight", options.weight)
                 : add_parameter("weight", {.shape = {options.out_features, options.in_features},
                                            .default_initializer = default_weight()})),
      bias(options.bias ? add_parameter("bias", {.shape = {options.out_features},
                                                 .initializer = Constant{0},
                                                 .default_initializer = default_bias(weight)})
                        : Parameter()),
      options_(options) {}

Linear::Linear(std::int64_t in_features, std::int64_t out_features, LinearOptions more)
    : Linear((set_size("linear", "in_features", more.in_features, in_features),
              set_size("linear", "out_features", more.out_features, out_features), more)) {}

Tensor Linear::forward(const Tensor& x) {
  check(x.defined() && x.shape().dim() >= 1, "linear: input is {}, expected at least one axis (.., features)", x);
  if (!weight.shape_known()) weight.settle_shape({options_.out_features, x.size(-1)});
  return linear(x, weight, options_.bias ? bias.tensor() : Tensor());
}

}  // namespace lockstep
