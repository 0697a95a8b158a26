#include "lockstep/ops/matmul.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {

Tensor matmul(const Tensor& a, const Tensor& b) {
  ops::ShardScope scope(shard_of({a, b}));
  Tensor x = a.detach(), z = b.detach();
  return record("matmul", {a, b}, ops::matmul(x, z), [x, z](const Node& node, const Tensor& dy) {
    Tensor da, db;
    if (node.needs(0)) da = ops::matmul(dy, z, {}, {.options = {.transpose_b = true}});
    if (node.needs(1)) db = ops::matmul(x, dy, {}, {.options = {.transpose_a = true}, .dtype = z.dtype()});
    return std::vector<Tensor>{da, db};
  });
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
  check(x.defined() && x.shape().rank() == 2, "linear: input is {}, expected 2 axes (n, features)", x.shape().str());
  check(w.defined() && w.shape().rank() == 2, "linear: weight is {}, expected 2 axes (out, in)", w.shape().str());
  check(x.size(1) == w.size(1), "linear: input has {} features, weight expects {}", x.size(1), w.size(1));
  ops::ShardScope scope(shard_of({x}));
  Tensor in = x.detach(), weight = w.detach();
  Tensor y = ops::matmul(in, weight, bias.detach(), {.options = {.transpose_b = true}});
  return record("linear", {x, w, bias}, y, [in, weight](const Node& node, const Tensor& dy) {
    Tensor dx, dw, db;
    if (node.needs(0)) dx = ops::matmul(dy, weight);
    if (node.needs(1)) {
      dw = ops::matmul(dy, in, {}, {.options = {.transpose_a = true},
                                    .dtype = weight.dtype(),
                                    .into = node.destination(1, weight.device())});
    }
    if (node.needs(2)) db = ops::sum_to(ops::convert(dy, weight.dtype(), Layout::plain), {dy.size(1)});
    return std::vector<Tensor>{dx, dw, db};
  });
}

}  // namespace lockstep
