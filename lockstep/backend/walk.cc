#include "lockstep/backend/walk.h"

namespace lockstep {

Walk layout_walk(const View& x, const View& y) {
  const Shape& s = x.shape;
  Walk walk;
  if (same_order(x.layout, y.layout, s)) {
    walk.add_axis(x.numel(), 1, 1);
    return walk;
  }
  // A channel has a block of b channels and a place in the block; without blocks, all channels are one block.
  const bool blocked = x.layout == Layout::blocked16 || y.layout == Layout::blocked16;
  const std::int64_t b = blocked ? kChannelBlock : s[1], pixels = s[2] * s[3], blocks = s[1] / b;
  struct Strides {
    std::int64_t block, channel, pixel;
  };
  const auto strides = [&](Layout layout) -> Strides {
    switch (layout) {
      case Layout::plain: return {b * pixels, pixels, 1};
      case Layout::channels_last: return {b, 1, s[1]};
      case Layout::blocked16: break;
    }
    return {b * pixels, 1, b};
  };
  const Strides from = strides(x.layout), to = strides(y.layout);
  walk.add_axis(s[0], s[1] * pixels, s[1] * pixels);
  // Add the axes in y's order.
  if (y.layout != Layout::channels_last) walk.add_axis(blocks, from.block, to.block);
  if (y.layout == Layout::plain) walk.add_axis(b, from.channel, to.channel);
  walk.add_axis(pixels, from.pixel, to.pixel);
  if (y.layout == Layout::channels_last) walk.add_axis(blocks, from.block, to.block);
  if (y.layout != Layout::plain) walk.add_axis(b, from.channel, to.channel);
  return walk;
}

Walk strided_walk(const StridedCopy& copy) {
  Walk walk;
  for (int axis = 0; axis < copy.extent.dim(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    walk.add_axis(copy.extent[axis], copy.from[i], copy.to[i]);
  }
  return walk;
}

}  // namespace lockstep
