// Convolutions. Images are [N, C, H, W], sequences [N, C, L]. nn/conv.h has the layers.
//
//   Tensor y = conv2d(x, w, bias, {.stride = 2, .padding = 1});
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "lockstep/autograd/tensor.h"
#include "lockstep/backend/window.h"

namespace LOCKSTEP_API lockstep {

// Padding that keeps the extents of the input (PyTorch's padding = 'same'), for a stride of 1. If the kernel needs an
// odd number of zeros, one more is after the input than before it.
//
//   Tensor y = conv2d(x, w, {}, {.padding = kSame});
inline constexpr std::int64_t kSame = std::numeric_limits<std::int64_t>::min();

// Inputs without a batch, [C, H, W] and [C, L], have results without one.
// w [O, C / groups, KH, KW], bias [O] -> [N, O, H', W'], where
// H' = floor((H + 2 padding - dilation (KH - 1) - 1) / stride) + 1. Throws if the channels differ or the kernel does
// not fit the padded image.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dOptions& options = {});
// The same for sequences: [N, C, L], w [O, C / groups, K], bias [O] -> [N, O, L'].
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv1dOptions& options = {});

// Extents has a number for each axis of the kernel.
template <typename Extents>
struct ConvTransposeNdOptions {
  Extents stride = 1;
  Extents padding = 0;
  // Additional rows and columns at the end; less than the stride, or less than the dilation.
  Extents output_padding = 0;
  std::int64_t groups = 1;
  Extents dilation = 1;
};
using ConvTranspose1dOptions = ConvTransposeNdOptions<std::int64_t>;
using ConvTranspose2dOptions = ConvTransposeNdOptions<HeightWidth>;
// The transposed convolution, which is the gradient of conv2d with respect to x: w [C, O / groups, KH, KW], bias [O] ->
// [N, O, H', W'], H' = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1.
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});
// The same for sequences: [N, C, L], w [C, O / groups, K], bias [O] -> [N, O, L'].
Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const ConvTranspose1dOptions& options = {});

// A number for each axis of a volume: {1, 3, 5} is depth, rows, and columns, and 3 is {3, 3, 3}.
class DepthHeightWidth {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  constexpr DepthHeightWidth(std::int64_t all) : values_{all, all, all} {}
  constexpr DepthHeightWidth(std::int64_t depth, std::int64_t height, std::int64_t width)
      : values_{depth, height, width} {}
  constexpr DepthHeightWidth(const std::array<std::int64_t, 3>& values) : values_(values) {}
  constexpr operator const std::array<std::int64_t, 3>&() const { return values_; }
  // NOLINTEND(google-explicit-constructor)

  constexpr const std::int64_t& operator[](std::size_t axis) const { return values_[axis]; }
  constexpr HeightWidth height_width() const { return {values_[1], values_[2]}; }
  bool operator==(const DepthHeightWidth&) const = default;

 private:
  std::array<std::int64_t, 3> values_;
};
using Conv3dOptions = ConvNdOptions<DepthHeightWidth>;
// Volumes [N, C, D, H, W], or [C, D, H, W], and w [O, C / groups, KD, KH, KW] -> [N, O, D', H', W']. It adds KD
// convolutions of images, in the order of depth; in bf16 and f16, each of them is rounded.
Tensor conv3d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv3dOptions& options = {});

}  // namespace lockstep
