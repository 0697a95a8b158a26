#include "lockstep/backend/elementwise.h"

#include <algorithm>
#include <cstring>

#include "lockstep/backend/cpu/broadcast.h"
#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/vector_math.h"
#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

using cpu::VectorMath;

// Calls loop(left, right) with functions that return element i of a run's operands u and v.
template <typename Plan, typename T, typename Loop>
void with_operands(const Plan& plan, const T* u, const T* v, const Loop& loop) {
  auto all_u = [=](std::int64_t i) { return cpu::widened(u[i]); };
  auto all_v = [=](std::int64_t i) { return cpu::widened(v[i]); };
  auto first_u = [x = cpu::widened(*u)](std::int64_t) { return x; };
  auto first_v = [x = cpu::widened(*v)](std::int64_t) { return x; };
  if (plan.repeats(0)) {
    loop(first_u, all_v);
  } else if (plan.repeats(1)) {
    loop(all_u, first_v);
  } else {
    loop(all_u, all_v);
  }
}

// Calls f(run) for all runs of the plan, vectorized, on the threads of the lane.
template <typename Plan, typename F>
void for_each_run(const KernelContext& ctx, const Plan& plan, const F& f) {
  constexpr std::int64_t kGrain = 16384;
  parallel_for(ctx, plan.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized([&] { plan.for_each_run(begin, end, f); });
  });
}

class Elementwise final : public ElementwiseKernels {
 public:
  void unary(KernelContext& ctx, const Unary& op, const View& x, const View& y) override {
    if (!cpu::is_narrow(y.dtype)) return reference_->unary(ctx, op, x, y);
    cpu::visit_narrow(y.dtype, [&](auto zero) {
      using T = decltype(zero);
      visit_op(op.op, [&, in = x.as<T>(), out = y.as<T>()](auto kind) {
        cpu::parallel_vector_loop(
            ctx, y.numel(), [=, a = static_cast<float>(op.a), b = static_cast<float>(op.b)](std::int64_t i) {
              out[i] = static_cast<T>(formula<kind(), VectorMath>(static_cast<float>(in[i]), a, b));
            });
      });
    });
  }

  void unary_backward(KernelContext& ctx, const Unary& op, const View& saved, const View& dy, const View& dx) override {
    if (!cpu::is_narrow(dx.dtype)) return reference_->unary_backward(ctx, op, saved, dy, dx);
    cpu::visit_narrow(dx.dtype, [&](auto zero) {
      using T = decltype(zero);
      visit_op(op.op, [&, s = saved.as<T>(), g = dy.as<T>(), out = dx.as<T>()](auto kind) {
        cpu::parallel_vector_loop(
            ctx, dx.numel(), [=, a = static_cast<float>(op.a), b = static_cast<float>(op.b)](std::int64_t i) {
              out[i] = static_cast<T>(
                  gradient<kind(), VectorMath>(static_cast<float>(s[i]), static_cast<float>(g[i]), a, b));
            });
      });
    });
  }

  void binary(KernelContext& ctx, BinaryOp op, const View& a, const View& b, const View& out) override {
    if (!cpu::is_narrow(out.dtype)) return reference_->binary(ctx, op, a, b, out);
    const cpu::BroadcastPlan<2> plan({a.shape, b.shape}, out.shape);
    cpu::visit_narrow(out.dtype, [&](auto zero) {
      using T = decltype(zero);
      visit_op(op, [&](auto kind) { binary_as<kind(), T>(ctx, plan, a.as<T>(), b.as<T>(), out.as<T>()); });
    });
  }

