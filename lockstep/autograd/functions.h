// The differentiable operations: what models are written with. Each is one operation of ops/ forward and one or two
// backward. Shapes and errors are those of ops/.
#pragma once

#include <optional>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/pool.h"
#include "lockstep/ops/norm.h"
#include "lockstep/autograd/tensor.h"

namespace lockstep {

// elementwise.cc
Tensor negate(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor gelu(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
// Shapes broadcast as in NumPy.
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

// matmul.cc
Tensor matmul(const Tensor& a, const Tensor& b);
// x w^T + bias: x [n, in], w [out, in], bias [out] or undefined -> [n, out], in x's type. w and bias may be f32 where x
// is bf16 or f16.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {});

// shape.cc
Tensor reshape(const Tensor& x, Shape shape);
// All axes from `first` on as one.
Tensor flatten(const Tensor& x, int first = 1);
// Two axes exchanged.
Tensor transpose(const Tensor& x, int a = 0, int b = 1);
Tensor cast(const Tensor& x, DType dtype);
// One below the other (axis 0), on `device` or that of the first; gradients go back to where the parts are.
Tensor concatenate(std::span<const Tensor> parts, Device device);
Tensor concatenate(std::span<const Tensor> parts);

// reduce.cc. A sum over the samples of a batch is one of all shards, of all processes.
Tensor sum(const Tensor& x);   // [1]
Tensor mean(const Tensor& x);  // [1]
Tensor sum_to(const Tensor& x, const Shape& shape);
// The index of the largest element of each row: [n, k] -> i64 [n], without a history.
Tensor argmax(const Tensor& x);

// conv.cc, pool.cc
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dOptions& options = {});
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options = {});
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options = {});
Tensor global_avg_pool2d(const Tensor& x);

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

// softmax.cc
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
struct CrossEntropyOptions {
  double label_smoothing = 0;
};
// Means over the samples of all shards: [1]. Labels i64 [n], placed as the logits.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options = {});
Tensor mse_loss(const Tensor& x, const Tensor& target);

}  // namespace lockstep
