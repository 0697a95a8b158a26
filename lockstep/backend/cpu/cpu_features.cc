#include "lockstep/backend/cpu/cpu_features.h"

#include <array>
#include <string_view>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 4> kNames{"scalar", "avx2", "avx512", "neon"};  // in the order of Simd

bool includes(Simd widest, Simd simd) {
  return simd == widest || simd == Simd::scalar || (simd == Simd::avx2 && widest == Simd::avx512);
}

}  // namespace

Simd widest_simd() {
#if defined(__x86_64__)
  // __builtin_cpu_supports also checks that the operating system saves the registers.
  const bool fma = __builtin_cpu_supports("fma");
  if (fma && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    return Simd::avx512;
  }
  if (fma && __builtin_cpu_supports("avx2")) return Simd::avx2;
  return Simd::scalar;
#elif defined(__aarch64__)
  return Simd::neon;
#else
  return Simd::scalar;
#endif
}

Simd choose_simd(const std::optional<std::string>& setting, Simd widest) {
  if (!setting) return widest;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (*setting != kNames[i]) continue;
    check(includes(widest, static_cast<Simd>(i)), "LOCKSTEP_SIMD is {}, but this processor supports at most {}",
          *setting, kNames[static_cast<std::size_t>(widest)]);
    return static_cast<Simd>(i);
  }
  fail("LOCKSTEP_SIMD is \"{}\", expected scalar, avx2, avx512, or neon", *setting);
}

Simd simd() {
  static const Simd chosen = choose_simd(environment("LOCKSTEP_SIMD"), widest_simd());
  return chosen;
}

}  // namespace lockstep
