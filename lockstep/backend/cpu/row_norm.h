// Layer norm and RMS norm; see backend/norm.h.
#pragma once

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace lockstep::cpu {

void rows_forward(KernelContext& ctx, const View& x, const View& weight, const View& bias, double eps, const View& mean,
                  const View& rstd, const View& y);
void rows_backward(KernelContext& ctx, const View& dy, const View& x, const View& mean, const View& rstd,
                   const View& weight, const View& dx, const View& dweight, const View& dbias);

}  // namespace lockstep::cpu
