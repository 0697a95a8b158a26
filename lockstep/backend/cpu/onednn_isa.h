// The instructions that oneDNN may use. Private to the CPU back end.
#pragma once

namespace lockstep::onednn {

// Call it before any other use of oneDNN. A narrower LOCKSTEP_SIMD (cpu_features.h) also limits oneDNN, so that this
// one variable reproduces what another processor computes. If ONEDNN_MAX_CPU_ISA (oneDNN 2: DNNL_MAX_CPU_ISA) is set,
// oneDNN uses that instead. On other processors than x86, oneDNN computes nothing (has_native_bf16()).
void limit_isa();

}  // namespace lockstep::onednn
