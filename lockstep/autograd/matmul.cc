#include "lockstep/ops/matmul.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {

Tensor matmul(const Tensor& a, const Tensor& b) {
  ops::ShardScope scope(shard_of({a, b}));
  Tensor y = ops::matmul(a.detach(), b.detach());
  const SavedTensor x(b.requires_grad(), a), z(a.requires_grad(), b);
  return record("matmul", {a, b}, y, [x, z, b_dtype = b.dtype()](const Node& node, const Tensor& dy) {
    Tensor da, db;
    if (node.needs(0)) da = ops::matmul(dy, z.get(node.name), {}, {.options = {.transpose_b = true}});
    if (node.needs(1)) {
      db = ops::matmul(x.get(node.name), dy, {}, {.options = {.transpose_a = true}, .dtype = b_dtype});
    }
    return std::vector<Tensor>{da, db};
  });
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
  check(x.defined() && x.shape().rank() == 2, "linear: input is {}, expected 2 axes (n, features)", x.shape().str());
  check(w.defined() && w.shape().rank() == 2, "linear: weight is {}, expected 2 axes (out, in)", w.shape().str());
  check(x.size(1) == w.size(1), "linear: input has {} features, weight expects {}", x.size(1), w.size(1));
  ops::ShardScope scope(shard_of({x}));
  Tensor y = ops::matmul(x.detach(), w.detach(), bias.detach(), {.options = {.transpose_b = true}});
  const SavedTensor in(w.requires_grad(), x), weight(x.requires_grad(), w);
  return record("linear", {x, w, bias}, y, [in, weight, dtype = w.dtype()](const Node& node, const Tensor& dy) {
    Tensor dx, dw, db;
    if (node.needs(0)) dx = ops::matmul(dy, weight.get(node.name));
    if (node.needs(1)) {
      dw = ops::matmul(dy, in.get(node.name), {}, {.options = {.transpose_a = true},
                                                   .dtype = dtype,
                                                   .into = node.destination(1, dy.device())});
    }
    if (node.needs(2)) db = ops::sum_to(ops::convert(dy, dtype, Layout::plain), {dy.size(1)});
    return std::vector<Tensor>{dx, dw, db};
  });
}

}  // namespace lockstep
