#include "lockstep/backend/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/lanes.h"
#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

// Images of any layout as planes of pixels with `channels` neighbouring numbers each: all channels of an
// image (channels_last), a block of them (blocked16) or one (plain). Channel c of plane p is number p *
// channels + c of the plain tensor [N, C, 1, 1].
struct Planes {
  explicit Planes(const View& v)
      : channels(v.layout == Layout::channels_last ? v.shape[1]
                 : v.layout == Layout::blocked16   ? kChannelBlock
                                                   : 1),
        height(v.shape[2]),
        width(v.shape[3]),
        count(channels == 0 ? 0 : v.shape[0] * v.shape[1] / channels) {}

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

// The pixels inside an image, of height or width `extent`, that the window of each of `outputs` outputs
// covers.
std::vector<Range> windows(const Pool2dOptions& o, int axis, std::int64_t outputs, std::int64_t extent) {
  std::vector<Range> ranges;
  for (std::int64_t out = 0; out < outputs; ++out) {
    const std::int64_t begin = out * o.stride[axis] - o.padding[axis];
    ranges.push_back({std::max<std::int64_t>(begin, 0), std::min(begin + o.kernel[axis], extent)});
  }
  return ranges;
}

// The outputs whose windows cover each of `extent` pixels.
std::vector<Range> windows_over(const Pool2dOptions& o, int axis, std::int64_t outputs, std::int64_t extent) {
  std::vector<Range> ranges;
  for (std::int64_t in = 0; in < extent; ++in) {
    const std::int64_t last = in + o.padding[axis];
    const std::int64_t before = last - o.kernel[axis];  // the last pixel at which a window ends too early
    ranges.push_back(
        {before < 0 ? 0 : before / o.stride[axis] + 1, std::min(last / o.stride[axis] + 1, outputs)});
  }
  return ranges;
}

float window_size(const Pool2dOptions& o, Range rows, Range columns) {
  return static_cast<float>(o.count_include_pad ? o.kernel[0] * o.kernel[1] : rows.size() * columns.size());
}

// f(first channel, lanes) for blocks of up to 16 channels. `lanes` is a constant for full blocks and for
// single channels, so that arrays of one number per lane stay in registers.
template <typename F>
void for_lanes(std::int64_t channels, const F& f) {
  if (channels == 1) return f(std::int64_t{0}, std::integral_constant<std::int64_t, 1>{});
  std::int64_t c = 0;
  for (; c + kChannelBlock <= channels; c += kChannelBlock) {
    f(c, std::integral_constant<std::int64_t, kChannelBlock>{});
  }
  if (c < channels) f(c, channels - c);
}

// f(lane) for all lanes. As a loop it becomes one vector instruction; written out as 16 steps, which the
// pragma prevents, it would stay scalar.
template <typename Lanes, typename F>
void each_lane(Lanes lanes, const F& f) {
  const std::int64_t count = lanes;
#pragma GCC unroll 1
  for (std::int64_t j = 0; j < count; ++j) f(j);
}

constexpr std::int64_t kElementsPerChunk = 8192;

// f(plane, row, column, first channel, lanes) for every pixel.
template <typename F>
void for_pixels(const KernelContext& ctx, const Planes& planes, const F& f) {
  const std::int64_t row = std::max<std::int64_t>(planes.width * planes.channels, 1);
  const std::int64_t rows_per_chunk = std::max<std::int64_t>(kElementsPerChunk / row, 1);
  parallel_for(ctx, planes.count * planes.height, rows_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized([&] {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t plane = r / planes.height, h = r % planes.height;
        for (std::int64_t w = 0; w < planes.width; ++w) {
          for_lanes(planes.channels, [&](std::int64_t c, const auto lanes) { f(plane, h, w, c, lanes); });
        }
      }
    });
  });
}

// A row of an image with few channels, whose numbers are computed side by side from rows of another image. Number e comes
// from `count[e]` pixels beside each other, from pixel `column[e]` on. Its channel of pixel s of them is at
// source(s)[e] in the row; 0 where s is count[e] or more.
struct GatheredRow {
  GatheredRow(const std::vector<Range>& columns, std::int64_t channels) {
    for (const Range& range : columns) {
      most = std::max(most, static_cast<std::int32_t>(range.size()));
      column.insert(column.end(), static_cast<std::size_t>(channels), static_cast<std::int32_t>(range.begin));
      count.insert(count.end(), static_cast<std::size_t>(channels), static_cast<std::int32_t>(range.size()));
    }
    for (std::int64_t s = 0; s < most; ++s) {
      for (const Range& range : columns) {
        for (std::int64_t c = 0; c < channels; ++c) {
          sources.push_back(s < range.size() ? static_cast<std::int32_t>((range.begin + s) * channels + c) : 0);
        }
      }
    }
  }

