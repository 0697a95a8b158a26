// Rounds f32 to bf16 by an instruction that some processors have. Rounding is most of the cost of a bf16 kernel, and
// the instruction takes a fifth of the time of integer arithmetic. It also rounds to nearest even, but flushes
// subnormal numbers to zero.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/backend/cpu/element.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::cpu {
#if defined(__x86_64__)
#define LOCKSTEP_NATIVE_BF16 gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

template <typename F>
[[LOCKSTEP_NATIVE_BF16, gnu::flatten]] void run_native_bf16(const F& f) {
  f(std::true_type{});
}

// y[i] = x[i] for i < kCount, a multiple of 16. Call it only from run_native_bf16.
template <std::int64_t kCount>
[[LOCKSTEP_NATIVE_BF16]] inline void round_natively(const float* x, BFloat16* y) {
  for (std::int64_t i = 0; i < kCount; i += 16) {
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(x + i));
    std::memcpy(static_cast<void*>(y + i), &rounded, sizeof(rounded));
  }
}

#undef LOCKSTEP_NATIVE_BF16
#endif

// Calls vectorized(f) for a kernel that writes T. f gets a constant: whether to round by the instruction.
template <typename T, typename F>
void vectorized_for(const F& f) {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (simd() == Simd::avx512 && __builtin_cpu_supports("avx512bf16")) return run_native_bf16(f);
  }
#endif
  vectorized_as<T>([&] { f(std::false_type{}); });
}

// y[i] = x[i], rounded, for i < kCount.
template <std::int64_t kCount, typename T, bool kNative>
void store_row(const Computed<T>* x, T* y, std::bool_constant<kNative>) {
#if defined(__x86_64__)
  if constexpr (kNative) return round_natively<kCount>(x, y);
#endif
  for (std::int64_t i = 0; i < kCount; ++i) y[i] = static_cast<T>(x[i]);
}

}  // namespace lockstep::cpu
