// Angles and distances between vectors.
#include "lockstep/autograd/distance.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/shape.h"

namespace lockstep {

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int dim, double eps) {
  for (const Tensor* x : {&x1, &x2}) {
    check(x->defined() && is_floating(x->dtype()), "cosine_similarity: input is {}, expected a floating type", *x);
  }
  // Half types are computed in f32.
  if (is_half_dtype(x1.dtype()) && x1.dtype() == x2.dtype())
    return cast(cosine_similarity(cast(x1, DType::f32), cast(x2, DType::f32), dim, eps), x1.dtype());
  const Shape shape = ops::broadcast_shape("cosine_similarity", x1.shape(), x2.shape());
  if (shape.dim() == 0) return cosine_similarity(x1.reshape({1}), x2.reshape({1}), dim, eps);
  const int axis = ops::resolve_axis("cosine_similarity", shape, dim) - shape.dim();
  // x is repeated before norm(), so that a broadcast element counts as often as it is repeated.
  const auto unit = [&](Tensor x) {
    while (x.shape().dim() < -axis) x = unsqueeze(x, 0);
    Shape repeated = x.shape();
    repeated[axis] = shape[axis];
    x = expand(x, repeated);
    return x / clamp(norm(x, 2, axis, true), eps);
  };
  return sum(unit(x1) * unit(x2), axis);
}

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim) {
  for (const Tensor* x : {&x1, &x2}) {
    check(x->defined() && is_floating(x->dtype()), "pairwise_distance: input is {}, expected a floating type", *x);
  }
  return norm(x1 - x2 + eps, p, -1, keepdim);
}

Tensor cdist(const Tensor& x1, const Tensor& x2, double p) {
  for (const Tensor* x : {&x1, &x2}) {
    check(x->defined() && x->shape().dim() >= 2, "cdist: an input is {}, expected at least 2 axes (rows, features)",
          x->shape());
  }
  check(x1.size(-1) == x2.size(-1), "cdist: rows of {} and {} elements, expected as many of one as of the other",
        x1.size(-1), x2.size(-1));
  return norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p, -1);
}

}  // namespace lockstep
