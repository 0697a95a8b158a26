// The differentiable operations: what models are written with. Names, arguments and defaults are PyTorch's. Each is one
// operation of ops/ forward and one or two backward, or a few others put together. Shapes and errors are those of ops/.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/autograd/axes.h"
#include "lockstep/autograd/creation.h"
#include "lockstep/autograd/losses.h"
#include "lockstep/backend/conv.h"
#include "lockstep/backend/pool.h"
#include "lockstep/ops/norm.h"
#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// elementwise.cc
Tensor negate(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor abs(const Tensor& x);
// -1, 0 or 1; NaN stays NaN.
Tensor sign(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor elu(const Tensor& x, double alpha = 1);
// The exact one: x Phi(x).
Tensor gelu(const Tensor& x);
Tensor silu(const Tensor& x);
// log(1 + exp(beta x)) / beta, and x where beta x is above the threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
// Within [min, max], one of which may be left out: max where min is above it.
Tensor clamp(const Tensor& x, std::optional<double> min, std::optional<double> max = {});
Tensor pow(const Tensor& x, double exponent);
// Shapes broadcast as in NumPy. Where maximum or minimum has equal operands, each gets half of the gradient.
Tensor pow(const Tensor& x, const Tensor& exponent);
Tensor pow(double base, const Tensor& exponent);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, double b);
Tensor operator-(const Tensor& a, double b);
Tensor operator*(const Tensor& a, double b);
Tensor operator/(const Tensor& a, double b);
Tensor operator+(double a, const Tensor& b);
Tensor operator-(double a, const Tensor& b);
Tensor operator*(double a, const Tensor& b);
Tensor operator/(double a, const Tensor& b);
Tensor operator-(const Tensor& a);
// a becomes the result, with its history: other handles to what it was keep that.
template <typename T>
Tensor& operator+=(Tensor& a, const T& b) {
  return a = a + b;
}
template <typename T>
Tensor& operator-=(Tensor& a, const T& b) {
  return a = a - b;
}
template <typename T>
Tensor& operator*=(Tensor& a, const T& b) {
  return a = a * b;
}
template <typename T>
Tensor& operator/=(Tensor& a, const T& b) {
  return a = a / b;
}
// Return tensors with x's shape, type and placement, without a history.
Tensor full_like(const Tensor& x, double value);
inline Tensor zeros_like(const Tensor& x) { return full_like(x, 0); }
inline Tensor ones_like(const Tensor& x) { return full_like(x, 1); }
// Each element dropped with probability p, the others scaled by 1 / (1 - p). The key comes from the device's random
// state: (seed, step, shard, operation).
Tensor dropout(const Tensor& x, double p);

// compare.cc. Masks are u8, 1 where the comparison holds, and have no history. Shapes broadcast as in NumPy. NaN
// differs from everything.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, double b);
Tensor ne(const Tensor& a, double b);
Tensor lt(const Tensor& a, double b);
Tensor le(const Tensor& a, double b);
Tensor gt(const Tensor& a, double b);
Tensor ge(const Tensor& a, double b);
// condition ? a : b, element by element; the condition is u8, a and b are of one type.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, double b);
Tensor where(const Tensor& condition, double a, const Tensor& b);
// `value` where the mask is not 0, x elsewhere.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

// matmul.cc
// [.., m, k] x [.., k, n] -> [.., m, n]: axes in front are batches of matrices, which broadcast as in NumPy. A vector
// is a row on the left, a column on the right.
Tensor matmul(const Tensor& a, const Tensor& b);
// [batch, m, k] x [batch, k, n].
Tensor bmm(const Tensor& a, const Tensor& b);
// x w^T + bias: x [.., in], w [out, in], bias [out] or undefined -> [.., out], in x's type. w and bias may be f32 where
// x is bf16 or f16.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {});

// shape.cc. Negative axes count from the end.
Tensor reshape(const Tensor& x, Shape shape);
// Axes start_dim to end_dim as one.
Tensor flatten(const Tensor& x, int start_dim = 0, int end_dim = -1);
// Axis `dim` as several, of which one extent may be -1: inferred.
Tensor unflatten(const Tensor& x, int dim, const Shape& sizes);
// Without these axes (none named: without any) where their extent is 1. The batch stays.
Tensor squeeze(const Tensor& x, const Dims& dims = {});
// A new axis of extent 1 before axis `dim`, or last.
Tensor unsqueeze(const Tensor& x, int dim);
// Axis i of the result is axis dims[i] of x.
Tensor permute(const Tensor& x, std::span<const int> dims);
Tensor permute(const Tensor& x, std::initializer_list<int> dims);
// Two axes exchanged.
Tensor transpose(const Tensor& x, int dim0 = 0, int dim1 = 1);
// Extents of 1 repeated, and axes added in front; -1: as it is.
Tensor expand(const Tensor& x, Shape shape);
Tensor cast(const Tensor& x, DType dtype);

// slice.cc. A negative place counts from the end. Parts of the batch are an error.
// Elements [start, start + length): the same memory where they lie together.
Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
// Number `index`, without the axis.
Tensor select(const Tensor& x, int dim, std::int64_t index);
// x[start:end:step] as in Python.
Tensor slice(const Tensor& x, int dim, std::optional<std::int64_t> start = {}, std::optional<std::int64_t> end = {},
             std::int64_t step = 1);
// Parts of these sizes, which add up to the extent; or of one size, but for the last one.
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim = 0);
std::vector<Tensor> split(const Tensor& x, std::int64_t split_size, int dim = 0);
// At most so many parts, of equal sizes but for the last one. On the batch's axis it takes apart what cat() put
// together.
std::vector<Tensor> chunk(const Tensor& x, int chunks, int dim = 0);
// select(x, dim, 0), select(x, dim, 1), ...; their gradients are put together at once.
std::vector<Tensor> unbind(const Tensor& x, int dim = 0);

