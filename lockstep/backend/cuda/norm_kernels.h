// The large kernels of normalization (see backend/norm.h): sums over images, elementwise kernels on images, and kernels
// on rows.
#pragma once

#include "lockstep/backend/cuda/cuda_context.h"
#include "lockstep/backend/norm.h"

namespace lockstep::cuda {

void batch_norm_stats(CudaContext& context, const View& x, const BatchNormStats& stats);
void batch_norm_forward(CudaContext& context, const View& x, const BatchNormStats& stats, double eps, const View& gamma,
                        const View& beta, const View& residual, bool relu, const View& y);
void batch_norm_backward_stats(CudaContext& context, const View& dy, const View& x, const View& y,
                               const BatchNormStats& stats, double eps, const View& dgamma, const View& dbeta);
void batch_norm_backward_data(CudaContext& context, const View& dy, const View& x, const View& y,
                              const BatchNormStats& stats, double eps, const View& gamma, const View& sum_g,
                              const View& sum_g_xhat, const View& dx, const View& dresidual);

void rows_forward(CudaContext& context, const View& x, const View& weight, const View& bias, double eps,
                  const View& mean, const View& rstd, const View& y);
void rows_backward(CudaContext& context, const View& dy, const View& x, const View& mean, const View& rstd,
                   const View& weight, const View& dx, const View& dweight, const View& dbias);

// sums[c] = the sum of x over N, H, and W, in NormGrid's order: the gradient of a bias.
void sum_channels(CudaContext& context, const View& x, const View& sums);

}  // namespace lockstep::cuda
