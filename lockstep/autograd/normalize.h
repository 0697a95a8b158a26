// Normalization of each sample separately.
//
//   Tensor embeddings = normalize(encoder(x));
//
// weight and bias may be undefined. bf16 and f16 are normalized in f32.
// nn/normalization.h has the layers, and nn/batch_norm.h the one that normalizes over the samples.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// (x - mean) / sqrt(var + eps) * weight + bias over the last axes, whose extents are normalized_shape.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
// x / sqrt(mean(x^2) + eps) * weight over the same axes. eps defaults to 2^-52 for f64 and 2^-23 for the other types.
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});
// Like layer norm, over each group of channels: x [N, C, ..], weight and bias [C].
Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
// x / max(|x|, eps) along the axis, by norm().
Tensor normalize(const Tensor& x, double p = 2, int dim = 1, double eps = 1e-12);
// Group norm with one channel per group: x [N, C, ..] with more than one element in a channel.
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);

}  // namespace lockstep
