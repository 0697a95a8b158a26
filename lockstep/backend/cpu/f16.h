// Adds f16 to kernels that lack it: operands are copied to f32, the f32 kernel runs, and its output is rounded to f16.
// The results equal those of loops that load f16 and compute in f32. No CPU multiplies f16 faster than f32.
#pragma once

#include <memory>

#include "lockstep/backend/copy.h"
#include "lockstep/backend/elementwise.h"
#include "lockstep/backend/index.h"
#include "lockstep/backend/norm.h"
#include "lockstep/backend/pool.h"
#include "lockstep/backend/random.h"
#include "lockstep/backend/reduce.h"
#include "lockstep/backend/softmax.h"

namespace lockstep::cpu {

std::unique_ptr<ElementwiseKernels> with_f16(std::unique_ptr<ElementwiseKernels> kernels);
std::unique_ptr<CopyKernels> with_f16(std::unique_ptr<CopyKernels> kernels);
std::unique_ptr<IndexKernels> with_f16(std::unique_ptr<IndexKernels> kernels);
std::unique_ptr<ReduceKernels> with_f16(std::unique_ptr<ReduceKernels> kernels);
std::unique_ptr<NormKernels> with_f16(std::unique_ptr<NormKernels> kernels);
std::unique_ptr<PoolKernels> with_f16(std::unique_ptr<PoolKernels> kernels);
std::unique_ptr<SoftmaxKernels> with_f16(std::unique_ptr<SoftmaxKernels> kernels);
std::unique_ptr<RandomKernels> with_f16(std::unique_ptr<RandomKernels> kernels);

}  // namespace lockstep::cpu
