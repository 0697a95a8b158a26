// Convolutions and matrix products of bf16 by oneDNN, on processors that multiply bf16. Weights and their gradients may be
// f32. At fixed sizes and a fixed number of threads the results have the same bits from run to run and from thread to thread.
#pragma once

#include <memory>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/matmul.h"

namespace lockstep {

// True if the processor multiplies bf16 (AVX-512 BF16 or AMX) and oneDNN may use that (ONEDNN_MAX_CPU_ISA).
bool has_native_bf16();

// Null where Lockstep was built without oneDNN (-DLOCKSTEP_ONEDNN=OFF).
std::unique_ptr<ConvKernels> make_onednn_conv();
std::unique_ptr<MatmulKernels> make_onednn_matmul();

}  // namespace lockstep
