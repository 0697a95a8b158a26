// Dense and embedding layers, and layers without parameters: activations, pooling, shapes, dropout.
#pragma once

#include <optional>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct LinearOptions {
  std::int64_t in_features = 0;  // 0: inferred at the first forward pass
  std::int64_t out_features = 0;
  bool bias = true;
};

// y = x weight^T + bias: [.., in] -> [.., out]. Another last extent than in_features is an error.
class Linear : public Module {
 public:
  using Options = LinearOptions;
  explicit Linear(LinearOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [out, in]
  Parameter bias;    // [out]

 protected:
  std::string extra_repr() const override;

 private:
  LinearOptions options_;
};

struct EmbeddingOptions {
  std::int64_t num_embeddings = 0;
  std::int64_t embedding_dim = 0;
  // This row starts as zeros and gets no gradient.
  std::optional<std::int64_t> padding_idx = {};
};

// Looks up rows of the weight by number: i64 of any shape -> [input's shape, embedding_dim]. A number outside
// [0, num_embeddings) fails the task, so the error appears where the result is read.
class Embedding : public Module {
 public:
  using Options = EmbeddingOptions;
  explicit Embedding(EmbeddingOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [num_embeddings, embedding_dim]

 protected:
  std::string extra_repr() const override;

 private:
  EmbeddingOptions options_;
};

// Returns x. Use it in place of a layer that is omitted.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope_(negative_slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, negative_slope_); }

 protected:
  std::string extra_repr() const override;

 private:
  double negative_slope_;
};

class ELU : public Module {
 public:
  explicit ELU(double alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return elu(x, alpha_); }

 protected:
  std::string extra_repr() const override;

 private:
  double alpha_;
};

class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return silu(x); }
};

class Softplus : public Module {
 public:
  explicit Softplus(double beta = 1, double threshold = 20) : beta_(beta), threshold_(threshold) {}
  Tensor forward(const Tensor& x) override { return softplus(x, beta_, threshold_); }

 protected:
  std::string extra_repr() const override;

 private:
  double beta_, threshold_;
};

class GELU : public Module {
 public:
  using Options = GeluOptions;
  explicit GELU(GeluOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x) override { return gelu(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  GeluOptions options_;
};

class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};

class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanh(x); }
};

class Softmax : public Module {
 public:
  explicit Softmax(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return softmax(x, dim_); }

 protected:
  std::string extra_repr() const override;

 private:
  int dim_;
};

class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return log_softmax(x, dim_); }

 protected:
  std::string extra_repr() const override;

 private:
  int dim_;
};

// Merges axes start_dim to end_dim into one; by default all but the first.
class Flatten : public Module {
 public:
  explicit Flatten(int start_dim = 1, int end_dim = -1) : start_dim_(start_dim), end_dim_(end_dim) {}
  Tensor forward(const Tensor& x) override { return flatten(x, start_dim_, end_dim_); }

 protected:
  std::string extra_repr() const override;

 private:
  int start_dim_, end_dim_;
};

// Splits axis `dim` into several. One extent may be -1, which is inferred. The product must be the axis's extent.
class Unflatten : public Module {
 public:
  Unflatten(int dim, Shape unflattened_size) : dim_(dim), unflattened_size_(unflattened_size) {}
  Tensor forward(const Tensor& x) override { return unflatten(x, dim_, unflattened_size_); }

 protected:
  std::string extra_repr() const override;

 private:
  int dim_;
  Shape unflattened_size_;
};

// The largest pixel of each window: [N, C, H, W] -> [N, C, H', W'], H' = floor((H + 2 padding - kernel) / stride) + 1.
// Padding never counts. Limits and errors: see Pool2dOptions in backend/window.h.
class MaxPool2d : public Module {
 public:
  using Options = Pool2dOptions;
  explicit MaxPool2d(Pool2dOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  Pool2dOptions options_;
};

// The mean of each window, with the shapes and errors of MaxPool2d.
class AvgPool2d : public Module {
 public:
  using Options = Pool2dOptions;
  explicit AvgPool2d(Pool2dOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  Pool2dOptions options_;
};

// The mean of each image: [N, C, H, W] -> [N, C, 1, 1]. An image without pixels is an error.
class GlobalAvgPool2d : public Module {
 public:
  Tensor forward(const Tensor& x) override { return global_avg_pool2d(x); }
};

// [N, C, H, W] -> [N, C, output_size]: means over windows that cover the image. An extent of -1 stays unchanged.
class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(std::int64_t output_size) : output_size_{output_size, output_size} {}
  explicit AdaptiveAvgPool2d(std::array<std::int64_t, 2> output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, output_size_); }

 protected:
  std::string extra_repr() const override;

 private:
  std::array<std::int64_t, 2> output_size_;
};

// Resizes images [N, C, H, W]: see interpolate().
class Upsample : public Module {
 public:
  using Options = InterpolateOptions;
  explicit Upsample(InterpolateOptions options) : options_(options) {}
  Tensor forward(const Tensor& x) override { return interpolate(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  InterpolateOptions options_;
};

// In training, drops each element with probability p and multiplies the others by 1 / (1 - p) (Srivastava et al. 2014).
// Does nothing in evaluation. Throws unless 0 <= p < 1.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) {
    check(p >= 0 && p < 1, "dropout: probability {}, expected at least 0 and below 1", p);
  }
  Tensor forward(const Tensor& x) override { return training() && p_ > 0 ? dropout(x, p_) : x; }

 protected:
  std::string extra_repr() const override;

 private:
  double p_;
};

}  // namespace lockstep
