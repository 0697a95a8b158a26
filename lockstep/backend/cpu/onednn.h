// Convolutions and matrix products by oneDNN, f32 and bf16; f64 goes to the reference kernels. At fixed sizes
// and a fixed number of threads their results are the same bits from run to run and from thread to thread.
#pragma once

#include <memory>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/cpu/cpu_features.h"
#include "lockstep/backend/matmul.h"

namespace lockstep {

// Without native bf16, products of bf16 numbers are computed by f32 arithmetic.
std::unique_ptr<ConvKernels> make_onednn_conv(bool native_bf16 = cpu_has_fast_bf16());
std::unique_ptr<MatmulKernels> make_onednn_matmul(bool native_bf16 = cpu_has_fast_bf16());

}  // namespace lockstep
