#include "lockstep/backend/elementwise.h"

#include <array>
#include <cmath>
#include <numbers>

#include "lockstep/backend/cuda/element.cuh"
#include "lockstep/backend/cuda/families.h"

namespace lockstep {
namespace {

using namespace cuda;

// y[i] = f(x[i]...), with one vector of elements per thread. Arguments and result of f are Compute<T>.
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

template <typename C>
__device__ C sigmoid(C x) {
  return 1 / (1 + std::exp(-x));
}

// a and b: see Unary.
template <typename T>
__global__ void unary_kernel(Unary op, const T* x, T* y, std::int64_t n, bool aligned) {
  using C = Compute<T>;
  const C a = static_cast<C>(op.a), b = static_cast<C>(op.b);
  auto with = [&](auto f) { map(n, aligned, y, f, x); };
  switch (op.op) {
    case UnaryOp::negate: return with([](C v) { return -v; });
    case UnaryOp::exp: return with([](C v) { return std::exp(v); });
    case UnaryOp::log: return with([](C v) { return std::log(v); });
    case UnaryOp::sqrt: return with([](C v) { return std::sqrt(v); });
    case UnaryOp::square: return with([](C v) { return v * v; });
    case UnaryOp::abs: return with([](C v) { return std::abs(v); });
    case UnaryOp::sign: return with([](C v) { return v > 0 ? C(1) : v < 0 ? C(-1) : v; });  // 0 and NaN stay
    case UnaryOp::reciprocal: return with([](C v) { return 1 / v; });
    case UnaryOp::rsqrt: return with([](C v) { return 1 / std::sqrt(v); });
    case UnaryOp::sin: return with([](C v) { return std::sin(v); });
    case UnaryOp::cos: return with([](C v) { return std::cos(v); });
    case UnaryOp::relu: return with([](C v) { return v <= 0 ? C(0) : v; });  // NaN stays NaN
    case UnaryOp::leaky_relu: return with([=](C v) { return v > 0 ? v : a * v; });
    case UnaryOp::elu: return with([=](C v) { return v > 0 ? v : a * std::expm1(v); });
    case UnaryOp::gelu: return with([](C v) { return v * normal_cdf(v); });
    case UnaryOp::silu: return with([](C v) { return v * sigmoid(v); });
    case UnaryOp::softplus: return with([=](C v) { return a * v > b ? v : std::log1p(std::exp(a * v)) / a; });
    case UnaryOp::sigmoid: return with([](C v) { return sigmoid(v); });
    case UnaryOp::tanh: return with([](C v) { return std::tanh(v); });
    case UnaryOp::clamp:
      return with([=](C v) {
        const C raised = v < a ? a : v;
        return raised > b ? b : raised;
      });
    case UnaryOp::pow: return with([=](C v) { return std::pow(v, a); });
  }
}

// s is the output or the input, depending on the operation: see unary_saves_output.
template <typename T>
__global__ void unary_backward_kernel(Unary op, const T* saved, const T* dy, T* dx, std::int64_t n, bool aligned) {
  using C = Compute<T>;
  const C a = static_cast<C>(op.a), b = static_cast<C>(op.b);
  auto with = [&](auto f) { map(n, aligned, dx, f, saved, dy); };
  switch (op.op) {
    case UnaryOp::negate: return with([](C, C g) { return -g; });
    case UnaryOp::exp: return with([](C s, C g) { return g * s; });
    case UnaryOp::log: return with([](C s, C g) { return g / s; });
    case UnaryOp::sqrt: return with([](C s, C g) { return g * (C(0.5) / s); });
    case UnaryOp::square: return with([](C s, C g) { return g * (2 * s); });
    case UnaryOp::abs: return with([](C s, C g) { return s > 0 ? g : s < 0 ? -g : 0 * g; });
    case UnaryOp::sign: return with([](C, C g) { return 0 * g; });
    case UnaryOp::reciprocal: return with([](C s, C g) { return -g * (s * s); });
    case UnaryOp::rsqrt: return with([](C s, C g) { return g * (C(-0.5) * (s * s * s)); });
    case UnaryOp::sin: return with([](C s, C g) { return g * std::cos(s); });
    case UnaryOp::cos: return with([](C s, C g) { return -g * std::sin(s); });
    case UnaryOp::relu: return with([](C s, C g) { return s > 0 ? g : 0 * g; });
    case UnaryOp::leaky_relu: return with([=](C s, C g) { return s > 0 ? g : g * a; });
    case UnaryOp::elu: return with([=](C s, C g) { return s > 0 ? g : g * (a * std::exp(s)); });
    case UnaryOp::gelu: return with([](C s, C g) { return g * (normal_cdf(s) + s * normal_pdf(s)); });
    case UnaryOp::silu:
      return with([](C s, C g) {
        const C p = sigmoid(s);
        return g * (p * (1 + s * (1 - p)));
      });
    case UnaryOp::softplus: return with([=](C s, C g) { return a * s > b ? g : g * sigmoid(a * s); });
    case UnaryOp::sigmoid: return with([](C s, C g) { return g * (s * (1 - s)); });
    case UnaryOp::tanh: return with([](C s, C g) { return g * (1 - s * s); });
    case UnaryOp::clamp: return with([=](C s, C g) { return s >= a && s <= b ? g : C(0); });
    case UnaryOp::pow: return with([=](C s, C g) { return a == 0 ? C(0) : g * (a * std::pow(s, a - 1)); });
  }
}

template <typename T>
__global__ void affine_kernel(double scale, double shift, const T* x, T* y, std::int64_t n, bool aligned) {
  using C = Compute<T>;
  map(
      n, aligned, y, [a = static_cast<C>(scale), b = static_cast<C>(shift)](C v) { return a * v + b; }, x);
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
    case BinaryOp::maximum: return body([](C a, C b) { return a != a || a > b ? a : b; });
    case BinaryOp::minimum: return body([](C a, C b) { return a != a || a < b ? a : b; });
    case BinaryOp::pow: return body([](C a, C b) { return std::pow(a, b); });
  }
}

template <typename C>
__device__ bool holds(CompareOp op, C a, C b) {
  switch (op) {
    case CompareOp::eq: return a == b;
    case CompareOp::ne: return a != b;
    case CompareOp::lt: return a < b;
    case CompareOp::le: return a <= b;
  }
  return false;
}

template <typename T>
__global__ void binary_kernel(BinaryOp op, const T* a, const T* b, T* out, std::int64_t n, bool aligned) {
  visit_operation<Compute<T>>(op, [&](auto f) { map(n, aligned, out, f, a, b); });
}

// The operands' strides along the axes of the result, innermost first. A stride of 0 repeats. Adjacent axes on which
// each operand behaves alike are merged.
template <int kOperands>
struct Broadcast {
  struct Axis {
    std::int64_t extent, stride[kOperands];
  };
  int rank = 0;
  Axis axes[Shape::kMaxRank] = {};

