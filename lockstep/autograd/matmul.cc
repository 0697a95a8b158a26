#include "lockstep/ops/matmul.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {

Tensor matmul(const Tensor& a, const Tensor& b) {
  const bool saves_a = b.requires_grad(), saves_b = a.requires_grad();
  return lift("matmul", place_matmul("matmul", a, b), {a, b}, [=](const Arrays& in) -> Lifted {
    return {ops::matmul(in[0], in[1]),
            [x = SavedArray(saves_a, in[0]), z = SavedArray(saves_b, in[1]), b_dtype = in[1].dtype()](
                const PartPass& p, const Array& dy) -> Arrays {
              Array da, db;
              if (p.needs(0)) da = ops::matmul(dy, z.get(p.name()), {}, {.options = {.transpose_b = true}});
              if (p.needs(1)) {
                db = ops::matmul(x.get(p.name()), dy, {}, {.options = {.transpose_a = true}, .dtype = b_dtype});
              }
              return {da, db};
            }};
  });
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
  check(x.defined() && x.shape().rank() == 2, "linear: input is {}, expected 2 axes (n, features)", x.shape().str());
  check(w.defined() && w.shape().rank() == 2, "linear: weight is {}, expected 2 axes (out, in)", w.shape().str());
  check(x.size(1) == w.size(1), "linear: input has {} features, weight expects {}", x.size(1), w.size(1));
  const bool saves_x = w.requires_grad(), saves_w = x.requires_grad();
  return lift("linear", place_rows("linear", {x}, {w, bias}), {x, w, bias}, [=](const Arrays& in) -> Lifted {
    return {ops::matmul(in[0], in[1], in[2], {.options = {.transpose_b = true}}),
            [x = SavedArray(saves_x, in[0]), w = SavedArray(saves_w, in[1]), dtype = in[1].dtype()](
                const PartPass& p, const Array& dy) -> Arrays {
              Array dx, dw, db;
              if (p.needs(0)) dx = ops::matmul(dy, w.get(p.name()));
              if (p.needs(1)) {
                dw = ops::matmul(dy, x.get(p.name()), {}, {.options = {.transpose_a = true},
                                                           .dtype = dtype,
                                                           .into = p.destination(1, dy.device())});
              }
              if (p.needs(2)) db = ops::sum_to(ops::convert(dy, dtype, Layout::plain), {dy.size(1)});
              return {dx, dw, db};
            }};
  });
}

}  // namespace lockstep
