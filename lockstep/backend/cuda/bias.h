// The bias of convolutions and products, which the libraries do not add.
#pragma once

#include "lockstep/backend/cuda/cuda_context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

// y += bias, rounded to y's type. y is [N, C, H, W], plain or channels-last, or [N, C]; bias is [C], f32 (f64 with
// f64).
void add_bias(CudaContext& context, const View& y, const View& bias);

}  // namespace lockstep
