#include "lockstep/backend/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/lanes.h"
#include "lockstep/backend/cpu/max_pool.h"
#include "lockstep/backend/cpu/pool_planes.h"
#include "lockstep/backend/cpu/vector_math.h"

namespace lockstep {
namespace {

using namespace cpu;

template <typename T>
void avg_backward(KernelContext& ctx, const Pool2dOptions& options, const View& dy_view, const View& dx) {
  using C = Computed<T>;
  const auto rows = counted_windows(options, 0, dy_view.shape[2], dx.shape[2]);
  const auto columns = counted_windows(options, 1, dy_view.shape[3], dx.shape[3]);
  const T* dy = dy_view.as<T>();
  gather_windows<T>(ctx, options, dy_view, dx, [&](std::int64_t p, std::int64_t q, std::int64_t, std::int64_t) {
    const C weight = 1 / static_cast<C>(rows[p].size() * columns[q].size());
    return [=](std::int64_t i) { return static_cast<C>(dy[i]) * weight; };
  });
}

template <typename T>
void avg_forward(KernelContext& ctx, const Pool2dOptions& options, const View& x_view, const View& y_view) {
  using C = Computed<T>;
  const Planes in(x_view), out(y_view);
  const auto rows = windows(options, 0, out.height, in.height);
  const auto columns = windows(options, 1, out.width, in.width);
  const auto counted_rows = counted_windows(options, 0, out.height, in.height);
  const auto counted_columns = counted_windows(options, 1, out.width, in.width);
  const T* x = x_view.as<T>();
  T* y = y_view.as<T>();
  for_pixels<T>(ctx, out,
                [&](std::int64_t plane, std::int64_t p, std::int64_t q, std::int64_t channel, const auto lanes) {
                  C sum[kChannelBlock];
                  each_lane(lanes, [&](std::int64_t j) { sum[j] = 0; });
                  for (std::int64_t h = rows[p].begin; h < rows[p].end; ++h) {
                    for (std::int64_t w = columns[q].begin; w < columns[q].end; ++w) {
                      const T* pixel = x + in.pixel(plane, h, w) + channel;
                      each_lane(lanes, [&](std::int64_t j) { sum[j] += static_cast<C>(pixel[j]); });
                    }
                  }
                  const auto size = static_cast<C>(counted_rows[p].size() * counted_columns[q].size());
                  T* pixel = y + out.pixel(plane, p, q) + channel;
                  each_lane(lanes, [&](std::int64_t j) { pixel[j] = static_cast<T>(sum[j] / size); });
                });
}

// Returns the factor that scales up the sum of powers of a window that lies partly outside the image.
template <typename C>
C raised(const Pool2dOptions& o, Range rows, Range columns) {
  return static_cast<C>(o.kernel_size[0] * o.kernel_size[1]) / static_cast<C>(rows.size() * columns.size());
}

template <typename T>
void lp_forward(KernelContext& ctx, const kernels::LpPool& call) {
  using C = Computed<T>;
  const Planes in(call.x), out(call.y);
  const auto rows = windows(call.options, 0, out.height, in.height);
  const auto columns = windows(call.options, 1, out.width, in.width);
  const auto power = static_cast<C>(call.norm_type), root = static_cast<C>(1 / call.norm_type);
  for_pixels<T>(
      ctx, out,
      [&, x = call.x.as<T>(), y = call.y.as<T>()](std::int64_t plane, std::int64_t p, std::int64_t q,
                                                  std::int64_t channel, const auto lanes) {
        C sum[kChannelBlock] = {};
        for (std::int64_t h = rows[p].begin; h < rows[p].end; ++h) {
          for (std::int64_t w = columns[q].begin; w < columns[q].end; ++w) {
            const T* pixel = x + in.pixel(plane, h, w) + channel;
            each_lane(lanes, [&](std::int64_t j) { sum[j] += Math<C>::pow(static_cast<C>(pixel[j]), power); });
          }
        }
        const C factor = raised<C>(call.options, rows[p], columns[q]);
        T* pixel = y + out.pixel(plane, p, q) + channel;
        each_lane(lanes, [&](std::int64_t j) { pixel[j] = static_cast<T>(Math<C>::pow(factor * sum[j], root)); });
      });
}

template <typename T>
void lp_backward(KernelContext& ctx, const kernels::LpPoolBackward& call) {
  using C = Computed<T>;
  const auto rows = windows(call.options, 0, call.dy.shape[2], call.dx.shape[2]);
  const auto columns = windows(call.options, 1, call.dy.shape[3], call.dx.shape[3]);
  const auto power = static_cast<C>(call.norm_type);
  // Gathers the sums of dy y^(1 - power), then multiplies them by the slopes x^(power - 1). A NaN in y gives NaN.
  gather_windows<T>(
      ctx, call.options, call.dy, call.dx,
      [&, y = call.y.as<T>(), dy = call.dy.as<T>()](std::int64_t p, std::int64_t q, std::int64_t, std::int64_t) {
        return [=, factor = raised<C>(call.options, rows[p], columns[q])](std::int64_t i) {
          const auto norm = static_cast<C>(y[i]);
          const C slope = static_cast<C>(dy[i]) * Math<C>::pow(norm, 1 - power) * factor;
          return norm == 0 ? C(0) : slope;
        };
      },
      // Windows of zeros have no gradient. The slope of a power below 1 is infinite there.
      [=, x = call.x.as<T>()](std::int64_t i, C sum) {
        const auto number = static_cast<C>(x[i]);
        return sum == 0 && number == 0 ? C(0) : sum * Math<C>::pow(number, power - 1);
      });
}

// Calls f(plane) for all planes, in chunks that move about as much data as those of for_pixels().
template <typename T, typename F>
void for_planes(const KernelContext& ctx, const Planes& planes, const F& f) {
  const std::int64_t size = std::max<std::int64_t>(planes.pixels() * planes.channels, 1);
  const std::int64_t planes_per_chunk = std::max<std::int64_t>(kElementsPerChunk / size, 1);
  parallel_for(ctx, planes.count, planes_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized_as<T>([&] {
      for (std::int64_t plane = begin; plane < end; ++plane) f(plane);
    });
  });
}

template <typename T>
void global_avg_forward(KernelContext& ctx, const View& x_view, const View& y_view) {
  using C = Computed<T>;
  const Planes planes(x_view);
  const std::int64_t pixels = planes.pixels(), channels = planes.channels;
  const T* x = x_view.as<T>();
  T* y = y_view.as<T>();
  const auto mean = [pixels](double sum) { return static_cast<T>(static_cast<C>(sum / static_cast<double>(pixels))); };
  for_planes<T>(ctx, planes, [&](std::int64_t plane) {
    const T* in = x + plane * pixels * channels;
    T* out = y + plane * channels;
    if (channels == 1) {
      *out = mean(cpu::lane_sum(pixels, [=](std::int64_t i) { return static_cast<C>(in[i]); }));
      return;
    }
    for_lanes(channels, [&](std::int64_t c, const auto lanes) {
      double sum[kChannelBlock] = {};
      for (std::int64_t i = 0; i < pixels; ++i) {
        each_lane(lanes, [&](std::int64_t j) { sum[j] += static_cast<C>(in[i * channels + c + j]); });
      }
      each_lane(lanes, [&](std::int64_t j) { out[c + j] = mean(sum[j]); });
    });
  });
}

template <typename T>
void global_avg_backward(KernelContext& ctx, const View& dy_view, const View& dx_view) {
  using C = Computed<T>;
  const Planes planes(dx_view);
  const std::int64_t pixels = planes.pixels(), channels = planes.channels;
  const C weight = 1 / static_cast<C>(pixels);
  const T* dy = dy_view.as<T>();
  T* dx = dx_view.as<T>();
  for_planes<T>(ctx, planes, [&](std::int64_t plane) {
    const T* in = dy + plane * channels;
    T* out = dx + plane * pixels * channels;
    if (channels == 1) {
      std::fill_n(out, pixels, static_cast<T>(static_cast<C>(*in) * weight));
      return;
    }
    for (std::int64_t i = 0; i < pixels; ++i) {
      for (std::int64_t c = 0; c < channels; ++c) {
        out[i * channels + c] = static_cast<T>(static_cast<C>(in[c]) * weight);
      }
    }
  });
}

class CpuPool final : public PoolKernels {
 public:
  void run(KernelContext& ctx, const kernels::MaxPool& call) override {
    cpu::visit_floating(call.x.dtype, "pool", [&](auto zero) {
      cpu::max_pool<decltype(zero)>(ctx, call.options, call.x, call.y, call.where);
    });
  }

