// Convolutions. Constructors throw unless out_channels, kernel_size, and groups are at least 1 and groups divide both
// numbers of channels. forward() throws if the input has the wrong number of axes or channels, or if the kernel does
// not fit the padded input. An input without a batch, as [C, H, W] or [C, L], has a result without one.
//
//   Conv2d conv(3, 64, 3, {.padding = 1});
//   Conv2d lazy({.out_channels = 64, .kernel_size = 3, .padding = 1});  // the first input decides in_channels
//   Conv2d wide({.out_channels = 64, .kernel_size = {1, 7}, .padding = {0, 3}});  // rows, columns
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Options of Conv1d, Conv2d, and Conv3d. Extents has a number for each axis of the kernel; a single number is for all.
template <typename Extents>
struct ConvNdLayerOptions {
  std::int64_t in_channels = 0;  // 0: inferred at the first forward pass
  std::int64_t out_channels = 0;
  Extents kernel_size = 1;
  Extents stride = 1;
  Extents padding = 0;  // or kSame
  Extents dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  PadMode padding_mode = PadMode::zeros;  // what the padding consists of
};
using Conv1dLayerOptions = ConvNdLayerOptions<std::int64_t>;
using ConvLayerOptions = ConvNdLayerOptions<HeightWidth>;
using Conv3dLayerOptions = ConvNdLayerOptions<DepthHeightWidth>;

// [N, C, L] -> [N, O, L'], and the same for each axis of images and volumes:
// L' = floor((L + 2 padding - dilation (kernel - 1) - 1) / stride) + 1.
template <typename Extents>
class ConvNd : public Module {
 public:
  using Options = ConvNdLayerOptions<Extents>;
  explicit ConvNd(Options options);
  ConvNd(std::int64_t in_channels, std::int64_t out_channels, Extents kernel_size, Options more = {});
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [O, C / groups, the kernel's extents]
  const Parameter bias;    // [O]

 protected:
  Options options_;
};

// Sequences [N, C, L].
class Conv1d : public ConvNd<std::int64_t> {
 public:
  using ConvNd::ConvNd;

 protected:
  std::string extra_repr() const override;
};

// Images [N, C, H, W].
class Conv2d : public ConvNd<HeightWidth> {
 public:
  using ConvNd::ConvNd;

 protected:
  std::string extra_repr() const override;
};

// Volumes [N, C, D, H, W].
class Conv3d : public ConvNd<DepthHeightWidth> {
 public:
  using ConvNd::ConvNd;

 protected:
  std::string extra_repr() const override;
};

// Options of ConvTranspose1d and ConvTranspose2d.
template <typename Extents>
struct ConvTransposeNdLayerOptions {
  std::int64_t in_channels = 0;  // 0: inferred at the first forward pass
  std::int64_t out_channels = 0;
  Extents kernel_size = 1;
  Extents stride = 1;
  Extents padding = 0;
  Extents output_padding = 0;  // below the stride or the dilation
  std::int64_t groups = 1;
  bool bias = true;
  Extents dilation = 1;
};
using ConvTranspose1dLayerOptions = ConvTransposeNdLayerOptions<std::int64_t>;
using ConvTranspose2dLayerOptions = ConvTransposeNdLayerOptions<HeightWidth>;

// [N, C, L] -> [N, O, L'], and the same for each axis of images:
// L' = (L - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1. A stride of 2 doubles the size.
template <typename Extents>
class ConvTransposeNd : public Module {
 public:
  using Options = ConvTransposeNdLayerOptions<Extents>;
  explicit ConvTransposeNd(Options options);
  ConvTransposeNd(std::int64_t in_channels, std::int64_t out_channels, Extents kernel_size, Options more = {});
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [C, O / groups, the kernel's extents]
  const Parameter bias;    // [O]

 protected:
  Options options_;
};

// Sequences [N, C, L].
class ConvTranspose1d : public ConvTransposeNd<std::int64_t> {
 public:
  using ConvTransposeNd::ConvTransposeNd;

 protected:
  std::string extra_repr() const override;
};

// Images [N, C, H, W].
class ConvTranspose2d : public ConvTransposeNd<HeightWidth> {
 public:
  using ConvTransposeNd::ConvTransposeNd;

 protected:
  std::string extra_repr() const override;
};

}  // namespace lockstep
