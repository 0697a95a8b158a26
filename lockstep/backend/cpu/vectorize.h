// Compiles loops for the widest vectors of simd(), although the library is built for baseline x86-64.
#pragma once

#include <cstdint>

#include "lockstep/backend/cpu/cpu_features.h"
#include "lockstep/backend/cpu/parallel_for.h"

namespace lockstep::cpu {
// Sanitizers look at the source's accesses, which are the same for each set of instructions; compiling a loop once
// takes a third of the time.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// `flatten` inlines everything that f calls, so that it is compiled for these instructions. Unlike target_clones, this
// works for templates and lambdas and needs no ifunc (sanitizers run before ifuncs are resolved).
template <typename F>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq"), gnu::flatten]] void run_avx512(const F& f) {
  f();
}
template <typename F>
[[gnu::target("avx2"), gnu::flatten]] void run_avx2(const F& f) {
  f();
}

// Processors without AVX2 are slow in any case. Leaving their loops scalar takes a fifth off the time to compile. The
// attribute repeats the option that decides bits, because it might not combine with the command line's options.
template <typename F>
[[gnu::optimize("no-tree-vectorize", "fp-contract=off"), gnu::flatten]] void run_scalar(const F& f) {
  f();
}

// Calls f(), compiled for the instructions of simd(). If f fixes the order of its sums, results have the same bits
// everywhere, because no multiply-add is fused.
template <typename F>
void vectorized(const F& f) {
  switch (simd()) {
    case Simd::avx512: return run_avx512(f);
    case Simd::avx2: return run_avx2(f);
    default: return run_scalar(f);
  }
}

#else
template <typename F>
void vectorized(const F& f) {
  f();
}
#endif

// Calls f(i) for every i in [begin, end). One f(i) must not read what another writes: y may alias x, but must not
// overlap it partially.
template <typename F>
void vector_loop(std::int64_t begin, std::int64_t end, const F& f) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) f(i);
}

// Runs vector_loop() over [0, count) on the threads of the lane.
template <typename F>
void parallel_vector_loop(const KernelContext& ctx, std::int64_t count, const F& f) {
  constexpr std::int64_t kGrain = 16384;
  parallel_for(ctx, count, kGrain,
               [&](std::int64_t begin, std::int64_t end) { vectorized([&] { vector_loop(begin, end, f); }); });
}

}  // namespace lockstep::cpu
