#include "lockstep/ops/softmax.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/ops/shape.h"

namespace lockstep {
namespace {

using RowFunction = Array (*)(const Array&);
using RowBackward = Array (*)(const Array& y, const Array& dy);

// A function of the rows of the last axis, along any other one.
Tensor along(std::string_view name, const Tensor& x, int dim, RowFunction forward, RowBackward backward) {
  check(x.defined() && x.shape().rank() > 0, "{}: input has no axes", name);
  const int axis = ops::resolve_axis(name, x.shape(), dim), last = x.shape().rank() - 1;
  const Placed placed = place_as(name, x);
  if (placed.kind == Kind::cut && placed.cut.axis == axis) fail_across_batch(name, x, "along which it would sum");
  return lift(name, placed, {x}, [=](const Arrays& in) -> Lifted {
    const Array y = forward(ops::move_axis(in[0], axis, last));
    return {ops::move_axis(y, last, axis), [=, saved = SavedArray(y)](const PartPass& p, const Array& dy) -> Arrays {
              return {ops::move_axis(backward(saved.get(p.name()), ops::move_axis(dy, axis, last)), last, axis)};
            }};
  });
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) { return along("softmax", x, dim, ops::softmax, ops::softmax_backward); }
Tensor log_softmax(const Tensor& x, int dim) {
  return along("log_softmax", x, dim, ops::log_softmax, ops::log_softmax_backward);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  const double smoothing = options.label_smoothing;
  return mix_shards("cross entropy", Mix::mean, place_rows("cross_entropy", {logits, labels}), {logits, labels},
                    [smoothing](const Arrays& in) -> Lifted {
                      return {ops::cross_entropy(in[0], in[1], smoothing),
                              [x = SavedArray(in[0]), y = SavedArray(in[1]), smoothing](const PartPass& p,
                                                                                        const Array& dy) -> Arrays {
                                return {ops::cross_entropy_backward(x.get(p.name()), y.get(p.name()), smoothing, dy),
                                        Array()};
                              }};
                    });
}

Tensor mse_loss(const Tensor& x, const Tensor& target) {
  check(x.defined() && target.defined() && x.shape() == target.shape(), "mse: {} and {}, expected the same shape", x.describe(),
        target.describe());
  if ((x.kind() == Kind::cut) != (target.kind() == Kind::cut)) {
    fail("mse: one of {} and {} is cut over the batch, the other is not: split_and_load() both", x.describe(), target.describe());
  }
  return mix_shards("mse", Mix::mean, place_broadcast("mse_loss", {x, target}), {x, target},
                    [](const Arrays& in) -> Lifted {
                      return {ops::mse(in[0], in[1]),
                              [x = SavedArray(in[0]), y = SavedArray(in[1])](const PartPass& p, const Array& dy) -> Arrays {
                                const Array &in = x.get(p.name()), &target = y.get(p.name());
                                Array dx, dt;
                                if (p.needs(0)) dx = ops::mse_backward(in, target, dy);
                                if (p.needs(1)) dt = ops::mse_backward(target, in, dy);
                                return {dx, dt};
                              }};
                    });
}

}  // namespace lockstep
