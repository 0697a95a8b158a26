#include "lockstep/backend/pool.h"

#include <limits>

#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/tree.cuh"

namespace lockstep {
inline namespace pool_cu {

using namespace cuda;

// Images [N, C, H, W] for kernels. Thread i works on the i-th vector of elements in memory order: `width` adjacent
// channels in channels-last images, otherwise one element.
struct Images {
  Layout layout;
  unsigned count, channels, height, width;

  explicit Images(const View& x)
      : layout(x.layout), count(static_cast<unsigned>(x.shape[0])), channels(static_cast<unsigned>(x.shape[1])),
        height(static_cast<unsigned>(x.shape[2])), width(static_cast<unsigned>(x.shape[3])) {
    check(x.numel() < std::int64_t{1} << 32, "pool: {} are too many elements", x.shape.str());
  }

  __device__ unsigned pixels() const { return height * width; }
  __device__ std::int64_t at(unsigned n, unsigned c, unsigned h, unsigned w) const {
    const std::int64_t pixel = std::int64_t{h} * width + w;
    switch (layout) {
      case Layout::channels_last: return (std::int64_t{n} * pixels() + pixel) * channels + c;
      case Layout::plain: return (std::int64_t{n} * channels + c) * pixels() + pixel;
      case Layout::blocked16:
        return ((std::int64_t{n} * (channels / kChannelBlock) + c / kChannelBlock) * pixels() + pixel) * kChannelBlock +
               c % kChannelBlock;
    }
    return 0;
  }
};

struct Place {
  unsigned n, c, h, w;
};

// Returns the position of vector i of an array in memory order.
template <int kWidth>
__device__ Place place_of(const Images& s, unsigned i) {
  unsigned block = 0, c = 0;
  if (s.layout != Layout::plain) {
    const unsigned fastest = s.layout == Layout::channels_last ? s.channels / kWidth : unsigned{kChannelBlock};
    c = i % fastest * kWidth;
    i /= fastest;
  }
  const unsigned w = i % s.width;
  i /= s.width;
  const unsigned h = i % s.height;
  i /= s.height;
  if (s.layout != Layout::channels_last) {
    const unsigned blocks = s.layout == Layout::plain ? s.channels : s.channels / unsigned{kChannelBlock};
    block = i % blocks;
    i /= blocks;
    c += s.layout == Layout::plain ? block : block * unsigned{kChannelBlock};
  }
  return {i, c, h, w};
}

// The part of a window that lies inside the image, or the windows that cover a pixel: [begin, end) along one axis.
struct Range {
  int begin, end;
};

struct Window {
  int kernel[2], stride[2], padding[2];
  bool count_include_pad;

  explicit Window(const Pool2dOptions& o) : count_include_pad(o.count_include_pad) {
    for (std::size_t i = 0; i < 2; ++i) {
      kernel[i] = static_cast<int>(o.kernel_size[i]);
      stride[i] = static_cast<int>(o.stride[i]);
      padding[i] = static_cast<int>(o.padding[i]);
    }
  }
  // Returns the pixels of window p.
  __device__ Range pixels(int axis, unsigned p, unsigned extent) const {
    const int first = static_cast<int>(p) * stride[axis] - padding[axis];
    return {std::max(first, 0), std::min(first + kernel[axis], static_cast<int>(extent))};
  }
  // Returns the windows over pixel h, out of `count` windows.
  __device__ Range windows(int axis, unsigned h, unsigned count) const {
    const int last = static_cast<int>(h) + padding[axis], before = last - kernel[axis];
    return {before < 0 ? 0 : before / stride[axis] + 1, std::min(last / stride[axis] + 1, static_cast<int>(count))};
  }
  // Returns the number of elements that output (p, q) is the mean of.
  __device__ int size(unsigned p, unsigned q, const Images& image) const {
    return length(0, p, image.height) * length(1, q, image.width);
  }
  __device__ int length(int axis, unsigned p, unsigned extent) const {
    if (!count_include_pad) {
      const Range inside = pixels(axis, p, extent);
      return inside.end - inside.begin;
    }
    const int begin = static_cast<int>(p) * stride[axis] - padding[axis];
    return std::min(kernel[axis], static_cast<int>(extent) + padding[axis] - begin);
  }
};

// Calls f(a, b) for all pairs of two ranges.
template <typename F>
__device__ void for_each(Range a, Range b, const F& f) {
  for (int i = a.begin; i < a.end; ++i) {
    for (int j = b.begin; j < b.end; ++j) f(static_cast<unsigned>(i), static_cast<unsigned>(j));
  }
}

template <typename T, int kWidth>
__global__ void max_forward_kernel(Images from, Images to, Window window, const T* x, T* y, std::int64_t* where,
                                   unsigned vectors, bool aligned) {
  using C = Compute<T>;
  const auto i = static_cast<unsigned>(thread_number());
  if (i >= vectors) return;
  const Place at = place_of<kWidth>(to, i);
  Vector<T, kWidth> best;
  Vector<std::int64_t, kWidth> place;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    best.at[k] = convert<T>(-std::numeric_limits<C>::infinity());
    place.at[k] = -1;
  }
  for_each(window.pixels(0, at.h, from.height), window.pixels(1, at.w, from.width), [&](unsigned h, unsigned w) {
    const auto v = load<kWidth>(x + from.at(at.n, at.c, h, w), aligned);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const C value = widened(v.at[k]), largest = widened(best.at[k]);
      // NaN counts as the largest; the first among equals wins.
      if (place.at[k] < 0 || value > largest || (value != value && largest == largest)) {
        best.at[k] = v.at[k];
        place.at[k] = std::int64_t{h} * from.width + w;
      }
    }
  });
  const std::int64_t out = std::int64_t{i} * kWidth;
  store(y + out, best, aligned);
  if (where) store(where + out, place, aligned);
}

