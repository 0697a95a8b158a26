// The families that use NVIDIA's libraries. families.h has those with Lockstep's own kernels.
#pragma once

#include <memory>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/copy.h"
#include "lockstep/backend/cuda/algorithm_choices.h"
#include "lockstep/backend/matmul.h"

namespace lockstep {

struct LibraryOptions {
  // Multiplies f32 in TF32: 10 bits of mantissa.
  bool tf32 = false;
};

// `copy` rounds master weights and reorders. It and `choices` must outlive the result.
std::unique_ptr<MatmulKernels> make_cublas_matmul(LibraryOptions options, AlgorithmChoices& choices, CopyKernels& copy);
std::unique_ptr<ConvKernels> make_cudnn_conv(LibraryOptions options, AlgorithmChoices& choices, CopyKernels& copy);

}  // namespace lockstep
