// Angles and distances between vectors.
//
//   Tensor closest = argmin(cdist(points, centers), -1);
#pragma once

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// sum(x1 x2) / (max(|x1|, eps) max(|x2|, eps)) along the axis. Shapes broadcast.
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int dim = 1, double eps = 1e-8);
// |x1 - x2 + eps| along the last axis, by norm(). Shapes broadcast.
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p = 2, double eps = 1e-6, bool keepdim = false);
// The distance of each row of x1 from each row of x2, by norm(): [.., m, k], [.., n, k] -> [.., m, n]. Computed from
// the m n k differences, which takes memory, but loses no digits where rows are close.
Tensor cdist(const Tensor& x1, const Tensor& x2, double p = 2);

}  // namespace lockstep