  Broadcast(const std::array<Shape, kOperands>& operands, const Shape& out) {
    std::array<std::int64_t, kOperands> strides;
    strides.fill(1);
    for (int k = 1; k <= out.rank(); ++k) {
      const std::int64_t extent = out[-k];
      if (extent == 1) continue;
      Axis axis{extent, {}};
      bool as_before = rank > 0;
      for (int i = 0; i < kOperands; ++i) {
        const bool moves = k <= operands[i].rank() && operands[i][-k] != 1;
        if (moves) axis.stride[i] = strides[i];
        if (moves) strides[i] *= extent;
        as_before = as_before && moves == (axes[rank - 1].stride[i] != 0);
      }
      if (as_before) {
        axes[rank - 1].extent *= extent;
      } else {
        axes[rank++] = axis;
      }
    }
  }

  // The offsets of the operands of element i.
  __device__ void offsets(std::int64_t i, std::int64_t (&at)[kOperands]) const {
    for (int k = 0; k < rank; ++k) {
      const std::int64_t place = i % axes[k].extent;
      i /= axes[k].extent;
      for (int j = 0; j < kOperands; ++j) at[j] += place * axes[k].stride[j];
    }
  }
};

template <typename T>
__global__ void broadcast_kernel(BinaryOp op, const __grid_constant__ Broadcast<2> shape, const T* a, const T* b,
                                 T* out, std::int64_t n) {
  const std::int64_t i = thread_number();
  if (i >= n) return;
  std::int64_t at[2] = {};
  shape.offsets(i, at);
  visit_operation<Compute<T>>(op, [&](auto f) { out[i] = convert<T>(f(widened(a[at[0]]), widened(b[at[1]]))); });
}

template <typename T>
__global__ void compare_kernel(CompareOp op, const __grid_constant__ Broadcast<2> shape, const T* a, const T* b,
                               std::uint8_t* out, std::int64_t n) {
  const std::int64_t i = thread_number();
  if (i >= n) return;
  std::int64_t at[2] = {};
  shape.offsets(i, at);
  if constexpr (std::is_integral_v<T>) {
    out[i] = holds(op, a[at[0]], b[at[1]]);
  } else {
    out[i] = holds(op, widened(a[at[0]]), widened(b[at[1]]));
  }
}

template <typename Bits>
__global__ void where_kernel(const __grid_constant__ Broadcast<3> shape, const std::uint8_t* condition, const Bits* a,
                             const Bits* b, Bits* out, std::int64_t n) {
  const std::int64_t i = thread_number();
  if (i >= n) return;
  std::int64_t at[3] = {};
  shape.offsets(i, at);
  out[i] = condition[at[0]] ? a[at[1]] : b[at[2]];
}

template <typename T>
__global__ void arange_kernel(double start, double step, T* y, std::int64_t n) {
  const std::int64_t i = thread_number();
  if (i < n) y[i] = convert<T>(start + static_cast<double>(i) * step);
}

// One thread per vector of elements.
template <typename T, typename... Parameters, typename... Arguments>
void launch_map(KernelContext& ctx, std::int64_t n, void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (n == 0) return;
  launch(kernel, blocks_for(ceil_div(n, kVector<T>)), dim3(kThreads), 0, cuda_context(ctx).stream(), arguments...);
}

class CudaElementwise final : public ElementwiseKernels {
 public:
  void unary(KernelContext& ctx, const Unary& op, const View& x, const View& y) override {
    visit_floating(x.dtype, "unary", [&, n = x.numel()](auto zero) {
      using T = decltype(zero);
      launch_map<T>(ctx, n, unary_kernel<T>, op, x.as<T>(), y.as<T>(), n, all_aligned(x.data, y.data));
    });
  }

