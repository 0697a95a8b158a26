// The differentiable operations that models use. Names, arguments, and defaults follow PyTorch;
// docs/decisions/33-few-kernels-carry-the-operations.md lists the exceptions.
//
//   Tensor y = flatten(relu(conv2d(x, w, bias, {.padding = {1, 1}})), 1);
//
// All operands of a call are on one device, or cut in the same way over one batch; parameters combine with either. An
// operation that needs all samples in one place throws along the batch axis; its message suggests gather() or
// per_shard().
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/autograd/losses.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/backend/window.h"

namespace LOCKSTEP_API lockstep {

// One or several axes. Negative numbers count from the end. An empty list means all axes.
class Dims {
 public:
  Dims() = default;
  Dims(int dim) : dims_{dim} {}                            // NOLINT(google-explicit-constructor)
  Dims(std::initializer_list<int> dims) : dims_(dims) {}   // NOLINT(google-explicit-constructor)
  Dims(std::vector<int> dims) : dims_(std::move(dims)) {}  // NOLINT(google-explicit-constructor)

  bool empty() const { return dims_.empty(); }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }

 private:
  std::vector<int> dims_;
};

// Elementwise functions.

Tensor negate(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
// log(1 + x), also where x is near 0.
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor abs(const Tensor& x);
// -1, 0, or 1; NaN stays NaN.
Tensor sign(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor elu(const Tensor& x, double alpha = 1);
enum class GeluApproximation : std::uint8_t { none, tanh };
struct GeluOptions {
  GeluApproximation approximate = GeluApproximation::none;
};
// x Phi(x), or approximately x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, as GPT-2 computes it. It is an object,
// not a function with a default argument, so that it can be passed as a function of one tensor: {.activation = gelu}.
struct Gelu {
  Tensor operator()(const Tensor& x, const GeluOptions& options = {}) const;
};
inline constexpr Gelu gelu{};
Tensor silu(const Tensor& x);
// log(1 + exp(beta x)) / beta, or x if beta x is above the threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
// Limits x to [min, max]. Either bound may be omitted. If min exceeds max, the result is max.
Tensor clamp(const Tensor& x, std::optional<double> min, std::optional<double> max = {});
Tensor pow(const Tensor& x, double exponent);
// Shapes broadcast as in NumPy. Equal operands of maximum or minimum get half of the gradient each.
Tensor pow(const Tensor& x, const Tensor& exponent);
Tensor pow(double base, const Tensor& exponent);
// i64 has maximum, minimum, +, -, and *, also with whole numbers: labels + 1. Other functions need cast().
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
// Assigns the result, with its history, to a. Other handles keep the old tensor.
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
// Return tensors with x's shape, type, and placement, without a history.
Tensor full_like(const Tensor& x, double value);
inline Tensor zeros_like(const Tensor& x) { return full_like(x, 0); }
inline Tensor ones_like(const Tensor& x) { return full_like(x, 1); }
// Drops each element with probability p and scales the others by 1 / (1 - p). The key comes from the device's random
// state: (seed, step, shard, operation).
Tensor dropout(const Tensor& x, double p);

// Comparisons and masks. A mask is u8, 1 where the comparison holds, without a history. Shapes broadcast as in NumPy.
// NaN differs from everything.

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
// The arguments are masks, or tensors of any types, in which every number but 0 holds. The result is a mask.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
// condition ? a : b, element by element. The condition is u8; a and b have one type.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, double b);
Tensor where(const Tensor& condition, double a, const Tensor& b);
// `value` where the mask is not 0, x elsewhere.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

// Matrix products.

// [.., m, k] x [.., k, n] -> [.., m, n]. Leading axes broadcast as in NumPy. A vector acts as a row on the left and as
// a column on the right.
Tensor matmul(const Tensor& a, const Tensor& b);
// [batch, m, k] x [batch, k, n].
Tensor bmm(const Tensor& a, const Tensor& b);
// x w^T + bias: x [.., in], w [out, in], bias [out] or undefined -> [.., out], in x's type. w and bias may be f32 if x
// is bf16 or f16.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {});

// Shapes. Negative axes count from the end.

Tensor reshape(const Tensor& x, Shape shape);
// Merges axes start_dim to end_dim into one.
Tensor flatten(const Tensor& x, int start_dim = 0, int end_dim = -1);
// Splits axis `dim` into several. One extent may be -1, which is inferred.
Tensor unflatten(const Tensor& x, int dim, const Shape& sizes);
// Removes axes of extent 1: the given ones, or all if none is given. The batch axis stays.
Tensor squeeze(const Tensor& x, const Dims& dims = {});
// Inserts an axis of extent 1 before axis `dim`, or last.
Tensor unsqueeze(const Tensor& x, int dim);
// Axis i of the result is axis dims[i] of x.
Tensor permute(const Tensor& x, std::span<const int> dims);
Tensor permute(const Tensor& x, std::initializer_list<int> dims);
// Swaps two axes.
Tensor transpose(const Tensor& x, int dim0 = 0, int dim1 = 1);
// Broadcasts axes of extent 1 to `shape` and adds leading axes. -1 keeps an extent.
Tensor expand(const Tensor& x, Shape shape);
Tensor cast(const Tensor& x, DType dtype);

// Slices. Negative positions count from the end. Slicing the batch axis is an error.

// Elements [start, start + length) of the axis. The result shares x's memory if they are contiguous.
Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
// Element `index` of the axis; removes the axis.
Tensor select(const Tensor& x, int dim, std::int64_t index);
// x[start:end:step] as in Python.
Tensor slice(const Tensor& x, int dim, std::optional<std::int64_t> start = {}, std::optional<std::int64_t> end = {},
             std::int64_t step = 1);
// Splits the axis into parts of the given sizes, which must add up to its extent, or into parts of one size (the last
// may be smaller).
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim = 0);
std::vector<Tensor> split(const Tensor& x, std::int64_t split_size, int dim = 0);
// Splits the axis into at most `chunks` parts of equal size (the last may be smaller). On the batch axis it reverses
// cat().
std::vector<Tensor> chunk(const Tensor& x, int chunks, int dim = 0);
// select(x, dim, 0), select(x, dim, 1), ...; their gradients are joined in one operation.
std::vector<Tensor> unbind(const Tensor& x, int dim = 0);

// Adds elements of the given value around x. `widths` are those before and after the last axis, then those of the axis
// before it, and so on: {left, right, top, bottom}. A negative width removes elements. The batch axis stays as it is.
Tensor pad(const Tensor& x, const std::vector<std::int64_t>& widths, double value = 0);

// Concatenation.

// Joins tensors along an axis. On the batch axis, the batches must have the same samples.
Tensor cat(std::span<const Tensor> tensors, int dim = 0);
Tensor cat(std::initializer_list<Tensor> tensors, int dim = 0);
// Joins tensors along a new axis.
Tensor stack(std::span<const Tensor> tensors, int dim = 0);
Tensor stack(std::initializer_list<Tensor> tensors, int dim = 0);
// cat() along axis 0 for tensors on any devices. The result is on `device` or, without it, on the first tensor's
// device. Gradients return to the parts' devices.
Tensor concatenate(std::span<const Tensor> parts, Device device);
Tensor concatenate(std::span<const Tensor> parts);

// Indexing. Indices are i64; one outside the axis fails the task. The batch must be on another axis. Gradients of
// elements chosen several times are added in the order of the indices.

// y[.., i, ..] = x[.., index[.., i, ..], ..]. Along the other axes, shapes broadcast. PyTorch's gather() does the same
// for an index of x's shape; Lockstep's gather() joins the shards of a batch.
Tensor take_along_dim(const Tensor& x, const Tensor& index, int dim);
// y[i] = x[index[i]] along the axis; index has shape [n]. Either x or the index may be cut over the batch, not both.
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
// weight[input]: input any shape, weight [numbers, features] -> [input's shape, features]. Row padding_idx of the
// weight gets no gradient.
Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<std::int64_t> padding_idx = {});
// Returns x with src[.., i, ..] added at [.., index[.., i, ..], ..] for every position of the index. Nothing
// broadcasts. The index may be shorter than src along any axis, and shorter than x along any axis but `dim`: elements
// beyond it are ignored in src and unchanged in x.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
// 1 at each class number, 0 elsewhere: i64 [input's shape, num_classes].
Tensor one_hot(const Tensor& input, std::int64_t num_classes);

