// How the kernels of batch normalization walk over images [N, C, H, W] of any layout. The samples of a channel are
// rows; the channels are columns. A block's threads span both; in channels-last images, each thread takes a vector of
// channels.
#pragma once

#include <cmath>

#include "lockstep/backend/cuda/tree.cuh"
#include "lockstep/backend/norm.h"

namespace lockstep::cuda {

struct Images {
  Layout layout;
  unsigned rows, channels, plane;
  unsigned first_channel = 0;  // of a launch, see NormGrid::launches()

  explicit Images(const View& x)
      : layout(x.layout), rows(static_cast<unsigned>(x.shape[0] * x.shape[2] * x.shape[3])),
        channels(static_cast<unsigned>(x.shape[1])), plane(static_cast<unsigned>(x.shape[2] * x.shape[3])) {
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    check(x.shape[0] * x.shape[2] * x.shape[3] < kMost && x.shape[1] < kMost, "batch_norm: {} are too many elements",
          x.shape.str());
  }

  // Returns the offset of a sample of a channel, or of kWidth channels.
  template <int kWidth>
  __device__ std::int64_t offset(unsigned row, unsigned channel) const {
    const std::int64_t c = channel;
    if (kWidth > 1) return std::int64_t{row} * channels + c;  // channels-last, see NormGrid
    switch (layout) {
      case Layout::channels_last: return std::int64_t{row} * channels + c;
      case Layout::plain: return (std::int64_t{row / plane} * channels + c) * plane + row % plane;
      case Layout::blocked16: {
        const std::int64_t block = std::int64_t{row / plane} * (channels / kChannelBlock) + c / kChannelBlock;
        return (block * plane + row % plane) * kChannelBlock + c % kChannelBlock;
      }
    }
    return 0;
  }
};

// A grid of blocks over images. The grid, and so the order of sums, depends on their shape, layout, and dtype alone.
struct NormGrid {
  // Along channels: channels per thread, threads of a block, and blocks.
  int width, lanes, tiles;
  // Threads of a block; along rows: threads of a block, rows of a block, blocks.
  int threads, step;
  unsigned rows_per_block, blocks;

  // Plans about `target` blocks of `threads_per_block` threads, a power of two.
  NormGrid(const View& x, int threads_per_block, int target) {
    const Images images(x);
    const int vector = x.dtype == DType::f32 ? kVector<float> : is_half_dtype(x.dtype) ? kVector<BFloat16> : 1;
    width = x.layout == Layout::channels_last && images.channels % vector == 0 ? vector : 1;
    const int most = x.layout == Layout::plain ? 1 : x.layout == Layout::blocked16 ? kChannelBlock : 32;
    lanes = 1;
    while (lanes < most && lanes * width < static_cast<int>(images.channels)) lanes *= 2;
    tiles = static_cast<int>(ceil_div(images.channels, static_cast<unsigned>(lanes * width)));
    threads = threads_per_block;
    step = threads / lanes;
    const unsigned wanted = static_cast<unsigned>(std::max(target / tiles, 1));
    rows_per_block = ceil_div(ceil_div(images.rows, wanted), static_cast<unsigned>(step)) * static_cast<unsigned>(step);
    rows_per_block = std::max(rows_per_block, static_cast<unsigned>(2 * step));
    blocks = std::max(ceil_div(images.rows, rows_per_block), 1u);
  }

  int columns() const { return lanes * width; }
  // Tiles of the largest launch, and their channels.
  int launched_tiles() const { return std::min(tiles, kMostBlocksAlongY); }
  int launched_channels() const { return launched_tiles() * columns(); }
  // Calls start(images, grid) for each launch: one, except for very many channels. Launches share their scratch memory.
  template <typename F>
  void launches(const View& x, const F& start) const {
    Images images(x);
    for (std::int64_t tile = 0; tile < tiles; tile += kMostBlocksAlongY) {
      images.first_channel = static_cast<unsigned>(tile * columns());
      start(images, dim3(blocks, static_cast<unsigned>(std::min<std::int64_t>(tiles - tile, kMostBlocksAlongY))));
    }
  }
  dim3 block() const { return dim3(static_cast<unsigned>(threads)); }
};

// The position of a thread in such a grid.
struct NormPlace {
  unsigned row, end, step;
  // The thread's first channel. In the last tile it may be out of range.
  unsigned channel;
  int lane, row_of_block;

