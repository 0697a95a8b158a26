// The families of the CPU back end. Convolutions and matrix products accept every floating type: f64_kernels.h computes
// f64, oneDNN computes bf16 if the processor multiplies it, and the f32 kernels compute the rest. Elementwise kernels
// widen bf16 and f16 in pieces; see halves.h. The other families have no f16 kernels; see f16.h.
#pragma once

#include <memory>

#include "lockstep/backend/attention.h"
#include "lockstep/backend/backend.h"
#include "lockstep/backend/conv.h"
#include "lockstep/backend/copy.h"
#include "lockstep/backend/elementwise.h"
#include "lockstep/backend/index.h"
#include "lockstep/backend/matmul.h"
#include "lockstep/backend/norm.h"
#include "lockstep/backend/optimizer.h"
#include "lockstep/backend/pool.h"
#include "lockstep/backend/random.h"
#include "lockstep/backend/reduce.h"
#include "lockstep/backend/softmax.h"

namespace lockstep {

std::unique_ptr<ElementwiseKernels> make_cpu_elementwise();
std::unique_ptr<CopyKernels> make_cpu_copy();
std::unique_ptr<IndexKernels> make_cpu_index();
std::unique_ptr<ReduceKernels> make_cpu_reduce();
std::unique_ptr<MatmulKernels> make_cpu_matmul();
std::unique_ptr<ConvKernels> make_cpu_conv(const CpuBackendOptions& options);
std::unique_ptr<NormKernels> make_cpu_norm();
std::unique_ptr<PoolKernels> make_cpu_pool();
std::unique_ptr<SoftmaxKernels> make_cpu_softmax();
std::unique_ptr<RandomKernels> make_cpu_random();
std::unique_ptr<OptimizerKernels> make_cpu_optimizer();
std::unique_ptr<AttentionKernels> make_cpu_attention();

}  // namespace lockstep