// concatenate.cc. One after the other along an axis; on the batch's axis, batches with the same samples.
Tensor cat(std::span<const Tensor> tensors, int dim = 0);
Tensor cat(std::initializer_list<Tensor> tensors, int dim = 0);
// Along a new axis.
Tensor stack(std::span<const Tensor> tensors, int dim = 0);
Tensor stack(std::initializer_list<Tensor> tensors, int dim = 0);
// cat() along axis 0 for tensors anywhere: on `device` or that of the first; gradients go back to where the parts
// are.
Tensor concatenate(std::span<const Tensor> parts, Device device);
Tensor concatenate(std::span<const Tensor> parts);

// index.cc. Numbers are i64; one that is no place of the axis fails the task. The batch is on another axis. Gradients
// of what was chosen several times are added in the order of the numbers.
// y[.., i, ..] = x[.., index[.., i, ..], ..]. Along the other axes, shapes broadcast. PyTorch's gather() does the same
// for an index of x's shape; here gather() brings the shards of a batch together.
Tensor take_along_dim(const Tensor& x, const Tensor& index, int dim);
// Number index[i] of the axis becomes number i: index [n]. x or the index may be cut over the batch, not both.
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
// weight[input]: input any shape, weight [numbers, features] -> [input's shape, features]. Row padding_idx of the
// weight gets no gradient.
Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<std::int64_t> padding_idx = {});
// x with src[.., i, ..] added at [.., index[.., i, ..], ..]. Along the other axes, index and src broadcast.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
// 1 at each number, 0 elsewhere: i64 [input's shape, num_classes].
Tensor one_hot(const Tensor& input, std::int64_t num_classes);