  __device__ NormPlace(const Images& images, int width, int lanes, unsigned rows_per_block) {
    const auto thread = static_cast<int>(threadIdx.x);
    lane = thread % lanes;
    row_of_block = thread / lanes;
    step = blockDim.x / static_cast<unsigned>(lanes);
    channel = images.first_channel +
              (blockIdx.y * static_cast<unsigned>(lanes) + static_cast<unsigned>(lane)) * static_cast<unsigned>(width);
    const unsigned begin = blockIdx.x * rows_per_block;
    row = begin + static_cast<unsigned>(row_of_block);
    end = std::min(begin + rows_per_block, images.rows);
  }
};

// Returns the channel of a column of the block's tile.
__device__ inline unsigned channel_of(const Images& images, int columns, int column) {
  return images.first_channel + blockIdx.y * static_cast<unsigned>(columns) + static_cast<unsigned>(column);
}

// Calls use(load(row), row) for a thread's rows in order, with kAhead loads at a time.
template <int kAhead, typename Load, typename Use>
__device__ void for_rows(const NormPlace& place, const Load& load, const Use& use) {
  for (unsigned row = place.row; row < place.end; row += kAhead * place.step) {
    decltype(load(row)) loaded[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const unsigned at = row + static_cast<unsigned>(k) * place.step;
      if (at < place.end) loaded[k] = load(at);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const unsigned at = row + static_cast<unsigned>(k) * place.step;
      if (at < place.end) use(loaded[k], at);
    }
  }
}

// Calls body(constant), which is true if vectors are loaded at once, so that this case has its own code.
template <int kWidth, typename Body>
__device__ void with_alignment(bool aligned, const Body& body) {
  if (kWidth == 1 || aligned) {
    body(std::true_type{});
  } else {
    body(std::false_type{});
  }
}

// Loads the parameters of a thread's channels.
template <int kWidth, typename C>
__device__ Vector<C, kWidth> load_channels(const C* p, unsigned channel) {
  return load<kWidth>(p + channel, reinterpret_cast<std::uintptr_t>(p) % kVectorBytes == 0);
}

template <typename C>
__device__ C inverse_std(C m2, double inverse_n, double eps) {
  return 1 / std::sqrt(m2 * static_cast<C>(inverse_n) + static_cast<C>(eps));
}

// Statistics per channel, and the numbers that normalize with them.
template <typename C>
struct Channels {
  const C *mean, *m2;
  double inverse_n, eps;

  explicit Channels(const BatchNormStats& stats, double epsilon)
      : mean(stats.mean.as<C>()), m2(stats.m2.as<C>()), inverse_n(1 / static_cast<double>(stats.n)), eps(epsilon) {}
};

// A sample's x and dy; dy is 0 where a fused ReLU with output y blocked it.
template <int kWidth, typename T>
struct Gradient {
  Vector<T, kWidth> x, dy, y;

  Gradient() = default;
  __device__ Gradient(const T* x_from, const T* dy_from, const T* y_from, std::int64_t at, bool aligned) {
    x = load<kWidth>(x_from + at, aligned);
    dy = load<kWidth>(dy_from + at, aligned);
    if (!y_from) return;
    y = load<kWidth>(y_from + at, aligned);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (!(widened(y.at[k]) > 0)) dy.at[k] = convert<T>(0.f);
    }
  }
};

// Calls visitor(element, vector width) for x's dtype and `width`.
template <typename Visitor>
void visit_images(const View& x, int width, const Visitor& visitor) {
  visit_floating(x.dtype, "batch_norm", [&](auto zero) {
    using T = decltype(zero);
    width == 1 ? visitor(zero, std::integral_constant<int, 1>{})
               : visitor(zero, std::integral_constant<int, kVector<T>>{});
  });
}

}  // namespace lockstep::cuda
