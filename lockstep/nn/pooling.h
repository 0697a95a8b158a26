// Pooling of images and sequences.
//
//   net.append(MaxPool2d(2));        // windows of 2 x 2 that do not overlap
//   net.append(MaxPool2d(3, 2, 1));  // kernel size, stride, padding; or {.kernel_size = 3, ...}
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// The largest element of each window: [N, C, H, W] -> [N, C, H', W'], H' = floor((H + 2 padding - kernel) / stride) +
// 1. Padding is never the largest. Limits and errors: see Pool2dOptions in backend/window.h.
class MaxPool2d : public Module {
 public:
  using Options = Pool2dOptions;
  explicit MaxPool2d(Pool2dOptions options = {}) : options_(options) {}
  template <std::convertible_to<HeightWidth> K>
  explicit MaxPool2d(const K& kernel_size) : MaxPool2d(Options{.kernel_size = kernel_size}) {}
  MaxPool2d(HeightWidth kernel_size, HeightWidth stride, HeightWidth padding = 0)
      : MaxPool2d(Options{.kernel_size = kernel_size, .stride = stride, .padding = padding}) {}
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
  template <std::convertible_to<HeightWidth> K>
  explicit AvgPool2d(const K& kernel_size) : AvgPool2d(Options{.kernel_size = kernel_size}) {}
  AvgPool2d(HeightWidth kernel_size, HeightWidth stride, HeightWidth padding = 0)
      : AvgPool2d(Options{.kernel_size = kernel_size, .stride = stride, .padding = padding}) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  Pool2dOptions options_;
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

// The largest elements of the same windows.
class AdaptiveMaxPool2d : public Module {
 public:
  explicit AdaptiveMaxPool2d(std::int64_t output_size) : output_size_{output_size, output_size} {}
  explicit AdaptiveMaxPool2d(std::array<std::int64_t, 2> output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& x) override { return adaptive_max_pool2d(x, output_size_); }

 protected:
  std::string extra_repr() const override;

 private:
  std::array<std::int64_t, 2> output_size_;
};

// The largest element, or the mean, of each window of volumes [N, C, D, H, W].
class MaxPool3d : public Module {
 public:
  using Options = Pool3dOptions;
  explicit MaxPool3d(Pool3dOptions options = {}) : options_(options) {}
  template <std::convertible_to<DepthHeightWidth> K>
  explicit MaxPool3d(const K& kernel_size) : MaxPool3d(Options{.kernel_size = kernel_size}) {}
  MaxPool3d(DepthHeightWidth kernel_size, DepthHeightWidth stride, DepthHeightWidth padding = 0)
      : MaxPool3d(Options{.kernel_size = kernel_size, .stride = stride, .padding = padding}) {}
  Tensor forward(const Tensor& x) override { return max_pool3d(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  Pool3dOptions options_;
};

class AvgPool3d : public Module {
 public:
  using Options = Pool3dOptions;
  explicit AvgPool3d(Pool3dOptions options = {}) : options_(options) {}
  template <std::convertible_to<DepthHeightWidth> K>
  explicit AvgPool3d(const K& kernel_size) : AvgPool3d(Options{.kernel_size = kernel_size}) {}
  AvgPool3d(DepthHeightWidth kernel_size, DepthHeightWidth stride, DepthHeightWidth padding = 0)
      : AvgPool3d(Options{.kernel_size = kernel_size, .stride = stride, .padding = padding}) {}
  Tensor forward(const Tensor& x) override { return avg_pool3d(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  Pool3dOptions options_;
};

// Means over windows that cover the volume: [N, C, D, H, W] -> [N, C, output_size].
class AdaptiveAvgPool3d : public Module {
 public:
  explicit AdaptiveAvgPool3d(std::int64_t output_size) : output_size_{output_size, output_size, output_size} {}
  explicit AdaptiveAvgPool3d(std::array<std::int64_t, 3> output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool3d(x, output_size_); }

 protected:
  std::string extra_repr() const override;

 private:
  std::array<std::int64_t, 3> output_size_;
};

// The same for sequences: [N, C, L] -> [N, C, output_size].
class AdaptiveAvgPool1d : public Module {
 public:
  explicit AdaptiveAvgPool1d(std::int64_t output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool1d(x, output_size_); }

 protected:
  std::string extra_repr() const override;

 private:
  std::int64_t output_size_;
};

class AdaptiveMaxPool1d : public Module {
 public:
  explicit AdaptiveMaxPool1d(std::int64_t output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& x) override { return adaptive_max_pool1d(x, output_size_); }

 protected:
  std::string extra_repr() const override;

 private:
  std::int64_t output_size_;
};

// The largest element, or the mean, of each window: [N, C, L] -> [N, C, L'], L' = floor((L + 2 padding - kernel) /
// stride) + 1. Errors and limits: see Pool1dOptions in backend/window.h.
class MaxPool1d : public Module {
 public:
  using Options = Pool1dOptions;
  explicit MaxPool1d(Pool1dOptions options = {}) : options_(options) {}
  template <std::integral N>
  explicit MaxPool1d(N kernel_size) : MaxPool1d(Options{.kernel_size = kernel_size}) {}
  MaxPool1d(std::int64_t kernel_size, std::int64_t stride, std::int64_t padding = 0)
      : MaxPool1d(Options{.kernel_size = kernel_size, .stride = stride, .padding = padding}) {}
  Tensor forward(const Tensor& x) override { return max_pool1d(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  Pool1dOptions options_;
};

class AvgPool1d : public Module {
 public:
  using Options = Pool1dOptions;
  explicit AvgPool1d(Pool1dOptions options = {}) : options_(options) {}
  template <std::integral N>
  explicit AvgPool1d(N kernel_size) : AvgPool1d(Options{.kernel_size = kernel_size}) {}
  AvgPool1d(std::int64_t kernel_size, std::int64_t stride, std::int64_t padding = 0)
      : AvgPool1d(Options{.kernel_size = kernel_size, .stride = stride, .padding = padding}) {}
  Tensor forward(const Tensor& x) override { return avg_pool1d(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  Pool1dOptions options_;
};

}  // namespace lockstep