// Reductions. A sum, mean, variance, or largest element over the samples of a batch covers all shards of all processes.
// Without `dims`, all axes are reduced. With keepdim, reduced axes keep extent 1. bf16 and f16 are added in f32 or f64.
// Sums of masks (u8) count in i64; their largest and smallest elements are u8. i64 is an error: cast it to f64, which
// holds integers up to 2^53 exactly.

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
// The gradient where all elements are equal is 0.
Tensor std(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
// The largest or smallest elements. Equal ones share the gradient. NaN counts as both largest and smallest.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
// Whether any element, or every element, holds, as a mask. None is any of no elements, and each is all of them.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
// (sum |x|^p)^(1 / p), or the largest |x| for an infinite p. p is at least 1. The gradient of the norm 0 is 0.
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
// The product of all elements, which must not be cut, or along an axis other than the batch axis. It is 1 for no
// elements. Factors of 0 have the right gradient.
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
// Cumulative sums along an axis other than the batch axis.
Tensor cumsum(const Tensor& x, int dim);

// The elements along `dim`, which is not the batch axis, in ascending or descending order, and their indices. Equal
// elements keep their order. NaN counts as the largest. CPUs take time in k log k for k elements, GPUs in the square
// of k.
using SortResult = MaxResult;
SortResult sort(const Tensor& x, int dim = -1, bool descending = false);
// Returns i64, without a history.
Tensor argsort(const Tensor& x, int dim = -1, bool descending = false);
// The first k of them: the largest in descending order, or the smallest in ascending order.
SortResult topk(const Tensor& x, std::int64_t k, int dim = -1, bool largest = true);

// Triangles: set elements below (triu) or above (tril) the diagonal of the last two axes to zero. A positive `diagonal`
// moves the diagonal up and to the right.

Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);