  const std::int32_t* source(std::int64_t s) const { return sources.data() + s * static_cast<std::int64_t>(column.size()); }

  std::int32_t most = 0;  // the largest count
  std::vector<std::int32_t> column, count, sources;
};

// Numbers of a row that are computed together.
constexpr std::int64_t kGathered = 64;

// Lanes of channels would be mostly empty. Plain images have one channel each here.
bool gathers(const Planes& planes) { return planes.channels < kChannelBlock; }

// f(plane, row, first number, numbers) for parts of all rows.
template <typename F>
void for_gathered(const KernelContext& ctx, const Planes& planes, const F& f) {
  const std::int64_t size = planes.width * planes.channels;
  const std::int64_t rows_per_chunk = std::max<std::int64_t>(kElementsPerChunk / std::max<std::int64_t>(size, 1), 1);
  parallel_for(ctx, planes.count * planes.height, rows_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized([&] {
      for (std::int64_t r = begin; r < end; ++r) {
        for (std::int64_t e = 0; e < size; e += kGathered) {
          f(r / planes.height, r % planes.height, e, std::min(kGathered, size - e));
        }
      }
    });
  });
}

template <typename T>
void max_forward_gathered(KernelContext& ctx, const Planes& in, const Planes& out, const std::vector<Range>& rows,
                          const std::vector<Range>& columns, const T* x, T* y, std::int64_t* where) {
  const GatheredRow row(columns, out.channels);
  for_gathered(ctx, out, [&](std::int64_t plane, std::int64_t p, std::int64_t begin, std::int64_t n) {
    const std::int32_t *column = row.column.data() + begin, *count = row.count.data() + begin;
    const Range rs = rows[p];
    float best[kGathered], found[kGathered];
    std::int32_t place[kGathered];
    // As below: the first pixel wins, and an empty window has none.
    const auto top = static_cast<std::int32_t>(rs.begin * in.width);
    cpu::vector_loop(0, n, [&](std::int64_t e) {
      best[e] = -std::numeric_limits<float>::infinity();
      place[e] = count[e] > 0 ? top + column[e] : -1;
    });
    if (rs.size() == 0) std::fill_n(place, n, -1);
    for (std::int64_t h = rs.begin; h < rs.end; ++h) {
      const T* const pixels = x + in.pixel(plane, h, 0);
      for (std::int32_t s = 0; s < row.most; ++s) {
        const std::int32_t* const source = row.source(s) + begin;
        const auto index = static_cast<std::int32_t>(h * in.width) + s;
        cpu::vector_loop(0, n, [&](std::int64_t e) { found[e] = static_cast<float>(pixels[source[e]]); });
        cpu::vector_loop(0, n, [&](std::int64_t e) {
          const bool take = (s < count[e]) & !(found[e] <= best[e]) & (best[e] == best[e]);
          best[e] = take ? found[e] : best[e];
          place[e] = take ? index + column[e] : place[e];
        });
      }
    }
    const std::int64_t i = out.pixel(plane, p, 0) + begin;
    cpu::vector_loop(0, n, [&](std::int64_t e) { y[i + e] = static_cast<T>(best[e]); });
    if (!where) return;
    cpu::vector_loop(0, n, [&](std::int64_t e) { where[i + e] = place[e]; });
  });
}

