// Convolutions and matrix products in f64: plain loops, for checks of gradients.
#pragma once

#include <memory>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/matmul.h"

namespace lockstep {

std::unique_ptr<ConvKernels> make_f64_conv();
std::unique_ptr<MatmulKernels> make_f64_matmul();

}  // namespace lockstep
