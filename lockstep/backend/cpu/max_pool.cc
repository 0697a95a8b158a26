#include "lockstep/backend/cpu/max_pool.h"

#include <limits>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/pool_planes.h"

namespace lockstep::cpu {
namespace {

// A row of an image with few channels, whose elements are computed side by side from rows of another image. Element e
// comes from `count[e]` adjacent pixels, beginning at pixel `column[e]`. Vectors may extend past the last element.
struct GatheredRow {
  GatheredRow(const std::vector<Range>& columns, const Planes& from)
      : channels(from.channels), width(static_cast<std::int64_t>(columns.size())), from(from) {
    for (const Range& range : columns) {
      most = std::max(most, static_cast<std::int32_t>(range.size()));
      column.insert(column.end(), static_cast<std::size_t>(channels), static_cast<std::int32_t>(range.begin));
      count.insert(count.end(), static_cast<std::size_t>(channels), static_cast<std::int32_t>(range.size()));
    }
    column.resize(column.size() + kChannelBlock);
    count.resize(column.size());
    for (std::int64_t s = 0; s < most; ++s) {
      for (const Range& range : columns) sources.push_back(s < range.size() ? (range.begin + s) * channels : 0);
    }
  }

  // Copies source pixel s of each of the pixels [begin, begin + n) from `row`, a row of `plane`. Copies of constant
  // size also read and write past a pixel; the next copy overwrites what they wrote there.
  template <typename T, typename To>
  void gather(std::int64_t s, std::int64_t begin, std::int64_t n, const T* row, std::int64_t plane, To* to) const {
    const auto copy = [=, source = sources.data() + s * width + begin, step = channels](const auto size) {
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t c = 0; c < size; ++c) to[i * step + c] = static_cast<To>(row[source[i] + c]);
      }
    };
    using Half = std::integral_constant<std::int64_t, kChannelBlock / 2>;
    using Block = std::integral_constant<std::int64_t, kChannelBlock>;
    if (channels == 1) {
      copy(std::integral_constant<std::int64_t, 1>());
    } else if ((from.count - plane - 1) * from.pixels() * channels < Block()) {
      copy(channels);
    } else if (channels <= Half()) {
      copy(Half());
    } else {
      copy(Block());
    }
  }

  std::int64_t channels, width;
  Planes from;
  std::int32_t most = 0;  // the largest count
  std::vector<std::int32_t> column, count;
  std::vector<std::int64_t> sources;  // offsets of each pixel's sources in their row
};

// Number of a row's elements that are computed together, and the room for vectors that extend past them.
constexpr std::int64_t kGathered = 256, kRoom = kGathered + kChannelBlock;

constexpr std::int64_t whole_blocks(std::int64_t n) { return (n + kChannelBlock - 1) / kChannelBlock * kChannelBlock; }

// Whether lanes of channels would be mostly empty. A plain image has one channel per plane here.
bool gathers(const Planes& planes) { return planes.channels < kChannelBlock; }

// Calls f(plane, row, first pixel, pixels) for parts of all rows.
template <typename T, typename F>
void for_gathered(const KernelContext& ctx, const Planes& planes, const F& f) {
  const std::int64_t size = planes.width * planes.channels,
                     pixels = kGathered / std::max<std::int64_t>(planes.channels, 1);
  const std::int64_t rows_per_chunk = std::max<std::int64_t>(kElementsPerChunk / std::max<std::int64_t>(size, 1), 1);
  parallel_for(ctx, planes.count * planes.height, rows_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    vectorized_as<T>([&] {
      for (std::int64_t r = begin; r < end; ++r) {
        for (std::int64_t w = 0; w < planes.width; w += pixels)
          f(r / planes.height, r % planes.height, w, std::min(pixels, planes.width - w));
      }
    });
  });
}

template <typename T>
void max_forward_gathered(KernelContext& ctx, const Planes& in, const Planes& out, const std::vector<Range>& rows,
                          const std::vector<Range>& columns, const T* x, T* y, std::int64_t* where) {
  using C = Computed<T>;
  const GatheredRow row(columns, in);
  for_gathered<T>(ctx, out, [&](std::int64_t plane, std::int64_t p, std::int64_t q, std::int64_t pixels) {
    const std::int64_t begin = q * out.channels, n = pixels * out.channels, whole = whole_blocks(n);
    const std::int32_t *column = row.column.data() + begin, *count = row.count.data() + begin;
    const Range rs = rows[p];
    C best[kRoom], found[kRoom] = {};
    std::int32_t place[kRoom];
    // As below, the first pixel wins, and an empty window has none.
    const auto top = static_cast<std::int32_t>(rs.begin * in.width);
    vector_loop(0, whole, [&](std::int64_t e) {
      best[e] = -std::numeric_limits<C>::infinity();
      place[e] = count[e] > 0 ? top + column[e] : -1;
    });
    if (rs.size() == 0) std::fill_n(place, n, -1);
    for (std::int64_t h = rs.begin; h < rs.end; ++h) {
      for (std::int32_t s = 0; s < row.most; ++s) {
        const auto index = static_cast<std::int32_t>(h * in.width) + s;
        row.gather(s, q, pixels, x + in.pixel(plane, h, 0), plane, found);
        vector_loop(0, whole, [&](std::int64_t e) {
          const bool take = (s < count[e]) & !(found[e] <= best[e]) & (best[e] == best[e]);
          best[e] = take ? found[e] : best[e];
          place[e] = take ? index + column[e] : place[e];
        });
      }
    }
    const std::int64_t i = out.pixel(plane, p, q);
    vector_loop(0, n, [&](std::int64_t e) { y[i + e] = static_cast<T>(best[e]); });
    if (!where) return;
    vector_loop(0, n, [&](std::int64_t e) { where[i + e] = place[e]; });
  });
}

