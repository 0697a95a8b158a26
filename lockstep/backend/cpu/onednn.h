// bf16 convolutions and matrix products by oneDNN, on processors that multiply bf16. Weights and their gradients may be
// f32. With fixed sizes and a fixed number of threads, results have the same bits in every run and on every thread.
#pragma once

#include <memory>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/matmul.h"

namespace lockstep {

// True if the processor multiplies bf16 (AVX-512 BF16 or AMX) and oneDNN may use that (ONEDNN_MAX_CPU_ISA).
bool has_native_bf16();

// Return null if Lockstep was built without oneDNN (-DLOCKSTEP_ONEDNN=OFF).
std::unique_ptr<ConvKernels> make_onednn_conv();
std::unique_ptr<MatmulKernels> make_onednn_matmul();

}  // namespace lockstep
