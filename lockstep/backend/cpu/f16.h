// Adds f16 to families that lack it: operands are copied to f32, the f32 kernel runs, and its output is rounded to f16.
// The results equal those of loops that load f16 and compute in f32. No CPU multiplies f16 faster than f32.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/backend/copy.h"
#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/backend/index.h"
#include "lockstep/backend/random.h"

namespace lockstep::cpu {

// Kernels that move elements know f16, and uniform numbers, which have as many bits as their type.
inline bool knows_f16(const auto&) { return false; }
inline bool knows_f16(const kernels::Copy& c) { return c.x.dtype == c.y.dtype; }
inline bool knows_f16(const kernels::CopyStrided&) { return true; }
inline bool knows_f16(const kernels::Take&) { return true; }
inline bool knows_f16(const kernels::Scatter&) { return true; }
inline bool knows_f16(const kernels::Uniform&) { return true; }

// Whether the call has an f16 operand, which may be empty, without memory; a missing operand is f32. Spans of views
// never hold f16.
bool has_f16(const auto& call) {
  bool found = false;
  const auto look = [&](const auto& views) {
    if constexpr (requires { views.dtype; }) found |= views.dtype == DType::f16;
  };
  call.views(call, look, look);
  return found;
}

struct ThroughF32 {
  // An f16 operand and the f32 copy that the kernel gets instead.
  struct Copy {
    View f16;
    std::unique_ptr<float[]> f32;
  };

  template <typename Call>
  void operator()(auto& kernels, KernelContext& ctx, const Call& call) const {
    if (knows_f16(call) || !has_f16(call)) return kernels.run(ctx, call);
    Call in_f32 = call;
    std::vector<Copy> copies, results;
    const auto widen = [](View& view, std::vector<Copy>& list) {
      const auto n = static_cast<std::size_t>(view.numel());
      list.push_back({view, std::make_unique_for_overwrite<float[]>(n)});
      view.data = list.back().f32.get();
      view.dtype = DType::f32;
    };
    const auto each = [&](std::vector<Copy>& list) {
      return [&](auto& view) {
        if constexpr (requires { view.dtype; }) {
          if (view.dtype == DType::f16) widen(view, list);
        }
      };
    };
    Call::views(in_f32, each(copies), each(results));
    for (const Copy& copy : copies) {
      parallel_vector_loop(ctx, copy.f16.numel(), [x = copy.f16.as<Float16>(), y = copy.f32.get()](std::int64_t i) {
        y[i] = static_cast<float>(x[i]);
      });
    }
    kernels.run(ctx, in_f32);
    // Round after the kernel has read all inputs, because an output may alias an input.
    for (const Copy& copy : results) {
      parallel_vector_loop(ctx, copy.f16.numel(),
                           [x = copy.f32.get(), y = copy.f16.as<Float16>()](std::int64_t i) { y[i] = Float16(x[i]); });
    }
  }
};

template <typename Family>
std::unique_ptr<Family> with_f16(std::unique_ptr<Family> kernels) {
  return std::make_unique<KernelsWith<Family, ThroughF32>>(std::move(kernels));
}

}  // namespace lockstep::cpu
