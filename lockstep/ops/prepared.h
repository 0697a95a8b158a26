// Weights in the order that kernels read them, made once for each update and shared by the shards of a device.
#pragma once

#include "lockstep/backend/conv.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// The result of ConvKernels::prepare() for w in convolutions of inputs [N, C, H, W] of `dtype`. Pushes a task if w has
// changed since the last call. Undefined if there is nothing to prepare, or if w is no parameter: it belongs to a
// shard.
Array prepared_weights(const Array& w, ConvPass pass, const Conv2dOptions& options, const Shape& x, DType dtype);

}  // namespace lockstep::ops
