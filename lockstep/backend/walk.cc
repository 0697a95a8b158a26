#include "lockstep/backend/walk.h"

#include <array>

namespace lockstep {

Walk layout_walk(const View& x, const View& y) {
  const Shape& s = x.shape;
  Walk walk;
  if (same_order(x.layout, y.layout, s)) {
    walk.add_axis(x.numel(), 1);
    return walk;
  }
  // Channels as blocks of b and the channel in its block; without blocks all are one block.
  const bool blocked = x.layout == Layout::blocked16 || y.layout == Layout::blocked16;
  const std::int64_t b = blocked ? kChannelBlock : s[1], pixels = s[2] * s[3], blocks = s[1] / b;
  std::int64_t block_stride = b * pixels, channel_stride = 1, pixel_stride = b;  // blocked16
  if (x.layout == Layout::plain) channel_stride = pixels, pixel_stride = 1;
  if (x.layout == Layout::channels_last) block_stride = b, pixel_stride = s[1];
  walk.add_axis(s[0], s[1] * pixels);
  if (y.layout != Layout::channels_last) walk.add_axis(blocks, block_stride);
  if (y.layout == Layout::plain) walk.add_axis(b, channel_stride);
  walk.add_axis(pixels, pixel_stride);
  if (y.layout == Layout::channels_last) walk.add_axis(blocks, block_stride);
  if (y.layout != Layout::plain) walk.add_axis(b, channel_stride);
  return walk;
}

Walk permutation_walk(const Shape& x, std::span<const int> axes) {
  std::array<std::int64_t, Shape::kMaxRank> strides{};
  std::int64_t stride = 1;
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= x[axis];
  }
  Walk walk;
  for (int axis : axes) walk.add_axis(x[axis], strides[axis]);
  return walk;
}

}  // namespace lockstep
