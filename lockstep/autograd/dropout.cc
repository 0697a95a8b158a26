#include "lockstep/autograd/dropout.h"

#include "lockstep/autograd/dropout_keys.h"
#include "lockstep/autograd/functions.h"

namespace lockstep {

Tensor dropout(const Tensor& x, double p) {
  check(p >= 0 && p <= 1, "dropout: probability {}, expected 0 to 1", p);
  if (p == 1) return x * 0.0;
  const Placed placed = place_as("dropout", x);
  DropoutKeys keys(placed);
  return lift("dropout", placed, {x}, [&](const Arrays& in) -> Lifted {
    const ops::DropoutKey key = keys.next(in[0]);
    // The mask is in x's memory order.
    return {ops::dropout(in[0], p, key), [p, key, layout = in[0].layout()](const PartPass&, const Array& dy) -> Arrays {
              return {ops::dropout(ops::to_layout(dy, layout), p, key)};
            }};
  });
}

namespace {

Tensor drop_channels(std::string_view name, const Tensor& x, double p, int dims) {
  check(x.defined() && x.shape().dim() == dims, "{}: input is {}, expected {} axes ({})", name, x, dims,
        dims == 3 ? "N, C, L" : "N, C, H, W");
  Tensor one = x.detach();
  for (int axis = 2; axis < dims; ++axis) {
    if (x.size(axis) == 0) return clone(x);
    one = narrow(one, axis, 0, 1);
  }
  return x * dropout(ones_like(one), p);
}

}  // namespace

Tensor dropout1d(const Tensor& x, double p) { return drop_channels("dropout1d", x, p, 3); }
Tensor dropout2d(const Tensor& x, double p) {
  return drop_channels("dropout2d", x, p, x.defined() && x.shape().dim() == 2 ? 2 : 4);
}

}  // namespace lockstep
