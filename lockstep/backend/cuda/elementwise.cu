#include "lockstep/backend/elementwise.h"

#include <cmath>
#include <numbers>

#include "lockstep/backend/cuda/element.cuh"
#include "lockstep/backend/cuda/families.h"

namespace lockstep {
namespace {

using namespace cuda;

// y[i] = f(x[i]...), a vector of elements for each thread. Arguments and result of f are Compute<T>.
template <typename T, typename F, typename... X>
__device__ void map(std::int64_t n, bool aligned, T* y, const F& f, const X*... x) {
  constexpr int kWidth = kVector<T>;
  const std::int64_t i = thread_number() * kWidth;
  if (i + kWidth <= n) {
    auto result = [&](const auto&... v) {
      Vector<T, kWidth> out;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) out.at[k] = convert<T>(f(widened(v.at[k])...));
      return out;
    }(load<kWidth>(x + i, aligned)...);
    store(y + i, result, aligned);
  } else {
    for (std::int64_t k = i; k < n; ++k) y[k] = convert<T>(f(widened(x[k])...));
  }
}

// The distribution function and the density of the standard normal distribution.
template <typename C>
__device__ C normal_cdf(C x) {
  return C(0.5) * std::erfc(-x * C(1 / std::numbers::sqrt2));
}
template <typename C>
__device__ C normal_pdf(C x) {
  return C(0.3989422804014327) * std::exp(C(-0.5) * x * x);
}

template <typename T>
__global__ void unary_kernel(UnaryOp op, const T* x, T* y, std::int64_t n, bool aligned) {
  using C = Compute<T>;
  auto with = [&](auto f) { map(n, aligned, y, f, x); };
  switch (op) {
    case UnaryOp::negate: return with([](C v) { return -v; });
    case UnaryOp::exp: return with([](C v) { return std::exp(v); });
    case UnaryOp::log: return with([](C v) { return std::log(v); });
    case UnaryOp::sqrt: return with([](C v) { return std::sqrt(v); });
    case UnaryOp::square: return with([](C v) { return v * v; });
    case UnaryOp::abs: return with([](C v) { return std::abs(v); });
    case UnaryOp::relu: return with([](C v) { return v <= 0 ? C(0) : v; });  // NaN stays NaN
    case UnaryOp::gelu: return with([](C v) { return v * normal_cdf(v); });
    case UnaryOp::sigmoid: return with([](C v) { return 1 / (1 + std::exp(-v)); });
    case UnaryOp::tanh: return with([](C v) { return std::tanh(v); });
  }
}

// s is the output for some operations, the input for the others: see unary_saves_output.
template <typename T>
__global__ void unary_backward_kernel(UnaryOp op, const T* saved, const T* dy, T* dx, std::int64_t n, bool aligned) {
  using C = Compute<T>;
  auto with = [&](auto f) { map(n, aligned, dx, f, saved, dy); };
  switch (op) {
    case UnaryOp::negate: return with([](C, C g) { return -g; });
    case UnaryOp::exp: return with([](C s, C g) { return g * s; });
    case UnaryOp::log: return with([](C s, C g) { return g / s; });
    case UnaryOp::sqrt: return with([](C s, C g) { return g * (C(0.5) / s); });
    case UnaryOp::square: return with([](C s, C g) { return g * (2 * s); });
    case UnaryOp::abs: return with([](C s, C g) { return s > 0 ? g : s < 0 ? -g : 0 * g; });
    case UnaryOp::relu: return with([](C s, C g) { return s > 0 ? g : 0 * g; });
    case UnaryOp::gelu: return with([](C s, C g) { return g * (normal_cdf(s) + s * normal_pdf(s)); });
    case UnaryOp::sigmoid: return with([](C s, C g) { return g * (s * (1 - s)); });
    case UnaryOp::tanh: return with([](C s, C g) { return g * (1 - s * s); });
  }
}

template <typename T>
__global__ void affine_kernel(double scale, double shift, const T* x, T* y, std::int64_t n, bool aligned) {
  using C = Compute<T>;
  map(n, aligned, y, [a = static_cast<C>(scale), b = static_cast<C>(shift)](C v) { return a * v + b; }, x);
}

template <typename T>
__global__ void fill_kernel(T value, T* y, std::int64_t n, bool aligned) {
  constexpr int kWidth = kVector<T>;
  const std::int64_t i = thread_number() * kWidth;
  if (i + kWidth <= n) {
    Vector<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.at[k] = value;
    store(y + i, out, aligned);
  } else {
    for (std::int64_t k = i; k < n; ++k) y[k] = value;
  }
}

// Calls body with the function of the operation.
template <typename C, typename Body>
__device__ void visit_operation(BinaryOp op, const Body& body) {
  switch (op) {
    case BinaryOp::add: return body([](C a, C b) { return a + b; });
    case BinaryOp::subtract: return body([](C a, C b) { return a - b; });
    case BinaryOp::multiply: return body([](C a, C b) { return a * b; });
    case BinaryOp::divide: return body([](C a, C b) { return a / b; });
  }
}

template <typename T>
__global__ void binary_kernel(BinaryOp op, const T* a, const T* b, T* out, std::int64_t n, bool aligned) {
  visit_operation<Compute<T>>(op, [&](auto f) { map(n, aligned, out, f, a, b); });
}

// How the operands move along the axes of the result, innermost first. Strides of 0 repeat. Neighbouring axes on
// which each operand does the same are one.
struct Broadcast {
  struct Axis {
    std::int64_t extent, a, b;
  };
  int rank = 0;
  Axis axes[Shape::kMaxRank] = {};
};

Broadcast broadcast(const Shape& a, const Shape& b, const Shape& out) {
  Broadcast result;
  std::int64_t stride_a = 1, stride_b = 1;
  for (int k = 1; k <= out.rank(); ++k) {
    const std::int64_t extent = out[-k];
    if (extent == 1) continue;
    const bool moves_a = k <= a.rank() && a[-k] != 1, moves_b = k <= b.rank() && b[-k] != 1;
    Broadcast::Axis* last = result.rank > 0 ? &result.axes[result.rank - 1] : nullptr;
    if (last && moves_a == (last->a != 0) && moves_b == (last->b != 0)) {
      last->extent *= extent;
    } else {
      result.axes[result.rank++] = {extent, moves_a ? stride_a : 0, moves_b ? stride_b : 0};
    }
    if (moves_a) stride_a *= extent;
    if (moves_b) stride_b *= extent;
  }
  return result;
}

template <typename T>
__global__ void broadcast_kernel(BinaryOp op, const __grid_constant__ Broadcast shape, const T* a, const T* b, T* out, std::int64_t n) {
  const std::int64_t i = thread_number();
  if (i >= n) return;
  std::int64_t rest = i;
  for (int k = 0; k < shape.rank; ++k) {
    const Broadcast::Axis& axis = shape.axes[k];
    const std::int64_t place = rest % axis.extent;
    rest /= axis.extent;
    a += place * axis.a;
    b += place * axis.b;
  }
  visit_operation<Compute<T>>(op, [&](auto f) { out[i] = convert<T>(f(widened(*a), widened(*b))); });
}

// One thread for every vector of elements.
template <typename T, typename... Parameters, typename... Arguments>
void launch_map(KernelContext& ctx, std::int64_t n, void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (n == 0) return;
  launch(kernel, blocks_for(ceil_div(n, kVector<T>)), dim3(kThreads), 0, cuda_context(ctx).stream(), arguments...);
}

class CudaElementwise final : public ElementwiseKernels {
 public:
  void unary(KernelContext& ctx, UnaryOp op, const View& x, const View& y) override {
    visit_floating(x.dtype, "unary", [&, n = x.numel()](auto zero) {
      using T = decltype(zero);
      launch_map<T>(ctx, n, unary_kernel<T>, op, x.as<T>(), y.as<T>(), n, all_aligned(x.data, y.data));
    });
  }