template <typename T>
void max_forward(KernelContext& ctx, const Pool2dOptions& options, const View& x_view, const View& y_view,
                 const View& where_view) {
  const Planes in(x_view), out(y_view);
  check(in.pixels() <= std::numeric_limits<std::int32_t>::max() / kChannelBlock, "max_pool2d: image of {} x {} is too large",
        in.height, in.width);
  const auto rows = windows(options, 0, out.height, in.height);
  const auto columns = windows(options, 1, out.width, in.width);
  const T* x = x_view.as<T>();
  T* y = y_view.as<T>();
  auto* where = where_view ? where_view.as<std::int64_t>() : nullptr;
  if (gathers(out)) return max_forward_gathered(ctx, in, out, rows, columns, x, y, where);
  for_pixels(ctx, out,
             [&](std::int64_t plane, std::int64_t p, std::int64_t q, std::int64_t channel, const auto lanes) {
               // The first pixel of a window wins even against minus infinity; an empty window has none.
               const Range rs = rows[p], cs = columns[q];
               const bool empty = rs.size() * cs.size() == 0;
               const auto first = empty ? -1 : static_cast<std::int32_t>(rs.begin * in.width + cs.begin);
               float best[kChannelBlock];
               std::int32_t place[kChannelBlock];
               each_lane(lanes, [&](std::int64_t j) {
                 best[j] = -std::numeric_limits<float>::infinity();
                 place[j] = first;
               });
               for (std::int64_t h = rs.begin; h < rs.end; ++h) {
                 for (std::int64_t w = cs.begin; w < cs.end; ++w) {
                   const T* pixel = x + in.pixel(plane, h, w) + channel;
                   const auto index = static_cast<std::int32_t>(h * in.width + w);
                   each_lane(lanes, [&](std::int64_t j) {
                     const auto v = static_cast<float>(pixel[j]);
                     const bool take = !(v <= best[j]) & (best[j] == best[j]);  // greater, or the first NaN
                     best[j] = take ? v : best[j];
                     place[j] = take ? index : place[j];
                   });
                 }
               }
               const std::int64_t i = out.pixel(plane, p, q) + channel;
               each_lane(lanes, [&](std::int64_t j) { y[i + j] = static_cast<T>(best[j]); });
               if (!where) return;
               each_lane(lanes, [&](std::int64_t j) { where[i + j] = place[j]; });
             });
}

// dx gathers from all windows that cover it: no two threads add to one element, and each is rounded once.
template <typename T, typename Share>
void backward(KernelContext& ctx, const Pool2dOptions& options, const View& dy, const View& dx_view,
              const Share& share) {
  const Planes out(dy), in(dx_view);
  const auto rows = windows_over(options, 0, out.height, in.height);
  const auto columns = windows_over(options, 1, out.width, in.width);
  T* dx = dx_view.as<T>();
  for_pixels(ctx, in,
             [&](std::int64_t plane, std::int64_t h, std::int64_t w, std::int64_t channel, const auto lanes) {
               float sum[kChannelBlock];
               each_lane(lanes, [&](std::int64_t j) { sum[j] = 0; });
               for (std::int64_t p = rows[h].begin; p < rows[h].end; ++p) {
                 for (std::int64_t q = columns[w].begin; q < columns[w].end; ++q) {
                   const std::int64_t i = out.pixel(plane, p, q) + channel;
                   const auto of_window = share(p, q, h, w);
                   each_lane(lanes, [&](std::int64_t j) { sum[j] += of_window(i + j); });
                 }
               }
               T* pixel = dx + in.pixel(plane, h, w) + channel;
               each_lane(lanes, [&](std::int64_t j) { pixel[j] = static_cast<T>(sum[j]); });
             });
}

template <typename T>
void max_backward_gathered(KernelContext& ctx, const Planes& in, const Planes& out, const std::vector<Range>& rows,
                           const std::vector<Range>& columns, const T* dy, const std::int64_t* where, T* dx) {
  const GatheredRow row(columns, in.channels);
  std::vector<std::int32_t> at;  // the column of each number
  for (std::int32_t w = 0; w < in.width; ++w) at.insert(at.end(), static_cast<std::size_t>(in.channels), w);
  for_gathered(ctx, in, [&](std::int64_t plane, std::int64_t h, std::int64_t begin, std::int64_t n) {
    const std::int32_t *count = row.count.data() + begin, *own = at.data() + begin;
    const auto index = static_cast<std::int32_t>(h * in.width);
    float sum[kGathered] = {}, found[kGathered];
    std::int32_t places[kGathered];
    for (std::int64_t p = rows[h].begin; p < rows[h].end; ++p) {
      const T* const gradients = dy + out.pixel(plane, p, 0);
      const std::int64_t* const maxima = where + out.pixel(plane, p, 0);
      for (std::int32_t s = 0; s < row.most; ++s) {
        const std::int32_t* const source = row.source(s) + begin;
        cpu::vector_loop(0, n, [&](std::int64_t e) { found[e] = static_cast<float>(gradients[source[e]]); });
        cpu::vector_loop(0, n, [&](std::int64_t e) { places[e] = static_cast<std::int32_t>(maxima[source[e]]); });
        cpu::vector_loop(0, n, [&](std::int64_t e) {
          const bool takes = (s < count[e]) & (places[e] == index + own[e]);
          sum[e] += takes ? found[e] : 0.f;
        });
      }
    }
    T* const pixels = dx + in.pixel(plane, h, 0) + begin;
    cpu::vector_loop(0, n, [&](std::int64_t e) { pixels[e] = static_cast<T>(sum[e]); });
  });
}