// Convolutions, pooling, and resizing. Images are [N, C, H, W], sequences [N, C, L].

// w [O, C / groups, KH, KW], bias [O] -> [N, O, H', W'], where
// H' = floor((H + 2 padding - dilation (KH - 1) - 1) / stride) + 1. Throws if the channels differ or the kernel does
// not fit the padded image.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dOptions& options = {});
struct Conv1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
};
// The same for sequences: [N, C, L], w [O, C / groups, K], bias [O] -> [N, O, L'].
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv1dOptions& options = {});
struct ConvTranspose2dOptions {
  HeightWidth stride = 1;
  HeightWidth padding = 0;
  // Additional rows and columns at the end; less than the stride or the dilation.
  HeightWidth output_padding = 0;
  std::int64_t groups = 1;
  HeightWidth dilation = 1;
};
// The transposed convolution, which is the gradient of conv2d's x: w [C, O / groups, KH, KW], bias [O] ->
// [N, O, H', W'], H' = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1.
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});
// The largest element, or the mean, of each window: [N, C, H, W] -> [N, C, H', W'], H' = floor((H + 2 padding - kernel)
// / stride) + 1, with ceil_mode rounded up.
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options = {});
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options = {});
// The norm of each window, (sum of x^norm_type)^(1 / norm_type), as in PyTorch: norm_type above 0, no padding, the sum of
// a window in part outside the image (ceil_mode) is raised to its whole size. Where it is 0, the gradient is 0.
Tensor lp_pool2d(const Tensor& x, double norm_type, const Pool2dOptions& options = {});
// The same for sequences: [N, C, L] -> [N, C, L'].
Tensor max_pool1d(const Tensor& x, const Pool1dOptions& options = {});
Tensor avg_pool1d(const Tensor& x, const Pool1dOptions& options = {});
// [N, C, H, W] -> [N, C, 1, 1]
Tensor global_avg_pool2d(const Tensor& x);
// Means over windows that cover the image: [N, C, H, W] -> [N, C, output_size]. Output row i of n averages input rows
// [floor(i H / n), ceil((i + 1) H / n)). An output size of -1 keeps the input's.
Tensor adaptive_avg_pool2d(const Tensor& x, std::array<std::int64_t, 2> output_size);
enum class Interpolation : std::uint8_t { nearest, bilinear };
struct InterpolateOptions {
  // Set one of the two: extents, or a factor for both axes.
  std::optional<std::array<std::int64_t, 2>> size = {};
  std::optional<double> scale_factor = {};
  Interpolation mode = Interpolation::nearest;
  // For bilinear: corner pixels keep their values. Otherwise pixels are areas, and edge pixels extend beyond the edge.
  bool align_corners = false;
};
// Resizes images: [N, C, H, W] -> [N, C, H', W']. Throws unless exactly one of `size` and `scale_factor` is set.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

// Normalization of each sample separately. weight and bias may be undefined. bf16 and f16 are normalized in f32.

// (x - mean) / sqrt(var + eps) * weight + bias over the last axes, whose extents are normalized_shape.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
// x / sqrt(mean(x^2) + eps) * weight over the same axes. eps defaults to 2^-52 for f64 and 2^-23 for the other types.
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});
// Like layer norm, over each group of channels: x [N, C, ..], weight and bias [C].
Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

// Softmax along an axis other than the batch axis.

Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);

// Attention (Vaswani et al. 2017).

struct AttentionOptions {
  // Broadcasts to [.., L, S]. u8: 1 lets a query see a key, 0 hides the key. Floating: added to the scores.
  Tensor attn_mask = {};
  // The probability of dropping a weight. Applies in every call, so pass 0 in evaluation.
  double dropout_p = 0;
  // Query i sees only keys 0 to i. With a mask, a key must pass both.
  bool is_causal = false;
  // Multiplies the scores; 1 / sqrt(E) if not given.
  std::optional<double> scale = {};
};

// softmax(query key^T scale) after masks and dropout: query [.., L, E], key [.., S, E] -> [.., L, S]. A query that sees
// no key has NaN weights.
Tensor attention_weights(const Tensor& query, const Tensor& key, const AttentionOptions& options = {});

// attention_weights() times value [.., S, V] -> [.., L, V]. The leading axes broadcast; the batch is on one of them.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace lockstep
