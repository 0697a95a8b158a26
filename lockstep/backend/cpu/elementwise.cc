#include "lockstep/backend/elementwise.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "lockstep/backend/cpu/broadcast.h"
#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/halves.h"
#include "lockstep/backend/cpu/vector_math.h"
#include "lockstep/backend/cpu/vectorize.h"

namespace lockstep {
namespace {

using cpu::Math;
using Plan = cpu::BroadcastPlan<2>;

constexpr std::int64_t kGrain = 16384;

// Loops over n elements of arrays of one shape: out[i] = formula(in[0][i], in[1][i]), with the constants a and b.
template <typename C>
using ElementLoop = void (*)(std::int64_t n, const std::array<const C*, 2>& in, C* out, C a, C b);

template <UnaryOp kOp, typename C>
void unary(std::int64_t n, const std::array<const C*, 2>& in, C* out, C a, C b) {
  cpu::vectorized_as<C>(
      [=, x = in[0]] { cpu::vector_loop(0, n, [=](std::int64_t i) { out[i] = formula<kOp, Math<C>>(x[i], a, b); }); });
}

template <UnaryOp kOp, typename C>
void unary_backward(std::int64_t n, const std::array<const C*, 2>& in, C* out, C a, C b) {
  cpu::vectorized_as<C>([=, saved = in[0], dy = in[1]] {
    cpu::vector_loop(0, n, [=](std::int64_t i) { out[i] = gradient<kOp, Math<C>>(saved[i], dy[i], a, b); });
  });
}

template <typename C>
void affine(std::int64_t n, const std::array<const C*, 2>& in, C* out, C scale, C shift) {
  cpu::vectorized_as<C>(
      [=, x = in[0]] { cpu::vector_loop(0, n, [=](std::int64_t i) { out[i] = scale * x[i] + shift; }); });
}

// Loops over elements [begin, end) of a result whose operands broadcast.
template <typename C, typename Out>
using BroadcastLoop = void (*)(const Plan& plan, std::int64_t begin, std::int64_t end, const C* a, const C* b,
                               Out* out);

// out[i] = f(a[j], b[k]) for the elements j and k that belong to i.
template <typename C, typename Out, typename F>
void for_each_pair(const Plan& plan, std::int64_t begin, std::int64_t end, const C* a, const C* b, Out* out,
                   const F& f) {
  cpu::vectorized_as<C>([&] {
    plan.for_each_run(begin, end, [&](const Plan::Run& run) {
      const C *const u = a + run.at[0], *const v = b + run.at[1];
      Out* const y = out + run.out;
      if (plan.repeats(0)) {
        cpu::vector_loop(0, run.length, [=, x = *u](std::int64_t i) { y[i] = f(x, v[i]); });
      } else if (plan.repeats(1)) {
        cpu::vector_loop(0, run.length, [=, x = *v](std::int64_t i) { y[i] = f(u[i], x); });
      } else {
        cpu::vector_loop(0, run.length, [=](std::int64_t i) { y[i] = f(u[i], v[i]); });
      }
    });
  });
}

template <BinaryOp kOp, typename C>
void binary(const Plan& plan, std::int64_t begin, std::int64_t end, const C* a, const C* b, C* out) {
  for_each_pair(plan, begin, end, a, b, out, [](C x, C y) {
    if constexpr (std::is_integral_v<C>) {
      return static_cast<C>(integer_formula<kOp>(x, y));
    } else {
      return formula<kOp, Math<C>>(x, y);
    }
  });
}

template <CompareOp kOp, typename C>
void compare(const Plan& plan, std::int64_t begin, std::int64_t end, const C* a, const C* b, bool* out) {
  for_each_pair(plan, begin, end, a, b, out, [](C x, C y) { return holds<kOp>(x, y); });
}

// Widens elements [begin, end) of broadcast operands, at most kPiece.
template <typename Half>
void widen_pairs(const Plan& plan, std::int64_t begin, std::int64_t end, const Half* a, const Half* b, float* wide_a,
                 float* wide_b) {
  plan.for_each_run(begin, end, [&](const Plan::Run& run) {
    const auto copy = [&](std::size_t operand, const Half* from, float* to) {
      to += run.out - begin;
      if (plan.repeats(operand)) {
        std::fill_n(to, run.length, static_cast<float>(from[run.at[operand]]));
      } else {
        cpu::widen(from + run.at[operand], run.length, to);
      }
    };
    copy(0, a, wide_a);
    copy(1, b, wide_b);
  });
}

class Elementwise final : public ElementwiseKernels {
 public:
  void run(KernelContext& ctx, const kernels::Unary& call) override {
    visit_op(call.op.op, [&](auto kind) {
      run_loop(ctx, unary<kind(), float>, unary<kind(), double>, call.op.a, call.op.b, call.y, {call.x});
    });
  }

  void run(KernelContext& ctx, const kernels::UnaryBackward& call) override {
    visit_op(call.op.op, [&](auto kind) {
      run_loop(ctx, unary_backward<kind(), float>, unary_backward<kind(), double>, call.op.a, call.op.b, call.dx,
               {call.saved, call.dy});
    });
  }

