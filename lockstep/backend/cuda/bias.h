// The part of convolutions and products that the libraries leave to us: a bias, and its gradient.
#pragma once

#include "lockstep/backend/cuda/cuda_context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

// y += bias, rounded to y's type. y is [N, C, H, W], plain or channels-last, or [N, C]; bias is [C], f32 (f64 with f64).
void add_bias(CudaContext& context, const View& y, const View& bias);

// db = the sum of dy over all axes but 1, in an order that depends on shape and layout alone; `scratch` has
// bias_gradient_scratch(dy) bytes of the GPU's memory.
void sum_bias_gradient(CudaContext& context, const View& dy, const View& db, void* scratch);
std::size_t bias_gradient_scratch(const View& dy);

}  // namespace lockstep
