// Max pooling of f32, bf16, and f64; see backend/pool.h.
#pragma once

#include "lockstep/backend/pool.h"

namespace lockstep::cpu {

template <typename T>
void max_pool(KernelContext& ctx, const Pool2dOptions& options, const View& x, const View& y, const View& where);
template <typename T>
void max_pool_backward(KernelContext& ctx, const Pool2dOptions& options, const View& dy, const View& where,
                       const View& dx);

}  // namespace lockstep::cpu
