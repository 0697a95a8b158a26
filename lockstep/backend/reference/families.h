// The reference kernels, family by family: one source file each, gathered in reference.cc.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"

namespace lockstep::reference {

std::unique_ptr<ElementwiseKernels> make_elementwise();
std::unique_ptr<CopyKernels> make_copy();
std::unique_ptr<IndexKernels> make_index();
std::unique_ptr<ReduceKernels> make_reduce();
std::unique_ptr<MatmulKernels> make_matmul();
std::unique_ptr<ConvKernels> make_conv();
std::unique_ptr<NormKernels> make_norm();
std::unique_ptr<PoolKernels> make_pool();
std::unique_ptr<SoftmaxKernels> make_softmax();
std::unique_ptr<RandomKernels> make_random();
std::unique_ptr<OptimizerKernels> make_optimizer();
std::unique_ptr<AttentionKernels> make_attention();

}  // namespace lockstep::reference