  void unary_backward(KernelContext& ctx, UnaryOp op, const View& saved, const View& dy, const View& dx) override {
    visit_floating(dx.dtype, "unary_backward", [&, n = dx.numel()](auto zero) {
      using T = decltype(zero);
      launch_map<T>(ctx, n, unary_backward_kernel<T>, op, saved.as<T>(), dy.as<T>(), dx.as<T>(), n,
                    all_aligned(saved.data, dy.data, dx.data));
    });
  }

  void binary(KernelContext& ctx, BinaryOp op, const View& a, const View& b, const View& out) override {
    visit_floating(out.dtype, "binary", [&, n = out.numel()](auto zero) {
      using T = decltype(zero);
      if (a.shape == b.shape && a.shape == out.shape) {
        launch_map<T>(ctx, n, binary_kernel<T>, op, a.as<T>(), b.as<T>(), out.as<T>(), n,
                      all_aligned(a.data, b.data, out.data));
      } else if (n > 0) {
        launch(broadcast_kernel<T>, blocks_for(n), dim3(kThreads), 0, cuda_context(ctx).stream(), op,
               broadcast(a.shape, b.shape, out.shape), a.as<T>(), b.as<T>(), out.as<T>(), n);
      }
    });
  }

  void affine(KernelContext& ctx, double scale, double shift, const View& x, const View& y) override {
    visit_floating(x.dtype, "affine", [&, n = x.numel()](auto zero) {
      using T = decltype(zero);
      launch_map<T>(ctx, n, affine_kernel<T>, scale, shift, x.as<T>(), y.as<T>(), n, all_aligned(x.data, y.data));
    });
  }

  void fill(KernelContext& ctx, double value, const View& y) override {
    visit_dtype(y.dtype, [&, n = y.numel()](auto zero) {
      using T = decltype(zero);
      launch_map<T>(ctx, n, fill_kernel<T>, rounded_on_host<T>(value), y.as<T>(), n, aligned(y.data));
    });
  }

 private:
  // To bf16 and f16 by way of f32.
  template <typename T>
  static T rounded_on_host(double value) {
    if constexpr (is_half<T>) {
      return T(static_cast<float>(value));
    } else {
      return static_cast<T>(value);
    }
  }
};

}  // namespace

std::unique_ptr<ElementwiseKernels> make_cuda_elementwise() { return std::make_unique<CudaElementwise>(); }

}  // namespace lockstep
