// The families on top of NVIDIA's libraries; those of our own kernels are in families.h.
#pragma once

#include <memory>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/copy.h"
#include "lockstep/backend/cuda/algorithm_choices.h"
#include "lockstep/backend/matmul.h"

namespace lockstep {

struct LibraryOptions {
  // Multiply f32 in TF32: 10 bits of mantissa.
  bool tf32 = false;
};

// `copy` rounds master weights and reorders; it and `choices` outlive what is made.
std::unique_ptr<MatmulKernels> make_cublas_matmul(LibraryOptions options, AlgorithmChoices& choices, CopyKernels& copy);
std::unique_ptr<ConvKernels> make_cudnn_conv(LibraryOptions options, AlgorithmChoices& choices, CopyKernels& copy);

}  // namespace lockstep
