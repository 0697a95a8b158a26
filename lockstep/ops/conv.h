// Internal: convolutions. Shapes are as in backend/conv.h; activations stay in the layout that the device prefers.
#pragma once

#include "lockstep/backend/conv.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// x [N, C, H, W], w [O, C / groups, KH, KW], bias [O] or undefined -> [N, O, H', W'].
// Errors name `what`.
Array conv2d(const Array& x, const Array& w, const Array& bias, const Conv2dOptions& options = {},
             std::string_view what = "conv2d");

// The gradient of x, which has the shape x_shape.
Array conv2d_backward_data(const Array& dy, const Array& w, const Shape& x_shape, const Conv2dOptions& options);

struct ConvWeightGrads {
  Array weight;
  Array bias;  // undefined unless requested
};
// into: memory for the weight's gradient, plain f32 (f64 if x is f64); if undefined, it is allocated.
ConvWeightGrads conv2d_backward_weights(const Array& x, const Array& dy, const Shape& w_shape, bool with_bias,
                                        const Conv2dOptions& options, const Array& into = {});

}  // namespace lockstep::ops