template <typename T, int kWidth>
__global__ void max_backward_kernel(Images from, Images to, Window window, const T* dy, const std::int64_t* where,
                                    T* dx, unsigned vectors, bool aligned) {
  using C = Compute<T>;
  const auto i = static_cast<unsigned>(thread_number());
  if (i >= vectors) return;
  const Place at = place_of<kWidth>(to, i);
  const std::int64_t pixel = std::int64_t{at.h} * to.width + at.w;
  C sum[kWidth] = {};
  for_each(window.windows(0, at.h, from.height), window.windows(1, at.w, from.width), [&](unsigned p, unsigned q) {
    const std::int64_t place = from.at(at.n, at.c, p, q);
    const auto g = load<kWidth>(dy + place, aligned);
    const auto chosen = load<kWidth>(where + place, aligned);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (chosen.at[k] == pixel) sum[k] += widened(g.at[k]);
    }
  });
  Vector<T, kWidth> out;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) out.at[k] = convert<T>(sum[k]);
  store(dx + std::int64_t{i} * kWidth, out, aligned);
}

template <typename T, int kWidth>
__global__ void avg_forward_kernel(Images from, Images to, Window window, const T* x, T* y, unsigned vectors,
                                   bool aligned) {
  using C = Compute<T>;
  const auto i = static_cast<unsigned>(thread_number());
  if (i >= vectors) return;
  const Place at = place_of<kWidth>(to, i);
  C sum[kWidth] = {};
  for_each(window.pixels(0, at.h, from.height), window.pixels(1, at.w, from.width), [&](unsigned h, unsigned w) {
    const auto v = load<kWidth>(x + from.at(at.n, at.c, h, w), aligned);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum[k] += widened(v.at[k]);
  });
  const C size = static_cast<C>(window.size(at.h, at.w, from));
  Vector<T, kWidth> out;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) out.at[k] = convert<T>(sum[k] / size);
  store(y + std::int64_t{i} * kWidth, out, aligned);
}

template <typename T, int kWidth>
__global__ void avg_backward_kernel(Images from, Images to, Window window, const T* dy, T* dx, unsigned vectors,
                                    bool aligned) {
  using C = Compute<T>;
  const auto i = static_cast<unsigned>(thread_number());
  if (i >= vectors) return;
  const Place at = place_of<kWidth>(to, i);
  C sum[kWidth] = {};
  for_each(window.windows(0, at.h, from.height), window.windows(1, at.w, from.width), [&](unsigned p, unsigned q) {
    const auto g = load<kWidth>(dy + from.at(at.n, at.c, p, q), aligned);
    const C size = static_cast<C>(window.size(p, q, to));
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum[k] += widened(g.at[k]) / size;
  });
  Vector<T, kWidth> out;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) out.at[k] = convert<T>(sum[k]);
  store(dx + std::int64_t{i} * kWidth, out, aligned);
}

template <typename T, int kWidth>
__global__ void lp_forward_kernel(Images from, Images to, Window window, double norm_type, const T* x, T* y,
                                  unsigned vectors, bool aligned) {
  using C = Compute<T>;
  const auto i = static_cast<unsigned>(thread_number());
  if (i >= vectors) return;
  const Place at = place_of<kWidth>(to, i);
  const C power = static_cast<C>(norm_type), root = static_cast<C>(1 / norm_type);
  C sum[kWidth] = {};
  for_each(window.pixels(0, at.h, from.height), window.pixels(1, at.w, from.width), [&](unsigned h, unsigned w) {
    const auto v = load<kWidth>(x + from.at(at.n, at.c, h, w), aligned);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum[k] += std::pow(C(widened(v.at[k])), power);
  });
  const C factor = static_cast<C>(window.kernel[0] * window.kernel[1]) / static_cast<C>(window.size(at.h, at.w, from));
  Vector<T, kWidth> out;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) out.at[k] = convert<T>(std::pow(factor * sum[k], root));
  store(y + std::int64_t{i} * kWidth, out, aligned);
}

