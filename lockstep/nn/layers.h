// Layers: linear, embedding, convolution, residual block, and layers without parameters: activations, shapes, pooling,
// resizing, dropout. normalization.h and sequence.h have the others.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

class BatchNorm2d;  // nn/normalization.h

struct LinearOptions {
  std::int64_t in_features = 0;  // 0: inferred at the first forward pass
  std::int64_t out_features = 0;
  bool bias = true;
};

// y = x weight^T + bias: [.., in] -> [.., out]. Throws if x's last extent is not in_features.
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

// Convolutions. Constructors throw unless out_channels, kernel_size, and groups are at least 1 and groups divide both
// numbers of channels. forward() throws if the input has the wrong number of axes or channels, or if the kernel does
// not fit the padded input.

struct Conv1dLayerOptions {
  std::int64_t in_channels = 0;  // 0: inferred at the first forward pass
  std::int64_t out_channels = 0;
  std::int64_t kernel_size = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

// [N, C, L] -> [N, O, L'], L' = floor((L + 2 padding - dilation (kernel - 1) - 1) / stride) + 1.
class Conv1d : public Module {
 public:
  using Options = Conv1dLayerOptions;
  explicit Conv1d(Conv1dLayerOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [O, C / groups, kernel]
  Parameter bias;    // [O]

 protected:
  std::string extra_repr() const override;

 private:
  Conv1dLayerOptions options_;
};

// Options of Conv2d. Two numbers are for rows and columns, one is for both.
struct ConvLayerOptions {
  std::int64_t in_channels = 0;  // 0: inferred at the first forward pass
  std::int64_t out_channels = 0;
  HeightWidth kernel_size = 1;
  HeightWidth stride = 1;
  HeightWidth padding = 0;
  HeightWidth dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

// The same for images: [N, C, H, W] -> [N, O, H', W'].
//
//   Conv2d conv({.out_channels = 64, .kernel_size = 3, .padding = 1});
//   Conv2d wide({.out_channels = 64, .kernel_size = {1, 7}, .padding = {0, 3}});
class Conv2d : public Module {
 public:
  using Options = ConvLayerOptions;
  explicit Conv2d(ConvLayerOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [O, C / groups, KH, KW]
  Parameter bias;    // [O]

 protected:
  std::string extra_repr() const override;

 private:
  ConvLayerOptions options_;
};

struct ConvTranspose2dLayerOptions {
  std::int64_t in_channels = 0;  // 0: inferred at the first forward pass
  std::int64_t out_channels = 0;
  HeightWidth kernel_size = 1;
  HeightWidth stride = 1;
  HeightWidth padding = 0;
  HeightWidth output_padding = 0;  // below the stride or the dilation
  std::int64_t groups = 1;
  bool bias = true;
  HeightWidth dilation = 1;
};

// [N, C, H, W] -> [N, O, H', W'], H' = (H - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1. A
// stride of 2 doubles the size of images.
class ConvTranspose2d : public Module {
 public:
  using Options = ConvTranspose2dLayerOptions;
  explicit ConvTranspose2d(ConvTranspose2dLayerOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [C, O / groups, KH, KW]
  Parameter bias;    // [O]

 protected:
  std::string extra_repr() const override;

 private:
  ConvTranspose2dLayerOptions options_;
};

// Returns x. Use it in place of an omitted layer.
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

// Splits axis `dim` into several. One extent may be -1, which is inferred. Throws if the product is not the axis's
// extent.
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

// The largest element of each window: [N, C, H, W] -> [N, C, H', W'], H' = floor((H + 2 padding - kernel) / stride) +
// 1. Padding is never the largest. Limits and errors: see Pool2dOptions in backend/window.h.
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

// [N, C, H, W] -> [N, C, output_size]: means over windows that cover the image. An output size of -1 keeps the input's.
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

struct ResidualOptions {
  std::int64_t channels = 0;
  std::int64_t stride = 1;
  // A 1x1 convolution on the shortcut. Required if the stride is above 1 or the number of channels changes.
  bool project = false;
};

// The residual block of He et al. 2015 as in the tutorials: relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), with
// 3x3 convolutions. With `project`, the shortcut is conv3, a 1x1 convolution.
//
//   net.append(Residual({.channels = 128, .stride = 2, .project = true}));
class Residual : public Module {
 public:
  using Options = ResidualOptions;
  explicit Residual(ResidualOptions options);
  Tensor forward(const Tensor& x) override;

 private:
  Conv2d &conv1_, &conv2_;
  Conv2d* conv3_;  // null without `project`
  BatchNorm2d &bn1_, &bn2_;
};

}  // namespace lockstep
