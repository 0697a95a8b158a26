// The families of the CUDA back end, one source file each.
#pragma once

#include <memory>

#include "lockstep/backend/copy.h"
#include "lockstep/backend/elementwise.h"
#include "lockstep/backend/index.h"
#include "lockstep/backend/norm.h"
#include "lockstep/backend/optimizer.h"
#include "lockstep/backend/pool.h"
#include "lockstep/backend/random.h"
#include "lockstep/backend/reduce.h"
#include "lockstep/backend/softmax.h"

namespace lockstep {

std::unique_ptr<ElementwiseKernels> make_cuda_elementwise();
std::unique_ptr<CopyKernels> make_cuda_copy();
std::unique_ptr<IndexKernels> make_cuda_index();
std::unique_ptr<ReduceKernels> make_cuda_reduce();
std::unique_ptr<NormKernels> make_cuda_norm();
std::unique_ptr<PoolKernels> make_cuda_pool();
std::unique_ptr<SoftmaxKernels> make_cuda_softmax();
std::unique_ptr<RandomKernels> make_cuda_random();
std::unique_ptr<OptimizerKernels> make_cuda_optimizer();

}  // namespace lockstep