template <typename T, int kWidth>
__global__ void lp_backward_kernel(Images from, Images to, Window window, double norm_type, const T* x, const T* y,
                                   const T* dy, T* dx, unsigned vectors, bool aligned) {
  using C = Compute<T>;
  const auto i = static_cast<unsigned>(thread_number());
  if (i >= vectors) return;
  const Place at = place_of<kWidth>(to, i);
  const C power = static_cast<C>(norm_type), whole = static_cast<C>(window.kernel[0] * window.kernel[1]);
  C sum[kWidth] = {};
  for_each(window.windows(0, at.h, from.height), window.windows(1, at.w, from.width), [&](unsigned p, unsigned q) {
    const std::int64_t place = from.at(at.n, at.c, p, q);
    const auto g = load<kWidth>(dy + place, aligned), norm = load<kWidth>(y + place, aligned);
    const C factor = whole / static_cast<C>(window.size(p, q, to));
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const C root = widened(norm.at[k]);
      if (root != 0) sum[k] += widened(g.at[k]) * std::pow(root, 1 - power) * factor;
    }
  });
  const auto v = load<kWidth>(x + std::int64_t{i} * kWidth, aligned);
  Vector<T, kWidth> out;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    // Windows of zeros have no gradient. The slope of a power below 1 is infinite there.
    const C number = widened(v.at[k]);
    out.at[k] = sum[k] == 0 && number == 0 ? convert<T>(C(0)) : convert<T>(sum[k] * std::pow(number, power - 1));
  }
  store(dx + std::int64_t{i} * kWidth, out, aligned);
}

// y is [N, C]. Plain images get a warp per channel, others a thread per vector of channels.
template <typename T, int kWidth>
__global__ void global_avg_kernel(Images from, const T* x, T* y, unsigned vectors, bool aligned) {
  using C = Compute<T>;
  const std::int64_t thread = thread_number();  // up to 32 for each of 2^32 planes
  const bool shares = from.layout == Layout::plain;
  const auto i = static_cast<unsigned>(shares ? thread / 32 : thread);
  const unsigned first = shares ? static_cast<unsigned>(thread % 32) : 0, step = shares ? 32 : 1;
  if ((shares ? thread / 32 : thread) >= vectors) return;
  const unsigned n = i * kWidth / from.channels, c = i * kWidth % from.channels;
  C sum[kWidth] = {};
  for (unsigned pixel = first; pixel < from.pixels(); pixel += step) {
    const auto v = load<kWidth>(x + from.at(n, c, 0, pixel), aligned);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum[k] += widened(v.at[k]);
  }
  Vector<T, kWidth> out;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    if (shares) sum[k] = warp_sum(sum[k]);
    out.at[k] = convert<T>(sum[k] / static_cast<C>(from.pixels()));
  }
  if (first == 0) store(y + std::int64_t{i} * kWidth, out, aligned);
}

template <typename T, int kWidth>
__global__ void global_avg_backward_kernel(Images to, const T* dy, T* dx, unsigned vectors, bool aligned) {
  using C = Compute<T>;
  const auto i = static_cast<unsigned>(thread_number());
  if (i >= vectors) return;
  const Place at = place_of<kWidth>(to, i);
  const auto g = load<kWidth>(dy + std::int64_t{at.n} * to.channels + at.c, aligned);
  Vector<T, kWidth> out;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) out.at[k] = convert<T>(widened(g.at[k]) / static_cast<C>(to.pixels()));
  store(dx + std::int64_t{i} * kWidth, out, aligned);
}

// Calls f(element, vector width, threads) with one thread per vector of x.
template <typename F>
void visit_vectors(const View& x, const F& f) {
  if (x.numel() == 0) return;
  visit_floating(x.dtype, "pool", [&](auto zero) {
    constexpr int kWidth = kVector<decltype(zero)>;
    const bool by_vectors = x.layout == Layout::channels_last && x.shape[1] % kWidth == 0;
    by_vectors ? f(zero, std::integral_constant<int, kWidth>{}, static_cast<unsigned>(x.numel() / kWidth))
               : f(zero, std::integral_constant<int, 1>{}, static_cast<unsigned>(x.numel()));
  });
}