  void compare(KernelContext& ctx, CompareOp op, const View& a, const View& b, const View& out) override {
    // Other types are rare.
    if (!cpu::is_narrow(a.dtype)) return reference_->compare(ctx, op, a, b, out);
    const cpu::BroadcastPlan<2> plan({a.shape, b.shape}, out.shape);
    cpu::visit_narrow(a.dtype, [&](auto zero) {
      using T = decltype(zero);
      visit_op(op, [&, u = a.as<T>(), v = b.as<T>(), y = out.as<std::uint8_t>()](auto kind) {
        for_each_run(ctx, plan, [&](const cpu::BroadcastPlan<2>::Run& run) {
          with_operands(plan, u + run.at[0], v + run.at[1], [&, y = y + run.out](auto left, auto right) {
            cpu::vector_loop(0, run.length, [=](std::int64_t i) { y[i] = holds<kind()>(left(i), right(i)); });
          });
        });
      });
    });
  }

  void where(KernelContext& ctx, const View& condition, const View& a, const View& b, const View& out) override {
    const cpu::BroadcastPlan<3> plan({a.shape, b.shape, condition.shape}, out.shape);
    cpu::visit_bits(out.dtype, [&, chosen = condition.as<std::uint8_t>()](auto bits) {
      using Bits = decltype(bits);
      const auto *u = static_cast<const Bits*>(a.data), *v = static_cast<const Bits*>(b.data);
      for_each_run(ctx, plan, [&, y = static_cast<Bits*>(out.data)](const cpu::BroadcastPlan<3>::Run& run) {
        const auto [i, j, k] = run.at;
        where_run(plan, chosen + k, u + i, v + j, y + run.out, run.length);
      });
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
      cpu::parallel_vector_loop(ctx, y.numel(),
                                [=, out = static_cast<decltype(bits)*>(y.data)](std::int64_t i) { out[i] = bits; });
    });
  }

  void arange(KernelContext& ctx, double start, double step, const View& y) override {
    visit_dtype(y.dtype, [&](auto zero) {
      using T = decltype(zero);
      parallel_for(ctx, y.numel(), 16384, [&, out = y.as<T>()](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) out[i] = cpu::rounded<T>(start + static_cast<double>(i) * step);
      });
    });
  }

 private:
  template <BinaryOp kOp, typename T>
  static void binary_as(const KernelContext& ctx, const cpu::BroadcastPlan<2>& plan, const T* a, const T* b, T* out) {
    for_each_run(ctx, plan, [&](const cpu::BroadcastPlan<2>::Run& run) {
      with_operands(plan, a + run.at[0], b + run.at[1], [&, y = out + run.out](auto left, auto right) {
        cpu::vector_loop(0, run.length,
                         [=](std::int64_t i) { y[i] = static_cast<T>(formula<kOp, VectorMath>(left(i), right(i))); });
      });
    });
  }

  template <typename Bits>
  static void where_run(const cpu::BroadcastPlan<3>& plan, const std::uint8_t* chosen, const Bits* u, const Bits* v,
                        Bits* y, std::int64_t length) {
    const bool repeats_u = plan.repeats(0), repeats_v = plan.repeats(1);
    if (plan.repeats(2)) {
      const Bits* from = *chosen ? u : v;
      if (*chosen ? repeats_u : repeats_v) {
        std::fill_n(y, length, *from);
      } else if (from != y) {
        std::memcpy(y, from, static_cast<std::size_t>(length) * sizeof(Bits));
      }
      return;
    }
    if (repeats_u && repeats_v) {
      cpu::vector_loop(0, length, [=, a = *u, b = *v](std::int64_t i) { y[i] = chosen[i] ? a : b; });
    } else if (repeats_u) {
      cpu::vector_loop(0, length, [=, a = *u](std::int64_t i) { y[i] = chosen[i] ? a : v[i]; });
    } else if (repeats_v) {
      cpu::vector_loop(0, length, [=, b = *v](std::int64_t i) { y[i] = chosen[i] ? u[i] : b; });
    } else {
      cpu::vector_loop(0, length, [=](std::int64_t i) { y[i] = chosen[i] ? u[i] : v[i]; });
    }
  }

  std::unique_ptr<ElementwiseKernels> reference_ = reference::make_elementwise();
};

}  // namespace

std::unique_ptr<ElementwiseKernels> make_cpu_elementwise() { return std::make_unique<Elementwise>(); }

}  // namespace lockstep
