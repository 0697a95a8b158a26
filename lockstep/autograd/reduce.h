// Reductions. A sum, mean, variance, or largest element over the samples of a batch covers all shards of all processes.
// Without `dims`, all axes are reduced. With keepdim, reduced axes keep extent 1. bf16 and f16 are added in f32 or f64.
// i64 is reduced exactly, modulo 2^64 in sums and products; means, variances, and norms of i64 are errors: cast() it.
// Sums and products of bool and u8 are i64; largest and smallest elements keep the type.
//
//   Tensor centered = x - mean(x, 1, true);
#pragma once

#include <optional>

#include "lockstep/autograd/dims.h"
#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

Tensor sum(const Tensor& x);   // [1]
Tensor mean(const Tensor& x);  // [1]
Tensor sum(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim = false);
// Sums over the axes that broadcasting `shape` to x's shape would repeat.
Tensor sum_to(const Tensor& x, const Shape& shape);
struct VarOptions {
  // The divisor is the number of elements minus `correction`. A divisor of 0 gives infinity or NaN.
  double correction = 1;
  bool keepdim = false;
};
Tensor var(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
// Where all elements are equal, the gradient is 0.
Tensor std(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
// Both at once.
struct StdMean {
  Tensor std, mean;
};
StdMean std_mean(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
struct VarMean {
  Tensor var, mean;
};
VarMean var_mean(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
// The largest or smallest elements. Equal elements share the gradient. NaN counts as both largest and smallest.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
// Whether any element, or every element, is not 0: a mask, in u8 for u8. Of no elements, any() is false and all() true.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
// (sum |x|^p)^(1 / p), or the largest |x| for an infinite p. p is at least 1. Where the norm is 0, the gradient is 0.
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
// The product of all elements of a tensor that is not cut, or of those along an axis other than the batch axis. It is 1
// for no elements. Factors of 0 have the right gradient.
Tensor prod(const Tensor& x);
Tensor prod(const Tensor& x, int dim, bool keepdim = false);
// The largest or smallest values along `dim`, and their indices. Among equal values, the first one counts, and it alone
// gets the gradient. `dim` must not be the batch axis.
struct MaxResult {
  Tensor values, indices;
};
MaxResult max(const Tensor& x, int dim, bool keepdim = false);
MaxResult min(const Tensor& x, int dim, bool keepdim = false);
// Return i64, without a history. Without `dim`: the index among all elements.
Tensor argmax(const Tensor& x, std::optional<int> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<int> dim = {}, bool keepdim = false);
// log(sum(exp(x))) without overflow.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);
// Cumulative sums and products along an axis other than the batch axis.
Tensor cumsum(const Tensor& x, int dim);
Tensor cumprod(const Tensor& x, int dim);
// The largest, or the smallest, element so far along `dim`, and its index: the last one among equal elements. From a
// NaN on, all values are NaN.
MaxResult cummax(const Tensor& x, int dim);
MaxResult cummin(const Tensor& x, int dim);

}  // namespace lockstep
