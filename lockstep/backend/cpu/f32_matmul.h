// Matrix products summed in f32, on f32_kernels.h. The bits of a result are a function of shapes and values alone: not of the
// number of threads or the processor.
#pragma once

#include <memory>

#include "lockstep/backend/matmul.h"

namespace lockstep {

// For f32, and for bf16 and f16 with f32 inside.
std::unique_ptr<MatmulKernels> make_f32_matmul();

}  // namespace lockstep
