// Convolutions summed in f32 by f32_kernels.h. The bits of a result depend on shapes and values alone, not on the
// number of threads, the processor, or the layout.
#pragma once

#include <memory>

#include "lockstep/backend/conv.h"

namespace lockstep {

struct F32ConvOptions {
  bool direct = false;  // never Winograd's algorithm
};

// Computes f32, and bf16 and f16 through f32.
std::unique_ptr<ConvKernels> make_f32_conv(const F32ConvOptions& options = {});

}  // namespace lockstep