  void run(KernelContext& ctx, const kernels::MaxPoolBackward& call) override {
    cpu::visit_floating(call.dy.dtype, "pool", [&](auto zero) {
      cpu::max_pool_backward<decltype(zero)>(ctx, call.options, call.dy, call.where, call.dx);
    });
  }

  void run(KernelContext& ctx, const kernels::AvgPool& call) override {
    cpu::visit_floating(call.x.dtype, "pool",
                        [&](auto zero) { lockstep::avg_forward<decltype(zero)>(ctx, call.options, call.x, call.y); });
  }

  void run(KernelContext& ctx, const kernels::AvgPoolBackward& call) override {
    cpu::visit_floating(call.dy.dtype, "pool", [&](auto zero) {
      lockstep::avg_backward<decltype(zero)>(ctx, call.options, call.dy, call.dx);
    });
  }

  void run(KernelContext& ctx, const kernels::LpPool& call) override {
    cpu::visit_floating(call.x.dtype, "lp_pool2d", [&](auto zero) { lp_forward<decltype(zero)>(ctx, call); });
  }

  void run(KernelContext& ctx, const kernels::LpPoolBackward& call) override {
    cpu::visit_floating(call.dy.dtype, "lp_pool2d", [&](auto zero) { lp_backward<decltype(zero)>(ctx, call); });
  }

  void run(KernelContext& ctx, const kernels::GlobalAvgPool& call) override {
    cpu::visit_floating(call.x.dtype, "pool",
                        [&](auto zero) { lockstep::global_avg_forward<decltype(zero)>(ctx, call.x, call.y); });
  }

  void run(KernelContext& ctx, const kernels::GlobalAvgPoolBackward& call) override {
    cpu::visit_floating(call.dy.dtype, "pool",
                        [&](auto zero) { lockstep::global_avg_backward<decltype(zero)>(ctx, call.dy, call.dx); });
  }
};

}  // namespace

std::unique_ptr<PoolKernels> make_cpu_pool() { return std::make_unique<CpuPool>(); }

}  // namespace lockstep