  void run(KernelContext& ctx, const kernels::Affine& call) override {
    run_loop(ctx, affine<float>, affine<double>, call.scale, call.shift, call.y, {call.x});
  }

  void run(KernelContext& ctx, const kernels::Binary& call) override {
    const Plan plan({call.a.shape, call.b.shape}, call.out.shape);
    visit_dtype(call.out.dtype, [&](auto zero) {
      using T = decltype(zero);
      using C = decltype(cpu::widened(zero));
      if constexpr (std::is_same_v<T, bool>) {
        fail("binary: elements are bool, expected numbers");
      } else {
        if constexpr (std::is_integral_v<T>) check_divisor<T>(call);
        BroadcastLoop<C, C> loop = nullptr;
        visit_op(call.op, [&](auto kind) { loop = binary<kind(), C>; });
        run_loop<T, T>(ctx, loop, plan, call.a, call.b, call.out);
      }
    });
  }

  void run(KernelContext& ctx, const kernels::Compare& call) override {
    const Plan plan({call.a.shape, call.b.shape}, call.out.shape);
    visit_dtype(call.a.dtype, [&](auto zero) {
      using T = decltype(zero);
      using C = decltype(cpu::widened(zero));
      BroadcastLoop<C, bool> loop = nullptr;
      visit_op(call.op, [&](auto kind) { loop = compare<kind(), C>; });
      run_loop<T, bool>(ctx, loop, plan, call.a, call.b, call.out);
    });
  }

  void run(KernelContext& ctx, const kernels::Where& call) override {
    const cpu::BroadcastPlan<3> plan({call.a.shape, call.b.shape, call.condition.shape}, call.out.shape);
    cpu::visit_bits(call.out.dtype, [&, chosen = static_cast<const std::uint8_t*>(call.condition.data)](auto bits) {
      using Bits = decltype(bits);
      const auto *u = static_cast<const Bits*>(call.a.data), *v = static_cast<const Bits*>(call.b.data);
      auto* const y = static_cast<Bits*>(call.out.data);
      parallel_for(ctx, plan.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        cpu::vectorized([&] {
          plan.for_each_run(begin, end, [&](const cpu::BroadcastPlan<3>::Run& run) {
            const auto [i, j, k] = run.at;
            where_run(plan, chosen + k, u + i, v + j, y + run.out, run.length);
          });
        });
      });
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
        parallel_for(ctx, call.y.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
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

  // Runs the loop for the type of `out`, whose shape `in` have, too.
  static void run_loop(const KernelContext& ctx, ElementLoop<float> f32, ElementLoop<double> f64, double a, double b,
                       const View& out, std::initializer_list<View> in) {
    visit_dtype(out.dtype, [&](auto zero) {
      using T = decltype(zero);
      using C = decltype(cpu::widened(zero));
      if constexpr (!std::is_floating_point_v<C>) {
        fail("elementwise: elements are {}, expected floating ones", name(out.dtype));
      } else {
        std::array<const T*, 2> from{};
        std::ranges::transform(in, from.begin(), [](const View& view) { return view.as<T>(); });
        T* const to = out.as<T>();
        const auto loop = [&] {
          if constexpr (std::is_same_v<C, double>) {
            return f64;
          } else {
            return f32;
          }
        }();
        parallel_for(ctx, out.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
          const auto x = [&](std::size_t k, std::int64_t at) { return from[k] ? from[k] + at : nullptr; };
          if constexpr (is_half<T>) {
            float wide[2][cpu::kPiece], result[cpu::kPiece];
            for (std::int64_t n; begin < end; begin += n) {
              n = std::min(cpu::kPiece, end - begin);
              for (std::size_t k = 0; k < in.size(); ++k) cpu::widen(from[k] + begin, n, wide[k]);
              loop(n, {wide[0], wide[1]}, result, static_cast<C>(a), static_cast<C>(b));
              cpu::narrow(result, n, to + begin);
            }
          } else {
            loop(end - begin, {x(0, begin), x(1, begin)}, to + begin, static_cast<C>(a), static_cast<C>(b));
          }
        });
      }
    });
  }

  // Runs the loop for operands of T and results of Out.
  template <typename T, typename Out, typename C, typename Result>
  static void run_loop(const KernelContext& ctx, BroadcastLoop<C, Result> loop, const Plan& plan, const View& a,
                       const View& b, const View& out) {
    const T *const u = a.as<T>(), *const v = b.as<T>();
    Out* const y = out.as<Out>();
    parallel_for(ctx, plan.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (is_half<T>) {
        const Shape piece{cpu::kPiece};
        const Plan whole({piece, piece}, piece);
        float wide_u[cpu::kPiece], wide_v[cpu::kPiece];
        Result result[cpu::kPiece];
        for (std::int64_t n; begin < end; begin += n) {
          n = std::min(cpu::kPiece, end - begin);
          widen_pairs(plan, begin, begin + n, u, v, wide_u, wide_v);
          loop(whole, 0, n, wide_u, wide_v, result);
          if constexpr (std::is_same_v<Out, bool>) {
            std::copy_n(result, n, y + begin);
          } else {
            cpu::narrow(result, n, y + begin);
          }
        }
      } else {
        loop(plan, begin, end, u, v, y);
      }
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
