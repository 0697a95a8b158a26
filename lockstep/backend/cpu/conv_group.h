// A convolution of one group of channels, and the partial sums of the gradient of its weights, for the f32 kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/cpu/conv_taps.h"
#include "lockstep/backend/cpu/f32_scratch.h"
#include "lockstep/backend/cpu/vectorize.h"

namespace lockstep::cpu {

// Maximum size in f32 of images computed together: about half of a second-level cache. It does not affect the bits.
inline constexpr std::int64_t kPanel = 96 << 10;

// A convolution of one group of channels.
struct ConvGroup {
  ConvAxis rows, columns;
  std::int64_t images, inputs, outputs;  // images, channels of x and of y
  std::int64_t groups;
  // Each channel of y depends on the same channel of x alone. All channels count as one group.
  bool depthwise;
  std::int64_t as_images;  // the algorithm is chosen as for this many images

  ConvGroup(const Conv2dOptions& o, const View& x, const View& w, const View& y, std::int64_t as = 0)
      : rows{x.shape[2], y.shape[2], w.shape[2], o.stride[0], o.padding[0], o.dilation[0]},
        columns{x.shape[3], y.shape[3], w.shape[3], o.stride[1], o.padding[1], o.dilation[1]}, images(x.shape[0]),
        depthwise(o.groups > 1 && x.shape[1] == o.groups && y.shape[1] == o.groups), as_images(as > 0 ? as : images) {
    groups = depthwise ? 1 : o.groups;
    inputs = x.shape[1] / groups;
    outputs = y.shape[1] / groups;
  }
  std::int64_t taps() const { return rows.taps * columns.taps; }
  std::int64_t weights() const { return (depthwise ? 1 : inputs) * outputs * taps(); }
};

// The chunks of outputs, some rows of some images, whose partial sums make a gradient of weights. They affect the bits.
struct WeightChunks {
  std::int64_t rows, images = 1;
  std::int64_t count = 1;  // chunks per image, or per `images` images

  explicit WeightChunks(const ConvGroup& p) : rows(p.rows.output) {
    // Maximum number of pixels of a chunk, unless a single row has more.
    constexpr std::int64_t kPixels = 128;
    const std::int64_t pixels = p.rows.output * p.columns.output;
    if (pixels < kPixels) {
      images = kPixels / pixels;
    } else {
      rows = std::max<std::int64_t>(1, kPixels / p.columns.output);
      count = (p.rows.output + rows - 1) / rows;
    }
  }

  // Number of chunks in `total` images.
  std::int64_t all(std::int64_t total) const { return ceil_div(total, images) * count; }
  // Number of f32 that sum() needs: for the partial sums of a round, and for the gradient.
  std::int64_t sums_size(std::int64_t total, std::int64_t size) const {
    return (std::min(kRound, all(total)) + 1) * size;
  }
  // Returns the gradient, `size` f32 at the end of `scratch`, for `total` images. run(thread, chunk, part, sums) writes
  // a chunk's partial sum of one of `parts` equal parts of the gradient. Calls run in any order. Their results are
  // added in the order of the chunks, kRound chunks at a time.
  template <typename F>
  float* sum(const KernelContext& context, std::int64_t total, std::int64_t parts, std::int64_t size, float* scratch,
             const F& run) const {
    const std::int64_t chunks = all(total);
    float* const gradient = scratch + sums_size(total, size) - size;
    for (std::int64_t first = 0; first < chunks; first += kRound) {
      const std::int64_t round = std::min(kRound, chunks - first);
      for_each_thread(context, round * parts, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
        for (std::int64_t unit = begin; unit < end; ++unit)
          run(thread, first + unit / parts, unit % parts, scratch + unit * (size / parts));
      });
      if (first == 0) std::copy_n(scratch, size, gradient);
      vectorized([&] {
        for (std::int64_t k = first == 0; k < round; ++k)
          vector_loop(0, size, [&](std::int64_t i) { gradient[i] += scratch[k * size + i]; });
      });
    }
    return gradient;
  }

 private:
  static constexpr std::int64_t kRound = 64;
};

}  // namespace lockstep::cpu
