#include "lockstep/backend/elementwise.h"

#include <array>
#include <cmath>
#include <numbers>

#include "lockstep/backend/cuda/element.cuh"
#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/report.cuh"

namespace lockstep {
inline namespace elementwise_cu {

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

// The Math of backend/formulas.h.
template <typename C>
struct DeviceMath {
  __device__ static C exp(C x) { return std::exp(x); }
  __device__ static C expm1(C x) { return std::expm1(x); }
  __device__ static C log(C x) { return std::log(x); }
  __device__ static C log1p(C x) { return std::log1p(x); }
  __device__ static C log2(C x) { return std::log2(x); }
  __device__ static C log10(C x) { return std::log10(x); }
  __device__ static C sin(C x) { return std::sin(x); }
  __device__ static C cos(C x) { return std::cos(x); }
  __device__ static C tan(C x) { return std::tan(x); }
  __device__ static C tanh(C x) { return std::tanh(x); }
  __device__ static C sigmoid(C x) { return 1 / (1 + std::exp(-x)); }
  __device__ static C erf(C x) { return std::erf(x); }
  __device__ static C pow(C x, C y) { return std::pow(x, y); }
  __device__ static C atan2(C y, C x) { return std::atan2(y, x); }
  __device__ static C normal_cdf(C x) { return C(0.5) * std::erfc(-x * C(1 / std::numbers::sqrt2)); }
  __device__ static C normal_pdf(C x) { return C(0.3989422804014327) * std::exp(C(-0.5) * x * x); }
};

template <typename T>
__global__ void unary_kernel(Unary op, const T* x, T* y, std::int64_t n, bool aligned) {
  using C = Compute<T>;
  visit_op(op.op, [&, a = static_cast<C>(op.a), b = static_cast<C>(op.b)](auto kind) {
    map(
        n, aligned, y, [=](C v) { return formula<kind(), DeviceMath<C>>(v, a, b); }, x);
  });
}

template <typename T>
__global__ void unary_backward_kernel(Unary op, const T* saved, const T* dy, T* dx, std::int64_t n, bool aligned) {
  using C = Compute<T>;
  visit_op(op.op, [&, a = static_cast<C>(op.a), b = static_cast<C>(op.b)](auto kind) {
    map(
        n, aligned, dx, [=](C s, C g) { return gradient<kind(), DeviceMath<C>>(s, g, a, b); }, saved, dy);
  });
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

template <typename T>
__global__ void binary_kernel(BinaryOp op, const T* a, const T* b, T* out, std::int64_t n, bool aligned) {
  using C = Compute<T>;
  visit_op(op, [&](auto kind) {
    map(
        n, aligned, out, [=](C u, C v) { return formula<kind(), DeviceMath<C>>(u, v); }, a, b);
  });
}

// The operands' strides along the axes of the result, innermost first. A stride of 0 repeats. Adjacent axes are merged
// if each operand advances on both or repeats on both.
template <int kOperands>
struct Broadcast {
  struct Axis {
    std::int64_t extent, stride[kOperands];
  };
  int dim = 0;
  Axis axes[Shape::kMaxDim] = {};

  Broadcast(const std::array<Shape, kOperands>& operands, const Shape& out) {
    std::array<std::int64_t, kOperands> strides;
    strides.fill(1);
    for (int k = 1; k <= out.dim(); ++k) {
      const std::int64_t extent = out[-k];
      if (extent == 1) continue;
      Axis axis{extent, {}};
      bool as_before = dim > 0;
      for (int i = 0; i < kOperands; ++i) {
        const bool moves = k <= operands[i].dim() && operands[i][-k] != 1;
        if (moves) axis.stride[i] = strides[i];
        if (moves) strides[i] *= extent;
        as_before = as_before && moves == (axes[dim - 1].stride[i] != 0);
      }
      if (as_before) {
        axes[dim - 1].extent *= extent;
      } else {
        axes[dim++] = axis;
      }
    }
  }

  // Adds the offsets of element i's operands to `at`.
  __device__ void offsets(std::int64_t i, std::int64_t (&at)[kOperands]) const {
    for (int k = 0; k < dim; ++k) {
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
  visit_op(op, [&](auto kind) {
    out[i] = convert<T>(formula<kind(), DeviceMath<Compute<T>>>(widened(a[at[0]]), widened(b[at[1]])));
  });
}

template <typename T>
__global__ void integer_kernel(BinaryOp op, const __grid_constant__ Broadcast<2> shape, const T* a, const T* b, T* out,
                               std::int64_t n, ErrorSlot* errors) {
  const std::int64_t i = thread_number();
  if (i >= n) return;
  std::int64_t at[2] = {};
  shape.offsets(i, at);
  if (divides(op) && b[at[1]] == 0) report(errors, DataError::division_by_zero, at[1], 0, 0);
  visit_op(op, [&](auto kind) { out[i] = static_cast<T>(integer_formula<kind()>(a[at[0]], b[at[1]])); });
}

template <typename T>
__global__ void compare_kernel(CompareOp op, const __grid_constant__ Broadcast<2> shape, const T* a, const T* b,
                               bool* out, std::int64_t n) {
  const std::int64_t i = thread_number();
  if (i >= n) return;
  std::int64_t at[2] = {};
  shape.offsets(i, at);
  visit_op(op, [&](auto kind) {
    if constexpr (std::is_integral_v<T>) {
      out[i] = holds<kind()>(a[at[0]], b[at[1]]);
    } else {
      out[i] = holds<kind()>(widened(a[at[0]]), widened(b[at[1]]));
    }
  });
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

template <typename T, typename C>
__global__ void arange_kernel(C start, C step, T* y, std::int64_t n) {
  const std::int64_t i = thread_number();
  if (i < n) y[i] = convert<T>(arange_element(start, step, i));
}

// One thread per vector of elements.
template <typename T, typename... Parameters, typename... Arguments>
void launch_map(KernelContext& ctx, std::int64_t n, void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (n == 0) return;
  launch(kernel, blocks_for(ceil_div(n, kVector<T>)), dim3(kThreads), 0, cuda_context(ctx).stream(), arguments...);
}

class CudaElementwise final : public ElementwiseKernels {
 public:
  void run(KernelContext& ctx, const kernels::Unary& call) override {
    visit_floating(call.x.dtype, "unary", [&, n = call.x.numel()](auto zero) {
      using T = decltype(zero);
      launch_map<T>(ctx, n, unary_kernel<T>, call.op, call.x.as<T>(), call.y.as<T>(), n,
                    all_aligned(call.x.data, call.y.data));
    });
  }

  void run(KernelContext& ctx, const kernels::UnaryBackward& call) override {
    visit_floating(call.dx.dtype, "unary_backward", [&, n = call.dx.numel()](auto zero) {
      using T = decltype(zero);
      launch_map<T>(ctx, n, unary_backward_kernel<T>, call.op, call.saved.as<T>(), call.dy.as<T>(), call.dx.as<T>(), n,
                    all_aligned(call.saved.data, call.dy.data, call.dx.data));
    });
  }

  void run(KernelContext& ctx, const kernels::Binary& call) override {
    if (call.out.dtype == DType::i64) return integers<std::int64_t>(ctx, call);
    if (call.out.dtype == DType::u8) return integers<std::uint8_t>(ctx, call);
    visit_floating(call.out.dtype, "binary", [&, n = call.out.numel()](auto zero) {
      using T = decltype(zero);
      if (call.a.shape == call.b.shape && call.a.shape == call.out.shape) {
        launch_map<T>(ctx, n, binary_kernel<T>, call.op, call.a.as<T>(), call.b.as<T>(), call.out.as<T>(), n,
                      all_aligned(call.a.data, call.b.data, call.out.data));
      } else if (n > 0) {
        launch(broadcast_kernel<T>, blocks_for(n), dim3(kThreads), 0, cuda_context(ctx).stream(), call.op,
               Broadcast<2>({call.a.shape, call.b.shape}, call.out.shape), call.a.as<T>(), call.b.as<T>(),
               call.out.as<T>(), n);
      }
    });
  }

  void run(KernelContext& ctx, const kernels::Compare& call) override {
    const std::int64_t n = call.out.numel();
    if (n == 0) return;
    visit_dtype(call.a.dtype, [&](auto zero) {
      using T = decltype(zero);
      launch(compare_kernel<T>, blocks_for(n), dim3(kThreads), 0, cuda_context(ctx).stream(), call.op,
             Broadcast<2>({call.a.shape, call.b.shape}, call.out.shape), call.a.as<T>(), call.b.as<T>(),
             call.out.as<bool>(), n);
    });
  }

  void run(KernelContext& ctx, const kernels::Where& call) override {
    const std::int64_t n = call.out.numel();
    if (n == 0) return;
    visit_bits(call.out.dtype, [&](auto bits) {
      using Bits = decltype(bits);
      launch(where_kernel<Bits>, blocks_for(n), dim3(kThreads), 0, cuda_context(ctx).stream(),
             Broadcast<3>({call.condition.shape, call.a.shape, call.b.shape}, call.out.shape),
             static_cast<const std::uint8_t*>(call.condition.data), static_cast<const Bits*>(call.a.data),
             static_cast<const Bits*>(call.b.data), static_cast<Bits*>(call.out.data), n);
    });
  }

  void run(KernelContext& ctx, const kernels::Affine& call) override {
    visit_floating(call.x.dtype, "affine", [&, n = call.x.numel()](auto zero) {
      using T = decltype(zero);
      launch_map<T>(ctx, n, affine_kernel<T>, call.scale, call.shift, call.x.as<T>(), call.y.as<T>(), n,
                    all_aligned(call.x.data, call.y.data));
    });
  }

  void run(KernelContext& ctx, const kernels::Fill& call) override {
    visit_dtype(call.y.dtype, [&, n = call.y.numel()](auto zero) {
      using T = decltype(zero);
      launch_map<T>(ctx, n, fill_kernel<T>, call.value.to<T>(), call.y.as<T>(), n, aligned(call.y.data));
    });
  }

  void run(KernelContext& ctx, const kernels::Arange& call) override {
    if (call.y.numel() == 0) return;
    visit_dtype(call.y.dtype, [&, n = call.y.numel()](auto zero) {
      using T = decltype(zero);
      const auto fill = [&](auto start, auto step) {
        launch(arange_kernel<T, decltype(start)>, blocks_for(n), dim3(kThreads), 0, cuda_context(ctx).stream(), start,
               step, call.y.as<T>(), n);
      };
      if (std::is_integral_v<T> && call.start.is_whole() && call.step.is_whole()) {
        fill(call.start.to<std::int64_t>(), call.step.to<std::int64_t>());
      } else {
        fill(call.start.to<double>(), call.step.to<double>());
      }
    });
  }

 private:
  template <typename T>
  static void integers(KernelContext& ctx, const kernels::Binary& call) {
    if (call.out.numel() == 0) return;
    launch(integer_kernel<T>, blocks_for(call.out.numel()), dim3(kThreads), 0, cuda_context(ctx).stream(), call.op,
           Broadcast<2>({call.a.shape, call.b.shape}, call.out.shape), call.a.as<T>(), call.b.as<T>(), call.out.as<T>(),
           call.out.numel(), cuda_context(ctx).errors());
  }
};

}  // namespace elementwise_cu

std::unique_ptr<ElementwiseKernels> make_cuda_elementwise() { return std::make_unique<CudaElementwise>(); }

}  // namespace lockstep