template <typename T>
void max_backward_gathered(KernelContext& ctx, const Planes& in, const Planes& out, const std::vector<Range>& rows,
                           const std::vector<Range>& columns, const T* dy, const std::int64_t* where, T* dx) {
  const GatheredRow row(columns, out);
  std::vector<std::int32_t> at;  // the column of each element
  for (std::int32_t w = 0; w < in.width; ++w) at.insert(at.end(), static_cast<std::size_t>(in.channels), w);
  at.resize(at.size() + kChannelBlock);  // vectors read past the last element
  for_gathered<T>(ctx, in, [&](std::int64_t plane, std::int64_t h, std::int64_t w, std::int64_t pixels) {
    const std::int64_t begin = w * in.channels, n = pixels * in.channels, whole = whole_blocks(n);
    const std::int32_t *count = row.count.data() + begin, *own = at.data() + begin;
    const auto index = static_cast<std::int32_t>(h * in.width);
    Computed<T> sum[kRoom], found[kRoom] = {};
    std::int32_t places[kRoom] = {};
    vector_loop(0, whole, [&](std::int64_t e) { sum[e] = 0; });
    for (std::int64_t p = rows[h].begin; p < rows[h].end; ++p) {
      for (std::int32_t s = 0; s < row.most; ++s) {
        row.gather(s, w, pixels, dy + out.pixel(plane, p, 0), plane, found);
        row.gather(s, w, pixels, where + out.pixel(plane, p, 0), plane, places);
        vector_loop(0, whole, [&](std::int64_t e) {
          const bool takes = (s < count[e]) & (places[e] == index + own[e]);
          sum[e] += takes ? found[e] : 0;
        });
      }
    }
    T* const to = dx + in.pixel(plane, h, w);
    vector_loop(0, n, [&](std::int64_t e) { to[e] = static_cast<T>(sum[e]); });
  });
}

}  // namespace

template <typename T>
void max_pool(KernelContext& ctx, const Pool2dOptions& options, const View& x_view, const View& y_view,
              const View& where_view) {
  using C = Computed<T>;
  const Planes in(x_view), out(y_view);
  check(in.pixels() <= std::numeric_limits<std::int32_t>::max() / kChannelBlock,
        "max_pool2d: image of {} x {} is too large", in.height, in.width);
  const auto rows = windows(options, 0, out.height, in.height);
  const auto columns = windows(options, 1, out.width, in.width);
  const T* x = x_view.as<T>();
  T* y = y_view.as<T>();
  auto* where = where_view ? where_view.as<std::int64_t>() : nullptr;
  if (gathers(out)) return max_forward_gathered(ctx, in, out, rows, columns, x, y, where);
  for_pixels<T>(ctx, out,
                [&](std::int64_t plane, std::int64_t p, std::int64_t q, std::int64_t channel, const auto lanes) {
                  // The first pixel of a window wins even against minus infinity; an empty window has none.
                  const Range rs = rows[p], cs = columns[q];
                  const bool empty = rs.size() * cs.size() == 0;
                  const auto first = empty ? -1 : static_cast<std::int32_t>(rs.begin * in.width + cs.begin);
                  C best[kChannelBlock];
                  std::int32_t place[kChannelBlock];
                  each_lane(lanes, [&](std::int64_t j) {
                    best[j] = -std::numeric_limits<C>::infinity();
                    place[j] = first;
                  });
                  for (std::int64_t h = rs.begin; h < rs.end; ++h) {
                    for (std::int64_t w = cs.begin; w < cs.end; ++w) {
                      const T* pixel = x + in.pixel(plane, h, w) + channel;
                      const auto index = static_cast<std::int32_t>(h * in.width + w);
                      each_lane(lanes, [&](std::int64_t j) {
                        const auto v = static_cast<C>(pixel[j]);
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

template <typename T>
void max_pool_backward(KernelContext& ctx, const Pool2dOptions& options, const View& dy_view, const View& where_view,
                       const View& dx) {
  using C = Computed<T>;
  const T* dy = dy_view.as<T>();
  const auto* where = where_view.as<std::int64_t>();
  const std::int64_t width = dx.shape[3];
  if (const Planes in(dx), out(dy_view); gathers(in)) {
    return max_backward_gathered(ctx, in, out, windows_over(options, 0, out.height, in.height),
                                 windows_over(options, 1, out.width, in.width), dy, where, dx.as<T>());
  }
  gather_windows<T>(ctx, options, dy_view, dx, [=](std::int64_t, std::int64_t, std::int64_t h, std::int64_t w) {
    return [=, index = h * width + w](std::int64_t i) {
      const auto g = static_cast<C>(dy[i]);
      return where[i] == index ? g : C(0);
    };
  });
}

template void max_pool<float>(KernelContext&, const Pool2dOptions&, const View&, const View&, const View&);
template void max_pool<BFloat16>(KernelContext&, const Pool2dOptions&, const View&, const View&, const View&);
template void max_pool<double>(KernelContext&, const Pool2dOptions&, const View&, const View&, const View&);
template void max_pool_backward<float>(KernelContext&, const Pool2dOptions&, const View&, const View&, const View&);
template void max_pool_backward<BFloat16>(KernelContext&, const Pool2dOptions&, const View&, const View&, const View&);
template void max_pool_backward<double>(KernelContext&, const Pool2dOptions&, const View&, const View&, const View&);

}  // namespace lockstep::cpu
