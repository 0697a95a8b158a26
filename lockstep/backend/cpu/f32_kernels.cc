#include "lockstep/backend/cpu/f32_kernels.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// Functions between push and pop are compiled for the named instructions. All standard headers are included above, so
// their functions keep the baseline instructions.
namespace lockstep::cpu {
#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma")
#define LOCKSTEP_TARGET_AVX512
namespace avx512 {
#include "lockstep/backend/cpu/f32x16.inc"

#include "lockstep/backend/cpu/winograd.inc"

#include "lockstep/backend/cpu/f32_kernels.inc"
}  // namespace avx512
#undef LOCKSTEP_TARGET_AVX512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define LOCKSTEP_TARGET_AVX2
namespace avx2 {
#include "lockstep/backend/cpu/f32x16.inc"

#include "lockstep/backend/cpu/winograd.inc"

#include "lockstep/backend/cpu/f32_kernels.inc"
}  // namespace avx2
#undef LOCKSTEP_TARGET_AVX2
#pragma GCC pop_options

#elif defined(__aarch64__)

#define LOCKSTEP_TARGET_NEON
namespace neon {
#include "lockstep/backend/cpu/f32x16.inc"

#include "lockstep/backend/cpu/winograd.inc"

#include "lockstep/backend/cpu/f32_kernels.inc"
}  // namespace neon
#undef LOCKSTEP_TARGET_NEON

#endif

// Any processor: the C library's fmaf() is exact, but slow without an instruction for it.
#define LOCKSTEP_TARGET_SCALAR
namespace scalar {
#include "lockstep/backend/cpu/f32x16.inc"

#include "lockstep/backend/cpu/winograd.inc"

#include "lockstep/backend/cpu/f32_kernels.inc"
}  // namespace scalar
#undef LOCKSTEP_TARGET_SCALAR

const F32Kernels& f32_kernels() { return f32_kernels(simd()); }

const F32Kernels& f32_kernels(Simd simd) {
  switch (simd) {
#if defined(__x86_64__)
    case Simd::avx512: return avx512::kKernels;
    case Simd::avx2: return avx2::kKernels;
#elif defined(__aarch64__)
    case Simd::neon: return neon::kKernels;
#endif
    default: return scalar::kKernels;
  }
}

}  // namespace lockstep::cpu
