#include "lockstep/backend/cpu/max_pool.h"

#include <limits>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/pool_planes.h"

namespace lockstep::cpu {
namespace {

// A row of an image with few channels, whose numbers are computed side by side from rows of another image. Number e
// comes from `count[e]` adjacent pixels, beginning at pixel `column[e]`. Its channel of their pixel s is at
// source(s)[e] in the row; 0 if s is count[e] or more.
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

  const std::int32_t* source(std::int64_t s) const {
    return sources.data() + s * static_cast<std::int64_t>(column.size());
  }

  std::int32_t most = 0;  // the largest count
  std::vector<std::int32_t> column, count, sources;
};

// Numbers of a row computed together.
constexpr std::int64_t kGathered = 64;

// Lanes of channels would be mostly empty. Plain images have one channel each here.
bool gathers(const Planes& planes) { return planes.channels < kChannelBlock; }

// Calls f(plane, row, first number, numbers) for parts of all rows.
template <typename F>
void for_gathered(const KernelContext& ctx, const Planes& planes, const F& f) {
  const std::int64_t size = planes.width * planes.channels;
  const std::int64_t rows_per_chunk = std::max<std::int64_t>(kElementsPerChunk / std::max<std::int64_t>(size, 1), 1);
  parallel_for(ctx, planes.count * planes.height, rows_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    vectorized([&] {
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
    // As below, the first pixel wins, and an empty window has none.
    const auto top = static_cast<std::int32_t>(rs.begin * in.width);
    vector_loop(0, n, [&](std::int64_t e) {
      best[e] = -std::numeric_limits<float>::infinity();
      place[e] = count[e] > 0 ? top + column[e] : -1;
    });
    if (rs.size() == 0) std::fill_n(place, n, -1);
    for (std::int64_t h = rs.begin; h < rs.end; ++h) {
      const T* const pixels = x + in.pixel(plane, h, 0);
      for (std::int32_t s = 0; s < row.most; ++s) {
        const std::int32_t* const source = row.source(s) + begin;
        const auto index = static_cast<std::int32_t>(h * in.width) + s;
        vector_loop(0, n, [&](std::int64_t e) { found[e] = static_cast<float>(pixels[source[e]]); });
        vector_loop(0, n, [&](std::int64_t e) {
          const bool take = (s < count[e]) & !(found[e] <= best[e]) & (best[e] == best[e]);
          best[e] = take ? found[e] : best[e];
          place[e] = take ? index + column[e] : place[e];
        });
      }
    }
    const std::int64_t i = out.pixel(plane, p, 0) + begin;
    vector_loop(0, n, [&](std::int64_t e) { y[i + e] = static_cast<T>(best[e]); });
    if (!where) return;
    vector_loop(0, n, [&](std::int64_t e) { where[i + e] = place[e]; });
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
        vector_loop(0, n, [&](std::int64_t e) { found[e] = static_cast<float>(gradients[source[e]]); });
        vector_loop(0, n, [&](std::int64_t e) { places[e] = static_cast<std::int32_t>(maxima[source[e]]); });
        vector_loop(0, n, [&](std::int64_t e) {
          const bool takes = (s < count[e]) & (places[e] == index + own[e]);
          sum[e] += takes ? found[e] : 0.f;
        });
      }
    }
    T* const pixels = dx + in.pixel(plane, h, 0) + begin;
    vector_loop(0, n, [&](std::int64_t e) { pixels[e] = static_cast<T>(sum[e]); });
  });
}

}  // namespace

template <typename T>
void max_pool(KernelContext& ctx, const Pool2dOptions& options, const View& x_view, const View& y_view,
              const View& where_view) {
  const Planes in(x_view), out(y_view);
  check(in.pixels() <= std::numeric_limits<std::int32_t>::max() / kChannelBlock,
        "max_pool2d: image of {} x {} is too large", in.height, in.width);
  const auto rows = windows(options, 0, out.height, in.height);
  const auto columns = windows(options, 1, out.width, in.width);
  const T* x = x_view.as<T>();
  T* y = y_view.as<T>();
  auto* where = where_view ? where_view.as<std::int64_t>() : nullptr;
  if (gathers(out)) return max_forward_gathered(ctx, in, out, rows, columns, x, y, where);
  for_pixels(ctx, out, [&](std::int64_t plane, std::int64_t p, std::int64_t q, std::int64_t channel, const auto lanes) {
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

template <typename T>
void max_pool_backward(KernelContext& ctx, const Pool2dOptions& options, const View& dy_view, const View& where_view,
                       const View& dx) {
  const T* dy = dy_view.as<T>();
  const auto* where = where_view.as<std::int64_t>();
  const std::int64_t width = dx.shape[3];
  if (const Planes in(dx), out(dy_view); gathers(in)) {
    return max_backward_gathered(ctx, in, out, windows_over(options, 0, out.height, in.height),
                                 windows_over(options, 1, out.width, in.width), dy, where, dx.as<T>());
  }
  gather_windows<T>(ctx, options, dy_view, dx, [=](std::int64_t, std::int64_t, std::int64_t h, std::int64_t w) {
    return [=, index = h * width + w](std::int64_t i) {
      const auto g = static_cast<float>(dy[i]);
      return where[i] == index ? g : 0.f;
    };
  });
}

template void max_pool<float>(KernelContext&, const Pool2dOptions&, const View&, const View&, const View&);
template void max_pool<BFloat16>(KernelContext&, const Pool2dOptions&, const View&, const View&, const View&);
template void max_pool_backward<float>(KernelContext&, const Pool2dOptions&, const View&, const View&, const View&);
template void max_pool_backward<BFloat16>(KernelContext&, const Pool2dOptions&, const View&, const View&, const View&);

}  // namespace lockstep::cpu
