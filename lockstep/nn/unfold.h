// Images as patches, and patches as images: see autograd/unfold.h.
//
//   net.append(Conv2d({.out_channels = 4 * 64, .kernel_size = 3, .padding = 1})).append(PixelShuffle(2));
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// [N, C, H, W] -> [N, C KH KW, L]
class Unfold : public Module {
 public:
  using Options = UnfoldOptions;
  explicit Unfold(UnfoldOptions options) : options_(options) {}
  Tensor forward(const Tensor& x) override { return unfold(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  UnfoldOptions options_;
};

// [N, C KH KW, L] -> [N, C, H, W]
class Fold : public Module {
 public:
  Fold(HeightWidth output_size, UnfoldOptions options) : output_size_(output_size), options_(options) {}
  Tensor forward(const Tensor& x) override { return fold(x, output_size_, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  HeightWidth output_size_;
  UnfoldOptions options_;
};

// [N, C r^2, H, W] -> [N, C, H r, W r]
class PixelShuffle : public Module {
 public:
  explicit PixelShuffle(std::int64_t upscale_factor) : factor_(upscale_factor) {}
  Tensor forward(const Tensor& x) override { return pixel_shuffle(x, factor_); }

 protected:
  std::string extra_repr() const override;

 private:
  std::int64_t factor_;
};

// [N, C, H r, W r] -> [N, C r^2, H, W]
class PixelUnshuffle : public Module {
 public:
  explicit PixelUnshuffle(std::int64_t downscale_factor) : factor_(downscale_factor) {}
  Tensor forward(const Tensor& x) override { return pixel_unshuffle(x, factor_); }

 protected:
  std::string extra_repr() const override;

 private:
  std::int64_t factor_;
};

}  // namespace lockstep