  void unary_backward(KernelContext& ctx, const Unary& op, const View& saved, const View& dy, const View& dx) override {
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
               Broadcast<2>({a.shape, b.shape}, out.shape), a.as<T>(), b.as<T>(), out.as<T>(), n);
      }
    });
  }

  void compare(KernelContext& ctx, CompareOp op, const View& a, const View& b, const View& out) override {
    const std::int64_t n = out.numel();
    if (n == 0) return;
    visit_dtype(a.dtype, [&](auto zero) {
      using T = decltype(zero);
      launch(compare_kernel<T>, blocks_for(n), dim3(kThreads), 0, cuda_context(ctx).stream(), op,
             Broadcast<2>({a.shape, b.shape}, out.shape), a.as<T>(), b.as<T>(), out.as<std::uint8_t>(), n);
    });
  }

  void where(KernelContext& ctx, const View& condition, const View& a, const View& b, const View& out) override {
    const std::int64_t n = out.numel();
    if (n == 0) return;
    visit_bits(out.dtype, [&](auto bits) {
      using Bits = decltype(bits);
      launch(where_kernel<Bits>, blocks_for(n), dim3(kThreads), 0, cuda_context(ctx).stream(),
             Broadcast<3>({condition.shape, a.shape, b.shape}, out.shape), condition.as<std::uint8_t>(),
             static_cast<const Bits*>(a.data), static_cast<const Bits*>(b.data), static_cast<Bits*>(out.data), n);
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

  void arange(KernelContext& ctx, double start, double step, const View& y) override {
    if (y.numel() == 0) return;
    visit_dtype(y.dtype, [&, n = y.numel()](auto zero) {
      using T = decltype(zero);
      launch(arange_kernel<T>, blocks_for(n), dim3(kThreads), 0, cuda_context(ctx).stream(), start, step, y.as<T>(), n);
    });
  }

 private:
  // To bf16 and f16 through f32.
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
