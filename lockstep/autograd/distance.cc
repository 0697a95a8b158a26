// Angles and distances between vectors.
#include "lockstep/autograd/distance.h"

#include "lockstep/autograd/functions.h"

namespace lockstep {

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int dim, double eps) {
  for (const Tensor* x : {&x1, &x2}) {
    check(x->defined() && is_floating(x->dtype()), "cosine_similarity: input is {}, expected a floating type", *x);
  }
  // Half types are computed in f32.
  if (is_half_dtype(x1.dtype()) && x1.dtype() == x2.dtype())
    return cast(cosine_similarity(cast(x1, DType::f32), cast(x2, DType::f32), dim, eps), x1.dtype());
  const auto unit = [&](const Tensor& x) { return x / clamp(norm(x, 2, dim, true), eps); };
  return sum(unit(x1) * unit(x2), dim);
}

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim) {
  check(x1.defined() && x2.defined(), "pairwise_distance: undefined tensor");
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
