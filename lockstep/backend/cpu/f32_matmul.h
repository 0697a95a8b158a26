// Matrix products summed in f32, on f32_kernels.h. The bits of a result depend on shapes and values alone, not on the
// number of threads or the processor.
#pragma once

#include <memory>

#include "lockstep/backend/matmul.h"

namespace lockstep {

// Computes f32, and bf16 and f16 through f32.
std::unique_ptr<MatmulKernels> make_f32_matmul();

}  // namespace lockstep
