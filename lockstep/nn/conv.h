// Convolutions. Constructors throw unless out_channels, kernel_size, and groups are at least 1 and groups divide both
// numbers of channels. forward() throws if the input has the wrong number of axes or channels, or if the kernel does
// not fit the padded input. An input without a batch, [C, H, W] or [C, L], has a result without one.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct Conv1dLayerOptions {
  std::int64_t in_channels = 0;  // 0: inferred at the first forward pass
  std::int64_t out_channels = 0;
  std::int64_t kernel_size = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // or kSame
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  PadMode padding_mode = PadMode::zeros;  // what the padding consists of
};

// [N, C, L] -> [N, O, L'], L' = floor((L + 2 padding - dilation (kernel - 1) - 1) / stride) + 1.
class Conv1d : public Module {
 public:
  using Options = Conv1dLayerOptions;
  explicit Conv1d(Conv1dLayerOptions options);
  Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size, Conv1dLayerOptions more = {});
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [O, C / groups, kernel]
  const Parameter bias;    // [O]

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
  HeightWidth padding = 0;  // or kSame
  HeightWidth dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  PadMode padding_mode = PadMode::zeros;
};

// The same for images: [N, C, H, W] -> [N, O, H', W'].
//
//   Conv2d conv(3, 64, 3, {.padding = 1});
//   Conv2d lazy({.out_channels = 64, .kernel_size = 3, .padding = 1});  // the first input decides in_channels
//   Conv2d wide({.out_channels = 64, .kernel_size = {1, 7}, .padding = {0, 3}});
class Conv2d : public Module {
 public:
  using Options = ConvLayerOptions;
  explicit Conv2d(ConvLayerOptions options);
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, HeightWidth kernel_size, ConvLayerOptions more = {});
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [O, C / groups, KH, KW]
  const Parameter bias;    // [O]

 protected:
  std::string extra_repr() const override;

 private:
  ConvLayerOptions options_;
};

struct Conv3dLayerOptions {
  std::int64_t in_channels = 0;  // 0: inferred at the first forward pass
  std::int64_t out_channels = 0;
  DepthHeightWidth kernel_size = 1;
  DepthHeightWidth stride = 1;
  DepthHeightWidth padding = 0;
  DepthHeightWidth dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

// The same for volumes: [N, C, D, H, W] -> [N, O, D', H', W'].
class Conv3d : public Module {
 public:
  using Options = Conv3dLayerOptions;
  explicit Conv3d(Conv3dLayerOptions options);
  Conv3d(std::int64_t in_channels, std::int64_t out_channels, DepthHeightWidth kernel_size,
         Conv3dLayerOptions more = {});
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [O, C / groups, KD, KH, KW]
  const Parameter bias;    // [O]

 protected:
  std::string extra_repr() const override;

 private:
  Conv3dLayerOptions options_;
};

struct ConvTranspose1dLayerOptions {
  std::int64_t in_channels = 0;  // 0: inferred at the first forward pass
  std::int64_t out_channels = 0;
  std::int64_t kernel_size = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t output_padding = 0;  // below the stride or the dilation
  std::int64_t groups = 1;
  bool bias = true;
  std::int64_t dilation = 1;
};

// [N, C, L] -> [N, O, L'], L' = (L - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1.
class ConvTranspose1d : public Module {
 public:
  using Options = ConvTranspose1dLayerOptions;
  explicit ConvTranspose1d(ConvTranspose1dLayerOptions options);
  ConvTranspose1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                  ConvTranspose1dLayerOptions more = {});
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [C, O / groups, kernel]
  const Parameter bias;    // [O]

 protected:
  std::string extra_repr() const override;

 private:
  ConvTranspose1dLayerOptions options_;
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
  ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, HeightWidth kernel_size,
                  ConvTranspose2dLayerOptions more = {});
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [C, O / groups, KH, KW]
  const Parameter bias;    // [O]

 protected:
  std::string extra_repr() const override;

 private:
  ConvTranspose2dLayerOptions options_;
};

}  // namespace lockstep
