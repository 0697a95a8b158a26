#include "lockstep/autograd/matmul.h"

#include "lockstep/autograd/autocast.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/matmul.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {

namespace {

// [.., k] as [rows, k].
Array as_rows(const Array& x) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.shape().dim(); ++i) rows *= x.size(i);
  return ops::reshape(ops::to_layout(x, Layout::plain), {rows, x.size(-1)});
}

// Whether the product of these matrices sums over the samples of both, as the product for a gradient of weights does.
bool sums_samples(const Tensor& a, const Tensor& b) {
  return a.dim() == 2 && b.dim() == 2 && a->kind == Kind::cut && b->kind == Kind::cut && same_placement(a->at, b->at) &&
         a->cut == Cut{1, b->cut.outer, b->cut.inner} && b->cut.axis == 0;
}

// An f32 matrix to the right of a half type is read in that type, and gets an f32 gradient.
Tensor product(const Tensor& left, const Tensor& right) {
  const Tensor a = autocast(left), b = right.dtype() == DType::f32 && right.dim() == 2 ? right : autocast(right);
  const bool saves_a = b.requires_grad(), saves_b = a.requires_grad();
  const auto part = [=](const Arrays& in) -> Lifted {
    return {ops::matmul(in[0], in[1]),
            [x = SavedArray(saves_a, in[0]), z = SavedArray(saves_b, in[1]), a_shape = in[0].shape(),
             b_shape = in[1].shape(), b_dtype = in[1].dtype()](const PartPass& p, const Array& dy) -> Arrays {
              Array da, db;
              if (p.needs(0)) {
                da = ops::sum_to(ops::matmul(dy, z.get(p.name()), {}, {.options = {.transpose_b = true}}), a_shape);
              }
              if (p.needs(1)) {
                // A matrix shared by all products gets its gradient in one product.
                const bool shared = b_shape.dim() == 2;
                const Array& left = x.get(p.name());
                db = ops::sum_to(ops::matmul(shared ? as_rows(left) : left, shared ? as_rows(dy) : dy, {},
                                             {.options = {.transpose_a = true}, .dtype = b_dtype}),
                                 b_shape);
              }
              return {da, db};
            }};
  };
  if (sums_samples(a, b)) return mix_shards("matmul", Mix::sum, place("matmul", std::array{a, b}), {a, b}, part);
  return lift("matmul", place_matmul("matmul", a, b), {a, b}, part);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check(a.defined() && b.defined() && a.shape().dim() > 0 && b.shape().dim() > 0,
        "matmul: {} and {}, expected at least one axis", a, b);
  // A vector is a row on the left and a column on the right.
  if (a.shape().dim() == 1) return squeeze(matmul(unsqueeze(a, 0), b), b.shape().dim() == 1 ? -1 : -2);
  if (b.shape().dim() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  return product(a, b);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  for (const Tensor* x : {&a, &b}) {
    check(x->defined() && x->shape().dim() == 3, "bmm: an operand is {}, expected 3 axes (matrices, rows, columns)",
          x->shape());
  }
  check(a.size(0) == b.size(0), "bmm: {} and {} matrices ({} x {}), expected as many of one as of the other", a.size(0),
        b.size(0), a.shape(), b.shape());
  return product(a, b);
}

namespace {

void check_axes(std::string_view name, const Tensor& x, int axes) {
  check(x.defined() && x.shape().dim() == axes, "{}: an operand is {}, expected {} {}", name, x.shape(), axes,
        axes == 1 ? "axis" : "axes");
}

}  // namespace

Tensor mm(const Tensor& a, const Tensor& b) {
  check_axes("mm", a, 2);
  check_axes("mm", b, 2);
  return product(a, b);
}

Tensor mv(const Tensor& a, const Tensor& b) {
  check_axes("mv", a, 2);
  check_axes("mv", b, 1);
  return matmul(a, b);
}

Tensor dot(const Tensor& a, const Tensor& b) {
  check_axes("dot", a, 1);
  check_axes("dot", b, 1);
  check(a.size(0) == b.size(0), "dot: {} and {} elements, expected as many of one as of the other", a.size(0),
        b.size(0));
  return sum(a * b, 0);
}

Tensor outer(const Tensor& a, const Tensor& b) {
  check_axes("outer", a, 1);
  check_axes("outer", b, 1);
  return unsqueeze(a, 1) * b;
}

Tensor linear(const Tensor& input, const Tensor& w, const Tensor& bias) {
  const Tensor x = autocast(input);
  check(x.defined() && x.shape().dim() >= 1, "linear: input is {}, expected at least one axis (.., features)",
        x.shape());
  check(w.defined() && w.shape().dim() == 2, "linear: weight is {}, expected 2 axes (out, in)", w.shape());
  check(x.size(-1) == w.size(1), "linear: input has {} features, weight expects {}", x.size(-1), w.size(1));
  const bool saves_x = w.requires_grad(), saves_w = x.requires_grad();
  return lift("linear", place_linear("linear", x, w, bias), {x, w, bias}, [=](const Arrays& in) -> Lifted {
    Shape shape = in[0].shape();
    shape[-1] = in[1].size(0);
    const Array rows = as_rows(in[0]);
    return {ops::reshape(ops::matmul(rows, in[1], in[2], {.options = {.transpose_b = true}}), shape),
            [x = SavedArray(saves_x, rows), w = SavedArray(saves_w, in[1]), dtype = in[1].dtype(), old = in[0].shape()](
                const PartPass& p, const Array& g) -> Arrays {
              const Array dy = as_rows(g);
              Array dx, dw, db;
              if (p.needs(0)) dx = ops::reshape(ops::matmul(dy, w.get(p.name())), old);
              if (p.needs(1)) {
                dw = ops::matmul(
                    dy, x.get(p.name()), {},
                    {.options = {.transpose_a = true}, .dtype = dtype, .into = p.destination(1, dy.device())});
              }
              if (p.needs(2)) db = ops::sum_to(ops::convert(dy, dtype, Layout::plain), {dy.size(1)});
              return {dx, dw, db};
            }};
  });
}

}  // namespace lockstep