template <typename T>
void max_backward(KernelContext& ctx, const Pool2dOptions& options, const View& dy_view,
                  const View& where_view, const View& dx) {
  const T* dy = dy_view.as<T>();
  const auto* where = where_view.as<std::int64_t>();
  const std::int64_t width = dx.shape[3];
  if (const Planes in(dx), out(dy_view); gathers(in)) {
    return max_backward_gathered(ctx, in, out, windows_over(options, 0, out.height, in.height),
                                 windows_over(options, 1, out.width, in.width), dy, where, dx.as<T>());
  }
  backward<T>(ctx, options, dy_view, dx, [=](std::int64_t, std::int64_t, std::int64_t h, std::int64_t w) {
    return [=, index = h * width + w](std::int64_t i) {
      const auto g = static_cast<float>(dy[i]);
      return where[i] == index ? g : 0.f;
    };
  });
}

template <typename T>
void avg_backward(KernelContext& ctx, const Pool2dOptions& options, const View& dy_view, const View& dx) {
  const auto rows = windows(options, 0, dy_view.shape[2], dx.shape[2]);
  const auto columns = windows(options, 1, dy_view.shape[3], dx.shape[3]);
  const T* dy = dy_view.as<T>();
  backward<T>(ctx, options, dy_view, dx, [&](std::int64_t p, std::int64_t q, std::int64_t, std::int64_t) {
    const float weight = 1 / window_size(options, rows[p], columns[q]);
    return [=](std::int64_t i) { return static_cast<float>(dy[i]) * weight; };
  });
}

template <typename T>
void avg_forward(KernelContext& ctx, const Pool2dOptions& options, const View& x_view, const View& y_view) {
  const Planes in(x_view), out(y_view);
  const auto rows = windows(options, 0, out.height, in.height);
  const auto columns = windows(options, 1, out.width, in.width);
  const T* x = x_view.as<T>();
  T* y = y_view.as<T>();
  for_pixels(ctx, out,
             [&](std::int64_t plane, std::int64_t p, std::int64_t q, std::int64_t channel, const auto lanes) {
               float sum[kChannelBlock];
               each_lane(lanes, [&](std::int64_t j) { sum[j] = 0; });
               for (std::int64_t h = rows[p].begin; h < rows[p].end; ++h) {
                 for (std::int64_t w = columns[q].begin; w < columns[q].end; ++w) {
                   const T* pixel = x + in.pixel(plane, h, w) + channel;
                   each_lane(lanes, [&](std::int64_t j) { sum[j] += static_cast<float>(pixel[j]); });
                 }
               }
               const float size = window_size(options, rows[p], columns[q]);
               T* pixel = y + out.pixel(plane, p, q) + channel;
               each_lane(lanes, [&](std::int64_t j) { pixel[j] = static_cast<T>(sum[j] / size); });
             });
}

// f(plane) for all of them, in chunks that move about as much as those of for_lanes.
template <typename F>
void for_planes(const KernelContext& ctx, const Planes& planes, const F& f) {
  const std::int64_t size = std::max<std::int64_t>(planes.pixels() * planes.channels, 1);
  const std::int64_t planes_per_chunk = std::max<std::int64_t>(kElementsPerChunk / size, 1);
  parallel_for(ctx, planes.count, planes_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized([&] {
      for (std::int64_t plane = begin; plane < end; ++plane) f(plane);
    });
  });
}

