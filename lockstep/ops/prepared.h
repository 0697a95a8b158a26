// Weights in the order that kernels read them, made once for each update and shared by the shards of a device.
#pragma once

#include "lockstep/backend/conv.h"
#include "lockstep/backend/matmul.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// Both functions push a task if w has changed since the last call. They return an undefined array if there is nothing
// to prepare, or if w is no parameter: it belongs to a shard.

// The result of kernels::PrepareConv for w in convolutions of inputs [N, C, H, W] of `dtype`.
Array prepared_weights(const Array& w, ConvPass pass, const Conv2dOptions& options, const Shape& x, DType dtype);
// The result of kernels::PrepareMatmul for w as the right side of products of `rows` rows of `dtype`. The first
// product after an update packs w itself, panel by panel, which is faster if it stays the only one.
Array prepared_weights(const Array& w, const MatmulOptions& options, std::int64_t rows, DType dtype);

}  // namespace lockstep::ops
