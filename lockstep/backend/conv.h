// Internal: two-dimensional convolutions (cross-correlations, as everywhere in deep learning).
#pragma once

#include "lockstep/backend/context.h"
#include "lockstep/backend/weight_view.h"
#include "lockstep/backend/window.h"

namespace lockstep {

enum class ConvPass : std::uint8_t { forward, backward_data, backward_weights };

// x is [N, C, H, W], y [N, O, H', W'], both of the same dtype (f32, bf16, f16 or f64), each in any layout that fits it.
// w is [O, C / groups, KH, KW], plain. w, bias [O], and their gradients are f32 master weights (f64 if x is f64);
// kernels round them to x's dtype if that is bf16 or f16. H' = (H + 2 padding - dilation (KH - 1) - 1) / stride + 1.
class ConvKernels {
 public:
  virtual ~ConvKernels() = default;

  // The fastest layout for activations of this dtype and number of channels.
  virtual Layout preferred_layout(DType dtype, std::int64_t channels) const = 0;

  // Kernels may read weights in their own order. prepare() writes that order to `prepared`, which the calls of a pass
  // can share until the weights change. prepared_size() is its size in f32; 0 if there is nothing to prepare. Images,
  // stride, padding, and dilation may decide the size, but calls of one size, pass, and dtype share the result.
  virtual std::int64_t prepared_size([[maybe_unused]] ConvPass pass, const Conv2dOptions&,
                                     [[maybe_unused]] const Shape& x, [[maybe_unused]] const Shape& w,
                                     [[maybe_unused]] DType dtype) const {
    return 0;
  }
  virtual void prepare(KernelContext&, ConvPass, const Conv2dOptions&, [[maybe_unused]] const Shape& x,
                       [[maybe_unused]] const View& w, [[maybe_unused]] DType dtype,
                       [[maybe_unused]] const View& prepared) {}

  // bias may be absent.
  virtual void forward(KernelContext&, const Conv2dOptions&, const View& x, const WeightView& w, const View& bias,
                       const View& y) = 0;
  virtual void backward_data(KernelContext&, const Conv2dOptions&, const View& dy, const WeightView& w,
                             const View& dx) = 0;
  // dw = the gradient of w; db (may be absent) = the sum of dy over N, H', and W'.
  virtual void backward_weights(KernelContext&, const Conv2dOptions&, const View& x, const View& dy, const View& dw,
                                const View& db) = 0;
};

}  // namespace lockstep
