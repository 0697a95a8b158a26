#include "lockstep/backend/cpu/onednn_isa.h"

#include <oneapi/dnnl/dnnl.hpp>

#include "lockstep/backend/cpu/cpu_features.h"
#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"

namespace lockstep {

void onednn::limit_isa() {
  [[maybe_unused]] static const bool done = [] {
    if (simd() == widest_simd() || environment("ONEDNN_MAX_CPU_ISA") || environment("DNNL_MAX_CPU_ISA")) return true;
    const auto isa = simd() == Simd::avx2 ? dnnl::cpu_isa::avx2 : dnnl::cpu_isa::sse41;
    check(dnnl::set_max_cpu_isa(isa) == dnnl::status::success,
          "LOCKSTEP_SIMD: oneDNN has made its first kernel already; set ONEDNN_MAX_CPU_ISA as well");
    return true;
  }();
}

bool has_native_bf16() {
#if !defined(__x86_64__)
  return false;  // there, the numbers below mean other instruction sets
#else
  onednn::limit_isa();
  // Instruction sets are bit masks; each contains the sets it extends.
  constexpr auto kWanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kWanted) == kWanted;
#endif
}

}  // namespace lockstep
