// Convolutions. Shapes are as in backend/conv.h; activations stay in the layout that the device prefers.
#pragma once

#include "lockstep/backend/conv.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::ops {

// x [N, C, H, W], w [O, C / groups, KH, KW], bias [O] or undefined -> [N, O, H', W'].
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& options = {});

// The gradient of x (its shape is given).
Tensor conv2d_backward_data(const Tensor& dy, const Tensor& w, const Shape& x_shape, const Conv2dOptions& options);

struct ConvWeightGrads {
  Tensor weight;
  Tensor bias;  // undefined unless asked for
};
// into: memory for that of the weight, plain f32 (f64 for an x of f64); undefined: new.
ConvWeightGrads conv2d_backward_weights(const Tensor& x, const Tensor& dy, const Shape& w_shape, bool with_bias,
                                        const Conv2dOptions& options, const Tensor& into = {});

}  // namespace lockstep::ops
