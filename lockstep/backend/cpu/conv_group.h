// Sizes of a convolution of one group of channels, for the f32 kernels.
#pragma once

#include <algorithm>
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

// A partial sum of a gradient of weights: the outputs in some rows of some images. It affects the bits.
struct WeightChunks {
  std::int64_t rows, images = 1;
  std::int64_t count = 1;  // per image, or per `images`

  explicit WeightChunks(const ConvGroup& p) : rows(p.rows.output) {
    // The most pixels, unless a row has more.
    constexpr std::int64_t kPixels = 128;
    const std::int64_t pixels = p.rows.output * p.columns.output;
    if (pixels < kPixels) {
      images = kPixels / pixels;
    } else {
      rows = std::max<std::int64_t>(1, kPixels / p.columns.output);
      count = (p.rows.output + rows - 1) / rows;
    }
  }
};

}  // namespace lockstep::cpu
