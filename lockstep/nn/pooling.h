// Pooling of images and sequences.
//
//   net.append(MaxPool2d(2));        // windows of 2 x 2 that do not overlap
//   net.append(MaxPool2d(3, 2, 1));  // kernel size, stride, padding; or {.kernel_size = 3, ...}, or 3, {.stride = 2}
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Options of a window after its kernel size. They must be named, so that MaxPool2d(2, {2, 1}) means a stride of {2, 1}.
template <typename Extent>
struct MoreWindowOptions {
  class Named {
   public:
    Named() {}
  };
  Named named = {};
  std::optional<Extent> stride = {};
  Extent padding = 0;
  bool count_include_pad = true;
  bool ceil_mode = false;
  Extent dilation = 1;
};

// The base of layers with windows: takes Options, or kernel size, stride, and padding in PyTorch's order.
template <typename WindowOptions, typename Extent>
class PoolingLayer : public Module {
 public:
  using Options = WindowOptions;
  explicit PoolingLayer(WindowOptions options = {}) : options_(options) {}
  template <std::convertible_to<Extent> K>
  explicit PoolingLayer(const K& kernel_size) : PoolingLayer(Options{.kernel_size = kernel_size}) {}
  PoolingLayer(Extent kernel_size, Extent stride, Extent padding = 0)
      : PoolingLayer(Options{.kernel_size = kernel_size, .stride = stride, .padding = padding}) {}
  PoolingLayer(Extent kernel_size, const MoreWindowOptions<Extent>& more)
      : PoolingLayer(Options{.kernel_size = kernel_size,
                             .stride = more.stride.value_or(kernel_size),
                             .padding = more.padding,
                             .count_include_pad = more.count_include_pad,
                             .ceil_mode = more.ceil_mode,
                             .dilation = more.dilation}) {}

 protected:
  WindowOptions options_;
};
using PoolingLayer1d = PoolingLayer<Pool1dOptions, std::int64_t>;
using PoolingLayer2d = PoolingLayer<Pool2dOptions, HeightWidth>;
using PoolingLayer3d = PoolingLayer<Pool3dOptions, DepthHeightWidth>;

// The largest element of each window: [N, C, H, W] -> [N, C, H', W'], H' = floor((H + 2 padding - kernel) / stride) +
// 1. Padding is never the largest. Limits and errors: see Pool2dOptions in backend/window.h.
class MaxPool2d : public PoolingLayer2d {
 public:
  using PoolingLayer2d::PoolingLayer;
  Tensor forward(const Tensor& x) override { return max_pool2d(x, options_); }

 protected:
  std::string extra_repr() const override;
};

// The mean of each window, with the shapes and errors of MaxPool2d.
class AvgPool2d : public PoolingLayer2d {
 public:
  using PoolingLayer2d::PoolingLayer;
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, options_); }

 protected:
  std::string extra_repr() const override;
};

// The norm of each window: see lp_pool2d().
class LPPool2d : public Module {
 public:
  LPPool2d(double norm_type, Pool2dOptions options) : norm_type_(norm_type), options_(options) {}
  Tensor forward(const Tensor& x) override { return lp_pool2d(x, norm_type_, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  double norm_type_;
  Pool2dOptions options_;
};

// The largest element, or the mean, of each window: [N, C, L] -> [N, C, L'], L' = floor((L + 2 padding - kernel) /
// stride) + 1. Errors and limits: see Pool1dOptions in backend/window.h.
class MaxPool1d : public PoolingLayer1d {
 public:
  using PoolingLayer1d::PoolingLayer;
  Tensor forward(const Tensor& x) override { return max_pool1d(x, options_); }

 protected:
  std::string extra_repr() const override;
};

class AvgPool1d : public PoolingLayer1d {
 public:
  using PoolingLayer1d::PoolingLayer;
  Tensor forward(const Tensor& x) override { return avg_pool1d(x, options_); }

 protected:
  std::string extra_repr() const override;
};

// The mean of each image: [N, C, H, W] -> [N, C, 1, 1]. An image without pixels is an error.
class GlobalAvgPool2d : public Module {
 public:
  Tensor forward(const Tensor& x) override { return global_avg_pool2d(x); }
};

// The bases of layers whose windows cover the whole input: they keep the output size.
class AdaptivePoolingLayer1d : public Module {
 public:
  explicit AdaptivePoolingLayer1d(std::int64_t output_size) : output_size_(output_size) {}

 protected:
  std::string extra_repr() const override;

  std::int64_t output_size_;
};
class AdaptivePoolingLayer2d : public Module {
 public:
  explicit AdaptivePoolingLayer2d(std::int64_t output_size) : output_size_{output_size, output_size} {}
  explicit AdaptivePoolingLayer2d(std::array<std::int64_t, 2> output_size) : output_size_(output_size) {}

 protected:
  std::string extra_repr() const override;

  std::array<std::int64_t, 2> output_size_;
};
class AdaptivePoolingLayer3d : public Module {
 public:
  explicit AdaptivePoolingLayer3d(std::int64_t output_size) : output_size_{output_size, output_size, output_size} {}
  explicit AdaptivePoolingLayer3d(std::array<std::int64_t, 3> output_size) : output_size_(output_size) {}

 protected:
  std::string extra_repr() const override;

  std::array<std::int64_t, 3> output_size_;
};

// [N, C, H, W] -> [N, C, output_size]: means over windows that cover the image. An output size of -1 keeps the input's.
class AdaptiveAvgPool2d : public AdaptivePoolingLayer2d {
 public:
  using AdaptivePoolingLayer2d::AdaptivePoolingLayer2d;
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, output_size_); }
};

// The largest elements of the windows of AdaptiveAvgPool2d.
class AdaptiveMaxPool2d : public AdaptivePoolingLayer2d {
 public:
  using AdaptivePoolingLayer2d::AdaptivePoolingLayer2d;
  Tensor forward(const Tensor& x) override { return adaptive_max_pool2d(x, output_size_); }
};

// The largest element, or the mean, of each window of volumes [N, C, D, H, W].
class MaxPool3d : public PoolingLayer3d {
 public:
  using PoolingLayer3d::PoolingLayer;
  Tensor forward(const Tensor& x) override { return max_pool3d(x, options_); }

 protected:
  std::string extra_repr() const override;
};

class AvgPool3d : public PoolingLayer3d {
 public:
  using PoolingLayer3d::PoolingLayer;
  Tensor forward(const Tensor& x) override { return avg_pool3d(x, options_); }

 protected:
  std::string extra_repr() const override;
};

// Means over windows that cover the volume: [N, C, D, H, W] -> [N, C, output_size].
class AdaptiveAvgPool3d : public AdaptivePoolingLayer3d {
 public:
  using AdaptivePoolingLayer3d::AdaptivePoolingLayer3d;
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool3d(x, output_size_); }
};

// The same for sequences: [N, C, L] -> [N, C, output_size].
class AdaptiveAvgPool1d : public AdaptivePoolingLayer1d {
 public:
  using AdaptivePoolingLayer1d::AdaptivePoolingLayer1d;
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool1d(x, output_size_); }
};

class AdaptiveMaxPool1d : public AdaptivePoolingLayer1d {
 public:
  using AdaptivePoolingLayer1d::AdaptivePoolingLayer1d;
  Tensor forward(const Tensor& x) override { return adaptive_max_pool1d(x, output_size_); }
};

}  // namespace lockstep
