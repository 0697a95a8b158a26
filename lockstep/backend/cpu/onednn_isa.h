// The instructions that oneDNN may use. Private to the CPU back end.
#pragma once

namespace lockstep::onednn {

// Before anything else is asked of oneDNN: a narrower LOCKSTEP_SIMD (cpu_features.h) is its limit, too, so that one variable
// shows what another processor computes. ONEDNN_MAX_CPU_ISA (oneDNN 2: DNNL_MAX_CPU_ISA), where set, is left to oneDNN.
void limit_isa();

}  // namespace lockstep::onednn