class CudaPool final : public PoolKernels {
 public:
  void run(KernelContext& ctx, const kernels::MaxPool& call) override {
    visit_vectors(call.y, [&](auto zero, auto width, unsigned vectors) {
      using T = decltype(zero);
      start(ctx, vectors, max_forward_kernel<T, width>, Images(call.x), Images(call.y), Window(call.options),
            call.x.as<T>(), call.y.as<T>(), call.where ? call.where.as<std::int64_t>() : nullptr, vectors,
            all_aligned(call.x.data, call.y.data, call.where.data));
    });
  }

  void run(KernelContext& ctx, const kernels::MaxPoolBackward& call) override {
    visit_vectors(call.dx, [&](auto zero, auto width, unsigned vectors) {
      using T = decltype(zero);
      start(ctx, vectors, max_backward_kernel<T, width>, Images(call.dy), Images(call.dx), Window(call.options),
            call.dy.as<T>(), call.where.as<std::int64_t>(), call.dx.as<T>(), vectors,
            all_aligned(call.dy.data, call.where.data, call.dx.data));
    });
  }

  void run(KernelContext& ctx, const kernels::AvgPool& call) override {
    visit_vectors(call.y, [&](auto zero, auto width, unsigned vectors) {
      using T = decltype(zero);
      start(ctx, vectors, avg_forward_kernel<T, width>, Images(call.x), Images(call.y), Window(call.options),
            call.x.as<T>(), call.y.as<T>(), vectors, all_aligned(call.x.data, call.y.data));
    });
  }

  void run(KernelContext& ctx, const kernels::AvgPoolBackward& call) override {
    visit_vectors(call.dx, [&](auto zero, auto width, unsigned vectors) {
      using T = decltype(zero);
      start(ctx, vectors, avg_backward_kernel<T, width>, Images(call.dy), Images(call.dx), Window(call.options),
            call.dy.as<T>(), call.dx.as<T>(), vectors, all_aligned(call.dy.data, call.dx.data));
    });
  }

  void run(KernelContext& ctx, const kernels::LpPool& call) override {
    visit_vectors(call.y, [&](auto zero, auto width, unsigned vectors) {
      using T = decltype(zero);
      start(ctx, vectors, lp_forward_kernel<T, width>, Images(call.x), Images(call.y), Window(call.options),
            call.norm_type, call.x.as<T>(), call.y.as<T>(), vectors, all_aligned(call.x.data, call.y.data));
    });
  }

  void run(KernelContext& ctx, const kernels::LpPoolBackward& call) override {
    visit_vectors(call.dx, [&](auto zero, auto width, unsigned vectors) {
      using T = decltype(zero);
      start(ctx, vectors, lp_backward_kernel<T, width>, Images(call.dy), Images(call.dx), Window(call.options),
            call.norm_type, call.x.as<T>(), call.y.as<T>(), call.dy.as<T>(), call.dx.as<T>(), vectors,
            all_aligned(call.x.data, call.y.data, call.dy.data, call.dx.data));
    });
  }

  void run(KernelContext& ctx, const kernels::GlobalAvgPool& call) override {
    if (call.x.numel() == 0) return;
    View pooled = call.y;
    pooled.layout = call.x.layout;  // the same order
    visit_vectors(pooled, [&](auto zero, auto width, unsigned vectors) {
      using T = decltype(zero);
      const std::int64_t threads = std::int64_t{vectors} * (call.x.layout == Layout::plain ? 32 : 1);
      start(ctx, threads, global_avg_kernel<T, width>, Images(call.x), call.x.as<T>(), call.y.as<T>(), vectors,
            all_aligned(call.x.data, call.y.data));
    });
  }

  void run(KernelContext& ctx, const kernels::GlobalAvgPoolBackward& call) override {
    visit_vectors(call.dx, [&](auto zero, auto width, unsigned vectors) {
      using T = decltype(zero);
      start(ctx, vectors, global_avg_backward_kernel<T, width>, Images(call.dx), call.dy.as<T>(), call.dx.as<T>(),
            vectors, all_aligned(call.dy.data, call.dx.data));
    });
  }

 private:
  template <typename... Parameters, typename... Arguments>
  static void start(KernelContext& ctx, std::int64_t threads, void (*kernel)(Parameters...),
                    const Arguments&... arguments) {
    launch(kernel, blocks_for(threads), dim3(kThreads), 0, cuda_context(ctx).stream(), arguments...);
  }
};

}  // namespace pool_cu

std::unique_ptr<PoolKernels> make_cuda_pool() { return std::make_unique<CudaPool>(); }

}  // namespace lockstep
