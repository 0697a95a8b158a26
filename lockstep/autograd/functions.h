// The differentiable operations: what models are written with. Each is one operation of ops/ forward and one or two
// backward. Shapes and errors are those of ops/.
#pragma once

#include <optional>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/pool.h"
#include "lockstep/autograd/shard_exchange.h"
#include "lockstep/ops/norm.h"
#include "lockstep/tensor/tensor.h"

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
// One below the other, on `device` or that of the first; gradients go back to where the parts are.
Tensor concatenate(std::span<const Tensor> parts, Device device);
Tensor concatenate(std::span<const Tensor> parts);

// reduce.cc
Tensor sum(const Tensor& x);   // [1]
Tensor mean(const Tensor& x);  // [1]
Tensor sum_to(const Tensor& x, const Shape& shape);

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
// With statistics of the batch: those of x itself, or (synchronized) of all shards. `stats` gets what was used.
// residual (undefined: none) is added before the ReLU.
Tensor batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& residual,
                        const BatchNormOptions& options, ops::BatchStats* stats);
// All shards at once, with the statistics of all of them, merged in the shards' tree; the gradients flow back through
// the shared statistics. gammas[i] is the replica on shards[i]'s device, and so on. `stats` gets one for each shard.
// `exchange` gives the shards of other processes their part, forward and backward; null: there are none.
std::vector<Tensor> batch_norm_synchronized(std::span<const Tensor> shards, std::span<const Tensor> gammas,
                                            std::span<const Tensor> betas, std::span<const Tensor> residuals,
                                            const BatchNormOptions& options, std::vector<ops::BatchStats>* stats,
                                            std::shared_ptr<ShardExchange> exchange = nullptr);
// With running statistics.
Tensor batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                       const Tensor& running_var, const Tensor& residual, const BatchNormOptions& options);

// softmax.cc
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
struct CrossEntropyOptions {
  double label_smoothing = 0;
};
// Means over the samples: [1]. Labels i64 [n], on the device of the logits.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options = {});
Tensor mse_loss(const Tensor& x, const Tensor& target);

}  // namespace lockstep
