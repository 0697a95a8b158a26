// Weight gradients as one product of matrices, dw = dy^T unfold(x): unfold(x) has a row for each output pixel
// and a column for each weight of one output channel. Private to the CPU back end.
#pragma once

#include "lockstep/backend/conv.h"
#include "lockstep/backend/cpu/onednn_executor.h"

namespace lockstep::onednn {

// True if this is faster than oneDNN's own bf16 weight gradient. oneDNN multiplies one row of output pixels, padded to
// 32, by input channels, padded to 16; for small images or one channel, most of that is padding. A pure function of
// sizes, types, and layouts, never of timing, because the choice affects the bits.
bool unfolding_pays(const Conv2dOptions& options, const View& x, const View& dy, const View& dw);

// Runs kernels::ConvBackwardWeights for bf16 operands for which unfolding_pays().
void backward_weights_unfolded(Executor& executor, KernelContext& context, const Conv2dOptions& options, const View& x,
                               const View& dy, const View& dw, const View& db);

}  // namespace lockstep::onednn
