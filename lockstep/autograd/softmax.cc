#include "lockstep/ops/softmax.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/saved_tensor.h"

namespace lockstep {
namespace {

// Over the last axis, which must not be the batch.
Placed place_before_last(std::string_view what, const Tensor& x) {
  Placed placed = place_as(what, x);
  if (placed.kind == Kind::cut && placed.cut.axis == x.shape().rank() - 1) fail_across_batch(what, x, "its last one");
  return placed;
}

}  // namespace

Tensor softmax(const Tensor& x) {
  return lift("softmax", place_before_last("softmax", x), {x}, [](const Arrays& in) -> Lifted {
    Array y = ops::softmax(in[0]);
    return {y, [saved = SavedArray(y)](const PartPass& p, const Array& dy) -> Arrays {
              return {ops::softmax_backward(saved.get(p.name()), dy)};
            }};
  });
}

Tensor log_softmax(const Tensor& x) {
  return lift("log softmax", place_before_last("log_softmax", x), {x}, [](const Arrays& in) -> Lifted {
    Array y = ops::log_softmax(in[0]);
    return {y, [saved = SavedArray(y)](const PartPass& p, const Array& dy) -> Arrays {
              return {ops::log_softmax_backward(saved.get(p.name()), dy)};
            }};
  });
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
