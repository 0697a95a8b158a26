// Shared by the pooling kernels: images as planes of pixels, and the windows over them.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/pool.h"

namespace lockstep::cpu {

// Images of any layout as planes of pixels with `channels` adjacent elements each: all channels of an image
// (channels_last), a block of them (blocked16), or one (plain). Channel c of plane p has index p * channels + c in the
// plain array [N, C, 1, 1].
struct Planes {
  explicit Planes(const View& v)
      : channels(v.layout == Layout::channels_last ? v.shape[1]
                 : v.layout == Layout::blocked16   ? kChannelBlock
                                                   : 1),
        height(v.shape[2]), width(v.shape[3]), count(channels == 0 ? 0 : v.shape[0] * v.shape[1] / channels) {}

  std::int64_t pixels() const { return height * width; }
  std::int64_t pixel(std::int64_t plane, std::int64_t h, std::int64_t w) const {
    return ((plane * height + h) * width + w) * channels;
  }

  std::int64_t channels, height, width, count;
};

struct Range {
  std::int64_t begin, end;

  std::int64_t size() const { return std::max<std::int64_t>(end - begin, 0); }
};

// For each of `outputs` outputs, the pixels that its window covers inside an image of height or width `extent`.
inline std::vector<Range> windows(const Pool2dOptions& o, int axis, std::int64_t outputs, std::int64_t extent) {
  std::vector<Range> ranges;
  for (std::int64_t out = 0; out < outputs; ++out) {
    const std::int64_t begin = out * o.stride[axis] - o.padding[axis];
    ranges.push_back({std::max<std::int64_t>(begin, 0), std::min(begin + o.kernel_size[axis], extent)});
  }
  return ranges;
}

// The same for pixels that count in a mean: if padding counts, a range may begin below 0 or end past `extent`.
inline std::vector<Range> counted_windows(const Pool2dOptions& o, int axis, std::int64_t outputs, std::int64_t extent) {
  if (!o.count_include_pad) return windows(o, axis, outputs, extent);
  std::vector<Range> ranges;
  for (std::int64_t out = 0; out < outputs; ++out) {
    const std::int64_t begin = out * o.stride[axis] - o.padding[axis];
    ranges.push_back({begin, std::min(begin + o.kernel_size[axis], extent + o.padding[axis])});
  }
  return ranges;
}

// For each of `extent` pixels, the outputs whose windows cover it.
inline std::vector<Range> windows_over(const Pool2dOptions& o, int axis, std::int64_t outputs, std::int64_t extent) {
  std::vector<Range> ranges;
  for (std::int64_t in = 0; in < extent; ++in) {
    const std::int64_t last = in + o.padding[axis];
    const std::int64_t before = last - o.kernel_size[axis];  // the last position at which a window ends too early
    ranges.push_back({before < 0 ? 0 : before / o.stride[axis] + 1, std::min(last / o.stride[axis] + 1, outputs)});
  }
  return ranges;
}

// Calls f(first channel, lanes) for blocks of up to 16 channels. `lanes` is a constant for full blocks and for single
// channels, so that arrays of one element per lane stay in registers.
template <typename F>
void for_lanes(std::int64_t channels, const F& f) {
  if (channels == 1) return f(std::int64_t{0}, std::integral_constant<std::int64_t, 1>{});
  std::int64_t c = 0;
  for (; c + kChannelBlock <= channels; c += kChannelBlock) {
    f(c, std::integral_constant<std::int64_t, kChannelBlock>{});
  }
  if (c < channels) f(c, channels - c);
}

// Calls f(lane) for all lanes. The compiler turns the loop into vector instructions. Unrolled into 16 steps, which the
// pragma prevents, it would stay scalar.
template <typename Lanes, typename F>
void each_lane(Lanes lanes, const F& f) {
  const std::int64_t count = lanes;
#pragma GCC unroll 1
  for (std::int64_t j = 0; j < count; ++j) f(j);
}

inline constexpr std::int64_t kElementsPerChunk = 8192;

// Calls f(plane, row, column, first channel, lanes) for every pixel, vectorized for elements T.
template <typename T, typename F>
void for_pixels(const KernelContext& ctx, const Planes& planes, const F& f) {
  const std::int64_t row = std::max<std::int64_t>(planes.width * planes.channels, 1);
  const std::int64_t rows_per_chunk = std::max<std::int64_t>(kElementsPerChunk / row, 1);
  parallel_for(ctx, planes.count * planes.height, rows_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    vectorized_as<T>([&] {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t plane = r / planes.height, h = r % planes.height;
        for (std::int64_t w = 0; w < planes.width; ++w) {
          for_lanes(planes.channels, [&](std::int64_t c, const auto lanes) { f(plane, h, w, c, lanes); });
        }
      }
    });
  });
}

struct AsItIs {
  auto operator()(std::int64_t, auto sum) const { return sum; }
};

// Each element of dx gathers from all windows that cover it, so no two threads add to one element, and each element is
// rounded once: finish(index of the element, sum).
template <typename T, typename Share, typename Finish = AsItIs>
void gather_windows(KernelContext& ctx, const Pool2dOptions& options, const View& dy, const View& dx_view,
                    const Share& share, const Finish& finish = {}) {
  const Planes out(dy), in(dx_view);
  const auto rows = windows_over(options, 0, out.height, in.height);
  const auto columns = windows_over(options, 1, out.width, in.width);
  T* dx = dx_view.as<T>();
  for_pixels<T>(ctx, in,
                [&](std::int64_t plane, std::int64_t h, std::int64_t w, std::int64_t channel, const auto lanes) {
                  Computed<T> sum[kChannelBlock];
                  each_lane(lanes, [&](std::int64_t j) { sum[j] = 0; });
                  for (std::int64_t p = rows[h].begin; p < rows[h].end; ++p) {
                    for (std::int64_t q = columns[w].begin; q < columns[w].end; ++q) {
                      const std::int64_t i = out.pixel(plane, p, q) + channel;
                      const auto of_window = share(p, q, h, w);
                      each_lane(lanes, [&](std::int64_t j) { sum[j] += of_window(i + j); });
                    }
                  }
                  const std::int64_t pixel = in.pixel(plane, h, w) + channel;
                  each_lane(lanes, [&](std::int64_t j) { dx[pixel + j] = static_cast<T>(finish(pixel + j, sum[j])); });
                });
}

}  // namespace lockstep::cpu
