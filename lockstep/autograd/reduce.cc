#include "lockstep/ops/reduce.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"

namespace lockstep {

Tensor sum_to(const Tensor& x, const Shape& shape) {
  ops::ShardScope scope(shard_of({x}));
  return record("sum", {x}, ops::sum_to(x.detach(), shape), [old = x.shape()](const Node&, const Tensor& dy) {
    Tensor zeros = ops::empty(old, dy.dtype(), dy.device());
    ops::fill_(zeros, 0);
    return std::vector<Tensor>{ops::binary(BinaryOp::add, zeros, dy)};
  });
}

Tensor sum(const Tensor& x) { return sum_to(reshape(x, {x.numel()}), {1}); }

Tensor mean(const Tensor& x) {
  check(x.numel() > 0, "mean: no elements");
  return sum(x) / static_cast<double>(x.numel());
}

}  // namespace lockstep
