// Sizes of a convolution of one group of channels, for the f32 kernels.
#pragma once

#include <cstdint>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/cpu/conv_taps.h"

namespace lockstep::cpu {

// The most f32 that images computed together may take: about half of a second-level cache. It does not affect the bits.
inline constexpr std::int64_t kPanel = 96 << 10;

// A convolution of one group of channels.
struct ConvGroup {
  ConvAxis rows, columns;
  std::int64_t images, inputs, outputs;  // images, channels of x and of y
  std::int64_t groups;

  ConvGroup(const Conv2dOptions& o, const View& x, const View& w, const View& y)
      : rows{x.shape[2], y.shape[2], w.shape[2], o.stride[0], o.padding[0], o.dilation[0]},
        columns{x.shape[3], y.shape[3], w.shape[3], o.stride[1], o.padding[1], o.dilation[1]}, images(x.shape[0]),
        inputs(x.shape[1] / o.groups), outputs(y.shape[1] / o.groups), groups(o.groups) {}
  std::int64_t taps() const { return rows.taps * columns.taps; }
  std::int64_t weights() const { return inputs * outputs * taps(); }
};

}  // namespace lockstep::cpu
