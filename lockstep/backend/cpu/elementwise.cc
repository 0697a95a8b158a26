#include "lockstep/backend/elementwise.h"

#include <algorithm>
#include <cstring>

#include "lockstep/backend/cpu/broadcast.h"
#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/vector_math.h"
#include "lockstep/backend/cpu/vectorize.h"

namespace lockstep {
namespace {

using cpu::Computed;
using cpu::Math;

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

// Calls f(run) for all runs of the plan, vectorized for elements T, on the threads of the lane.
template <typename T, typename Plan, typename F>
void for_each_run(const KernelContext& ctx, const Plan& plan, const F& f) {
  constexpr std::int64_t kGrain = 16384;
  parallel_for(ctx, plan.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized_as<T>([&] { plan.for_each_run(begin, end, f); });
  });
}

class Elementwise final : public ElementwiseKernels {
 public:
  void run(KernelContext& ctx, const kernels::Unary& call) override {
    cpu::visit_floating(call.y.dtype, "unary", [&](auto zero) {
      using T = decltype(zero);
      using C = Computed<T>;
      visit_op(call.op.op, [&, in = call.x.as<T>(), out = call.y.as<T>()](auto kind) {
        cpu::parallel_element_loop<T>(
            ctx, call.y.numel(), [=, a = static_cast<C>(call.op.a), b = static_cast<C>(call.op.b)](std::int64_t i) {
              out[i] = static_cast<T>(formula<kind(), Math<C>>(static_cast<C>(in[i]), a, b));
            });
      });
    });
  }

  void run(KernelContext& ctx, const kernels::UnaryBackward& call) override {
    cpu::visit_floating(call.dx.dtype, "unary_backward", [&](auto zero) {
      using T = decltype(zero);
      using C = Computed<T>;
      visit_op(call.op.op, [&, s = call.saved.as<T>(), g = call.dy.as<T>(), out = call.dx.as<T>()](auto kind) {
        cpu::parallel_element_loop<T>(
            ctx, call.dx.numel(), [=, a = static_cast<C>(call.op.a), b = static_cast<C>(call.op.b)](std::int64_t i) {
              out[i] = static_cast<T>(gradient<kind(), Math<C>>(static_cast<C>(s[i]), static_cast<C>(g[i]), a, b));
            });
      });
    });
  }

  void run(KernelContext& ctx, const kernels::Binary& call) override {
    const cpu::BroadcastPlan<2> plan({call.a.shape, call.b.shape}, call.out.shape);
    const auto run_as = [&]<typename T>(T) {
      visit_op(call.op,
               [&](auto kind) { binary_as<kind(), T>(ctx, plan, call.a.as<T>(), call.b.as<T>(), call.out.as<T>()); });
    };
    if (call.out.dtype == DType::i64) {
      check_divisor<std::int64_t>(call);
      run_as(std::int64_t{});
    } else if (call.out.dtype == DType::u8) {
      check_divisor<std::uint8_t>(call);
      run_as(std::uint8_t{});
    } else {
      cpu::visit_floating(call.out.dtype, "binary", run_as);
    }
  }

  void run(KernelContext& ctx, const kernels::Compare& call) override {
    const cpu::BroadcastPlan<2> plan({call.a.shape, call.b.shape}, call.out.shape);
    visit_dtype(call.a.dtype, [&](auto zero) {
      using T = decltype(zero);
      visit_op(call.op, [&, u = call.a.as<T>(), v = call.b.as<T>(), y = call.out.as<bool>()](auto kind) {
        for_each_run<T>(ctx, plan, [&](const cpu::BroadcastPlan<2>::Run& run) {
          with_operands(plan, u + run.at[0], v + run.at[1], [&, y = y + run.out](auto left, auto right) {
            cpu::vector_loop(0, run.length, [=](std::int64_t i) { y[i] = holds<kind()>(left(i), right(i)); });
          });
        });
      });
    });
  }

  void run(KernelContext& ctx, const kernels::Where& call) override {
    const cpu::BroadcastPlan<3> plan({call.a.shape, call.b.shape, call.condition.shape}, call.out.shape);
    cpu::visit_bits(call.out.dtype, [&, chosen = static_cast<const std::uint8_t*>(call.condition.data)](auto bits) {
      using Bits = decltype(bits);
      const auto *u = static_cast<const Bits*>(call.a.data), *v = static_cast<const Bits*>(call.b.data);
      for_each_run<float>(ctx, plan, [&, y = static_cast<Bits*>(call.out.data)](const cpu::BroadcastPlan<3>::Run& run) {
        const auto [i, j, k] = run.at;
        where_run(plan, chosen + k, u + i, v + j, y + run.out, run.length);
      });
    });
  }

  void run(KernelContext& ctx, const kernels::Affine& call) override {
    cpu::visit_floating(call.y.dtype, "affine", [&](auto zero) {
      using T = decltype(zero);
      using C = Computed<T>;
      cpu::parallel_element_loop<T>(
          ctx, call.y.numel(),
          [a = static_cast<C>(call.scale), b = static_cast<C>(call.shift), in = call.x.as<T>(),
           out = call.y.as<T>()](std::int64_t i) { out[i] = static_cast<T>(a * static_cast<C>(in[i]) + b); });
    });
  }

  void run(KernelContext& ctx, const kernels::Fill& call) override {
    std::uint64_t element = 0;
    visit_dtype(call.y.dtype, [&](auto zero) {
      zero = call.value.to<decltype(zero)>();
      std::memcpy(&element, &zero, sizeof zero);
    });
    cpu::visit_bits(call.y.dtype, [&](auto bits) {
      std::memcpy(&bits, &element, sizeof bits);
      cpu::parallel_vector_loop(
          ctx, call.y.numel(), [=, out = static_cast<decltype(bits)*>(call.y.data)](std::int64_t i) { out[i] = bits; });
    });
  }

  void run(KernelContext& ctx, const kernels::Arange& call) override {
    visit_dtype(call.y.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto fill = [&, out = call.y.as<T>()](auto start, auto step) {
        parallel_for(ctx, call.y.numel(), 16384, [=](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) out[i] = cpu::convert<T>(arange_element(start, step, i));
        });
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
  static void check_divisor(const kernels::Binary& call) {
    if (!divides(call.op) || call.out.numel() == 0) return;
    const T* number = call.b.as<T>();
    for (std::int64_t i = 0; i < call.b.numel(); ++i)
      check(number[i] != 0, "divide: element {} of the divisor is 0", i);
  }

  template <BinaryOp kOp, typename T>
  static void binary_as(const KernelContext& ctx, const cpu::BroadcastPlan<2>& plan, const T* a, const T* b, T* out) {
    for_each_run<T>(ctx, plan, [&](const cpu::BroadcastPlan<2>::Run& run) {
      with_operands(plan, a + run.at[0], b + run.at[1], [&, y = out + run.out](auto left, auto right) {
        cpu::vector_loop(0, run.length, [=](std::int64_t i) {
          if constexpr (std::is_integral_v<T>) {
            y[i] = static_cast<T>(integer_formula<kOp>(left(i), right(i)));
          } else {
            y[i] = static_cast<T>(formula<kOp, Math<Computed<T>>>(left(i), right(i)));
          }
        });
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
};

}  // namespace

std::unique_ptr<ElementwiseKernels> make_cpu_elementwise() { return std::make_unique<Elementwise>(); }

}  // namespace lockstep