// reduce.cc. A sum, mean, variance or largest element over the samples of a batch is one of all shards, of all
// processes. No axes named: all. With keepdim, reduced axes stay with extent 1. bf16 and f16 are added in f32 or f64.
Tensor sum(const Tensor& x);   // [1]
Tensor mean(const Tensor& x);  // [1]
Tensor sum(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor sum_to(const Tensor& x, const Shape& shape);
struct VarOptions {
  // The sum of squares is divided by the number of elements less this; 0 there is infinite or NaN.
  double correction = 1;
  bool keepdim = false;
};
Tensor var(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
Tensor std(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
// The largest or smallest elements; equal ones share the gradient. NaN counts as both.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
// With the place of the first of them, which alone gets the gradient. The batch is on another axis.
struct MaxResult {
  Tensor values, indices;
};
MaxResult max(const Tensor& x, int dim, bool keepdim = false);
MaxResult min(const Tensor& x, int dim, bool keepdim = false);
// i64, without a history. Without `dim`: the place among all elements.
Tensor argmax(const Tensor& x, std::optional<int> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<int> dim = {}, bool keepdim = false);
// log(sum(exp(x))), without overflow.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);
// Sums so far, along an axis that is not the batch's.
Tensor cumsum(const Tensor& x, int dim);

// triangle.cc. Zeros below or above the diagonal of the last two axes, or one `diagonal` places further to the right.
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);

// conv.cc, pool.cc, interpolate.cc. Images are [N, C, H, W], sequences [N, C, L].
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dOptions& options = {});
struct Conv1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
};
// [N, C, L], w [O, C / groups, K], bias [O] -> [N, O, L']
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv1dOptions& options = {});
struct ConvTranspose2dOptions {
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  // Rows and columns more at the end: below the stride.
  std::array<std::int64_t, 2> output_padding{0, 0};
  std::int64_t groups = 1;
  std::array<std::int64_t, 2> dilation{1, 1};
};
// The transposed convolution, which is the gradient of conv2d's x: w [C, O / groups, KH, KW], bias [O] ->
// [N, O, H', W'],
// H' = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1.
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options = {});
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options = {});
Tensor global_avg_pool2d(const Tensor& x);
// Means over windows that cover the image: output i of n has the rows from floor(i H / n) to ceil((i + 1) H / n). An
// extent of -1 stays as it is.
Tensor adaptive_avg_pool2d(const Tensor& x, std::array<std::int64_t, 2> output_size);
enum class Interpolation : std::uint8_t { nearest, bilinear };
struct InterpolateOptions {
  // One of the two: extents, or a factor for both of them.
  std::optional<std::array<std::int64_t, 2>> size = {};
  std::optional<double> scale_factor = {};
  Interpolation mode = Interpolation::nearest;
  // For bilinear: corner pixels keep their values; otherwise pixels are areas, and those at the edge reach beyond it.
  bool align_corners = false;
};
// An image of another size.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

// norm.cc
struct BatchNormOptions {
  double eps = 1e-5;
  // Fused: y = max(0, y).
  bool relu = false;
};
// With each shard's own statistics. `stats` (null: not wanted) gets what was used, one for each shard of this process.
// residual (undefined: none) is added before the ReLU.
Tensor batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& residual,
                        const BatchNormOptions& options, std::vector<ops::BatchStats>* stats);
// With the statistics of all shards, merged in their tree; the gradients flow back through the shared statistics. Every
// process has to call it.
Tensor batch_norm_synchronized(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& residual,
                               const BatchNormOptions& options, ops::BatchStats* stats);
// The statistics of all shards. parts[s] is shard s's, undefined for others'; `values` is how many each sample adds to a
// channel's. Every process has to call it.
std::vector<ops::BatchStats> gather_stats(const Placement& at, std::span<const ops::BatchStats> parts, std::int64_t values);
// With running statistics.
Tensor batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                       const Tensor& running_var, const Tensor& residual, const BatchNormOptions& options);

// normalize.cc. Each sample by itself. weight and bias may be undefined; bf16 and f16 are normalized in f32.
// (x - mean) / sqrt(var + eps) * weight + bias over the last axes, which have normalized_shape.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
// x / sqrt(mean(x^2) + eps) * weight over the same axes.
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {}, double eps = 0x1p-23);
// As layer norm over each group of channels: x [N, C, ..], weight and bias [C].
Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

// softmax.cc
// Along an axis that is not the batch's.
Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);

}  // namespace lockstep
