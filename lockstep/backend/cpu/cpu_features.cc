#include "lockstep/backend/cpu/cpu_features.h"

namespace lockstep {

#if defined(__x86_64__)
// __builtin_cpu_supports also asks whether the operating system saves the registers.
bool cpu_has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#else
bool cpu_has_avx512() { return false; }
#endif

}  // namespace lockstep
