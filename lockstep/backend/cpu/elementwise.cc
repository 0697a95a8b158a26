#include "lockstep/backend/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "lockstep/backend/cpu/broadcast.h"
#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/vector_math.h"
#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

template <auto kValue>
using Constant = std::integral_constant<decltype(kValue), kValue>;

// Calls visitor with `op` as a constant, so that no loop tests it.
template <typename Visitor>
void visit_op(UnaryOp op, const Visitor& visitor) {
  switch (op) {
    case UnaryOp::negate:
      return visitor(Constant<UnaryOp::negate>{});
    case UnaryOp::exp:
      return visitor(Constant<UnaryOp::exp>{});
    case UnaryOp::log:
      return visitor(Constant<UnaryOp::log>{});
    case UnaryOp::sqrt:
      return visitor(Constant<UnaryOp::sqrt>{});
    case UnaryOp::square:
      return visitor(Constant<UnaryOp::square>{});
    case UnaryOp::abs:
      return visitor(Constant<UnaryOp::abs>{});
    case UnaryOp::relu:
      return visitor(Constant<UnaryOp::relu>{});
    case UnaryOp::gelu:
      return visitor(Constant<UnaryOp::gelu>{});
    case UnaryOp::sigmoid:
      return visitor(Constant<UnaryOp::sigmoid>{});
    case UnaryOp::tanh:
      return visitor(Constant<UnaryOp::tanh>{});
  }
  fail("unary: unknown operation {}", static_cast<int>(op));
}

template <typename Visitor>
void visit_op(BinaryOp op, const Visitor& visitor) {
  switch (op) {
    case BinaryOp::add:
      return visitor(Constant<BinaryOp::add>{});
    case BinaryOp::subtract:
      return visitor(Constant<BinaryOp::subtract>{});
    case BinaryOp::multiply:
      return visitor(Constant<BinaryOp::multiply>{});
    case BinaryOp::divide:
      return visitor(Constant<BinaryOp::divide>{});
  }
  fail("binary: unknown operation {}", static_cast<int>(op));
}

template <UnaryOp kOp>
float apply(float x) {
  if constexpr (kOp == UnaryOp::negate) return -x;
  if constexpr (kOp == UnaryOp::exp) return cpu::fast_exp(x);
  if constexpr (kOp == UnaryOp::log) return cpu::fast_log(x);
  if constexpr (kOp == UnaryOp::sqrt) return std::sqrt(x);
  if constexpr (kOp == UnaryOp::square) return x * x;
  if constexpr (kOp == UnaryOp::abs) return std::abs(x);
  if constexpr (kOp == UnaryOp::relu) return x <= 0.f ? 0.f : x;  // NaN stays NaN
  if constexpr (kOp == UnaryOp::gelu) return x * cpu::normal_cdf(x);
  if constexpr (kOp == UnaryOp::sigmoid) return 1.f / (1.f + cpu::fast_exp(-x));
  if constexpr (kOp == UnaryOp::tanh) return cpu::fast_tanh(x);
}

// dy * op', in terms of the output where unary_saves_output(op), of the input otherwise.
template <UnaryOp kOp>
float backward(float saved, float dy) {
  if constexpr (kOp == UnaryOp::negate) return -dy;
  if constexpr (kOp == UnaryOp::exp) return dy * saved;
  if constexpr (kOp == UnaryOp::log) return dy / saved;
  if constexpr (kOp == UnaryOp::sqrt) return dy * 0.5f / saved;
  if constexpr (kOp == UnaryOp::square) return dy * 2.f * saved;
  if constexpr (kOp == UnaryOp::abs) return dy * (saved > 0.f ? 1.f : saved < 0.f ? -1.f : 0.f);
  if constexpr (kOp == UnaryOp::relu) return saved > 0.f ? dy : 0.f;
  if constexpr (kOp == UnaryOp::gelu) return dy * (cpu::normal_cdf(saved) + saved * cpu::normal_pdf(saved));
  if constexpr (kOp == UnaryOp::sigmoid) return dy * saved * (1.f - saved);
  if constexpr (kOp == UnaryOp::tanh) return dy * (1.f - saved * saved);
}

template <BinaryOp kOp>
float apply(float a, float b) {
  if constexpr (kOp == BinaryOp::add) return a + b;
  if constexpr (kOp == BinaryOp::subtract) return a - b;
  if constexpr (kOp == BinaryOp::multiply) return a * b;
  if constexpr (kOp == BinaryOp::divide) return a / b;
}

