// Convolutions summed in f32, on f32_kernels.h. The bits of a result are a function of shapes and values alone: not of the
// number of threads, the processor, or the layout.
#pragma once

#include <memory>

#include "lockstep/backend/conv.h"

namespace lockstep {

struct F32ConvOptions {
  bool direct = false;  // never Winograd's algorithm
};

// For f32, and for bf16 and f16 with f32 inside.
std::unique_ptr<ConvKernels> make_f32_conv(const F32ConvOptions& options = {});

}  // namespace lockstep
