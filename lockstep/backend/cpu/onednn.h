// Convolutions and matrix products by oneDNN, f32, bf16 and f16 (as f32); f64 goes to the reference kernels. At fixed sizes
// and a fixed number of threads their results are the same bits from run to run and from thread to thread.
#pragma once

#include <memory>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/matmul.h"

namespace lockstep {

// True if the processor multiplies bf16 (AVX-512 BF16 or AMX) and oneDNN may use that (ONEDNN_MAX_CPU_ISA).
bool has_native_bf16();

// Without native bf16, products of bf16 numbers are computed by f32 arithmetic.
std::unique_ptr<ConvKernels> make_onednn_conv(bool native_bf16 = has_native_bf16());
std::unique_ptr<MatmulKernels> make_onednn_matmul(bool native_bf16 = has_native_bf16());

}  // namespace lockstep