template <typename T>
void global_avg_forward(KernelContext& ctx, const View& x_view, const View& y_view) {
  const Planes planes(x_view);
  const std::int64_t pixels = planes.pixels(), channels = planes.channels;
  const T* x = x_view.as<T>();
  T* y = y_view.as<T>();
  const auto mean = [pixels](double sum) {
    return static_cast<T>(static_cast<float>(sum / static_cast<double>(pixels)));
  };
  for_planes(ctx, planes, [&](std::int64_t plane) {
    const T* in = x + plane * pixels * channels;
    T* out = y + plane * channels;
    if (channels == 1) {
      *out = mean(cpu::lane_sum(pixels, [=](std::int64_t i) { return static_cast<float>(in[i]); }));
      return;
    }
    for_lanes(channels, [&](std::int64_t c, const auto lanes) {
      double sum[kChannelBlock] = {};
      for (std::int64_t i = 0; i < pixels; ++i) {
        each_lane(lanes, [&](std::int64_t j) { sum[j] += static_cast<float>(in[i * channels + c + j]); });
      }
      each_lane(lanes, [&](std::int64_t j) { out[c + j] = mean(sum[j]); });
    });
  });
}

template <typename T>
void global_avg_backward(KernelContext& ctx, const View& dy_view, const View& dx_view) {
  const Planes planes(dx_view);
  const std::int64_t pixels = planes.pixels(), channels = planes.channels;
  const float weight = 1 / static_cast<float>(pixels);
  const T* dy = dy_view.as<T>();
  T* dx = dx_view.as<T>();
  for_planes(ctx, planes, [&](std::int64_t plane) {
    const T* in = dy + plane * channels;
    T* out = dx + plane * pixels * channels;
    if (channels == 1) {
      std::fill_n(out, pixels, static_cast<T>(static_cast<float>(*in) * weight));
      return;
    }
    for (std::int64_t i = 0; i < pixels; ++i) {
      for (std::int64_t c = 0; c < channels; ++c) {
        out[i * channels + c] = static_cast<T>(static_cast<float>(in[c]) * weight);
      }
    }
  });
}

// f32 and bf16 here, f64 by the reference loops.
class CpuPool final : public PoolKernels {
 public:
  void max_forward(KernelContext& ctx, const Pool2dOptions& options, const View& x, const View& y,
                   const View& where) override {
    if (!cpu::is_narrow(x.dtype)) return reference_->max_forward(ctx, options, x, y, where);
    cpu::visit_narrow(x.dtype, [&](auto zero) { lockstep::max_forward<decltype(zero)>(ctx, options, x, y, where); });
  }

  void max_backward(KernelContext& ctx, const Pool2dOptions& options, const View& dy, const View& where,
                    const View& dx) override {
    if (!cpu::is_narrow(dy.dtype)) return reference_->max_backward(ctx, options, dy, where, dx);
    cpu::visit_narrow(dy.dtype, [&](auto zero) { lockstep::max_backward<decltype(zero)>(ctx, options, dy, where, dx); });
  }

  void avg_forward(KernelContext& ctx, const Pool2dOptions& options, const View& x, const View& y) override {
    if (!cpu::is_narrow(x.dtype)) return reference_->avg_forward(ctx, options, x, y);
    cpu::visit_narrow(x.dtype, [&](auto zero) { lockstep::avg_forward<decltype(zero)>(ctx, options, x, y); });
  }

  void avg_backward(KernelContext& ctx, const Pool2dOptions& options, const View& dy,
                    const View& dx) override {
    if (!cpu::is_narrow(dy.dtype)) return reference_->avg_backward(ctx, options, dy, dx);
    cpu::visit_narrow(dy.dtype, [&](auto zero) { lockstep::avg_backward<decltype(zero)>(ctx, options, dy, dx); });
  }

  void global_avg_forward(KernelContext& ctx, const View& x, const View& y) override {
    if (!cpu::is_narrow(x.dtype)) return reference_->global_avg_forward(ctx, x, y);
    cpu::visit_narrow(x.dtype, [&](auto zero) { lockstep::global_avg_forward<decltype(zero)>(ctx, x, y); });
  }

  void global_avg_backward(KernelContext& ctx, const View& dy, const View& dx) override {
    if (!cpu::is_narrow(dy.dtype)) return reference_->global_avg_backward(ctx, dy, dx);
    cpu::visit_narrow(dy.dtype, [&](auto zero) { lockstep::global_avg_backward<decltype(zero)>(ctx, dy, dx); });
  }

 private:
  std::unique_ptr<PoolKernels> reference_ = reference::make_pool();
};

}  // namespace

std::unique_ptr<PoolKernels> make_cpu_pool() { return std::make_unique<CpuPool>(); }

}  // namespace lockstep