class Elementwise final : public ElementwiseKernels {
 public:
  void unary(KernelContext& ctx, UnaryOp op, const View& x, const View& y) override {
    if (!cpu::is_narrow(y.dtype)) return reference_->unary(ctx, op, x, y);
    cpu::visit_narrow(y.dtype, [&](auto zero) {
      using T = decltype(zero);
      visit_op(op, [&, in = x.as<T>(), out = y.as<T>()](auto op) {
        cpu::parallel_vector_loop(ctx, y.numel(), [=](std::int64_t i) {
          out[i] = static_cast<T>(apply<op()>(static_cast<float>(in[i])));
        });
      });
    });
  }

  void unary_backward(KernelContext& ctx, UnaryOp op, const View& saved, const View& dy,
                      const View& dx) override {
    if (!cpu::is_narrow(dx.dtype)) return reference_->unary_backward(ctx, op, saved, dy, dx);
    cpu::visit_narrow(dx.dtype, [&](auto zero) {
      using T = decltype(zero);
      visit_op(op, [&, s = saved.as<T>(), g = dy.as<T>(), out = dx.as<T>()](auto op) {
        cpu::parallel_vector_loop(ctx, dx.numel(), [=](std::int64_t i) {
          out[i] = static_cast<T>(backward<op()>(static_cast<float>(s[i]), static_cast<float>(g[i])));
        });
      });
    });
  }

  void binary(KernelContext& ctx, BinaryOp op, const View& a, const View& b, const View& out) override {
    if (!cpu::is_narrow(out.dtype)) return reference_->binary(ctx, op, a, b, out);
    const cpu::BroadcastPlan plan(a.shape, b.shape, out.shape);
    cpu::visit_narrow(out.dtype, [&](auto zero) {
      using T = decltype(zero);
      visit_op(op, [&](auto op) { binary_as<op(), T>(ctx, plan, a.as<T>(), b.as<T>(), out.as<T>()); });
    });
  }

  void affine(KernelContext& ctx, double scale, double shift, const View& x, const View& y) override {
    if (!cpu::is_narrow(y.dtype)) return reference_->affine(ctx, scale, shift, x, y);
    cpu::visit_narrow(y.dtype, [&, a = static_cast<float>(scale), b = static_cast<float>(shift)](auto zero) {
      using T = decltype(zero);
      cpu::parallel_vector_loop(ctx, y.numel(), [=, in = x.as<T>(), out = y.as<T>()](std::int64_t i) {
        out[i] = static_cast<T>(a * static_cast<float>(in[i]) + b);
      });
    });
  }

  void fill(KernelContext& ctx, double value, const View& y) override {
    std::uint64_t element = 0;
    visit_dtype(y.dtype, [&](auto zero) {
      zero = cpu::rounded<decltype(zero)>(value);
      std::memcpy(&element, &zero, sizeof zero);
    });
    cpu::visit_bits(y.dtype, [&](auto bits) {
      std::memcpy(&bits, &element, sizeof bits);
      cpu::parallel_vector_loop(ctx, y.numel(), [=, out = static_cast<decltype(bits)*>(y.data)](std::int64_t i) {
        out[i] = bits;
      });
    });
  }

 private:
  template <BinaryOp kOp, typename T>
  static void binary_as(const KernelContext& ctx, const cpu::BroadcastPlan& plan, const T* a, const T* b,
                        T* out) {
    constexpr std::int64_t kGrain = 16384;
    parallel_for(ctx, plan.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      cpu::vectorized([&] {
        plan.for_each_run(begin, end, [&](const cpu::BroadcastPlan::Run& run) {
          const T *u = a + run.a, *v = b + run.b;
          T* y = out + run.out;
          auto loop = [&](auto left, auto right) {
            cpu::vector_loop(0, run.length,
                             [=](std::int64_t i) { y[i] = static_cast<T>(apply<kOp>(left(i), right(i))); });
          };
          auto all_u = [=](std::int64_t i) { return static_cast<float>(u[i]); };
          auto all_v = [=](std::int64_t i) { return static_cast<float>(v[i]); };
          auto first_u = [x = static_cast<float>(*u)](std::int64_t) { return x; };
          auto first_v = [x = static_cast<float>(*v)](std::int64_t) { return x; };
          if (plan.repeats_a()) {
            loop(first_u, all_v);
          } else if (plan.repeats_b()) {
            loop(all_u, first_v);
          } else {
            loop(all_u, all_v);
          }
        });
      });
    });
  }

  std::unique_ptr<ElementwiseKernels> reference_ = reference::make_elementwise();
};

}  // namespace

std::unique_ptr<ElementwiseKernels> make_cpu_elementwise() { return std::make_unique<Elementwise>(); }

}  // namespace lockstep
