// The windows of two-dimensional convolutions and pooling. Height comes first, then width. Along each axis, H becomes
//   convolution: H' = floor((H + 2 padding - dilation (kernel - 1) - 1) / stride) + 1
//   pooling:     H' = floor((H + 2 padding - dilation (kernel - 1) - 1) / stride) + 1, with ceil_mode rounded up
// It is an error if the window does not fit the padded image, even with ceil_mode, where PyTorch may accept it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// One value for each axis of an image: {3, 5} is 3 rows and 5 columns, and 3 is {3, 3}.
class HeightWidth {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  constexpr HeightWidth(std::int64_t both) : values_{both, both} {}
  constexpr HeightWidth(std::int64_t height, std::int64_t width) : values_{height, width} {}
  constexpr HeightWidth(const std::array<std::int64_t, 2>& values) : values_(values) {}
  constexpr operator const std::array<std::int64_t, 2>&() const { return values_; }
  // NOLINTEND(google-explicit-constructor)

  constexpr const std::int64_t& operator[](std::size_t axis) const { return values_[axis]; }
  constexpr std::int64_t& operator[](std::size_t axis) { return values_[axis]; }
  constexpr auto begin() const { return values_.begin(); }
  constexpr auto end() const { return values_.end(); }
  bool operator==(const HeightWidth&) const = default;

 private:
  std::array<std::int64_t, 2> values_;
};

// Options of convolutions. Extents has one value for each axis of the kernel. The kernel's size is the weight's.
// Stride, dilation, and groups are at least 1, padding is at least 0; groups divide the channels of the input and the
// output. Anything else is an error.
template <typename Extents>
struct ConvNdOptions {
  Extents stride = 1;
  Extents padding = 0;
  Extents dilation = 1;
  std::int64_t groups = 1;

  bool operator==(const ConvNdOptions&) const = default;
};
using Conv1dOptions = ConvNdOptions<std::int64_t>;
using Conv2dOptions = ConvNdOptions<HeightWidth>;

// Options of pooling. Kernel and stride are at least 1, padding is 0 to half the kernel. Anything else is an error.
template <typename Extents>
struct PoolNdOptions {
  Extents kernel_size = 2;
  Extents stride = kernel_size;
  Extents padding = 0;
  // For average pooling: padding counts as zeros in the mean (PyTorch's default).
  bool count_include_pad = true;
  // Rounds the output's size up: a last window that begins before the image's end may extend past the padding. The part
  // past the padding counts in no mean.
  bool ceil_mode = false;
  // For max pooling: the distance between a window's elements. Kernels support only 1.
  Extents dilation = 1;
};
using Pool1dOptions = PoolNdOptions<std::int64_t>;
using Pool2dOptions = PoolNdOptions<HeightWidth>;

}  // namespace lockstep
