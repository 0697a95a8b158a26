// Internal: two-dimensional convolutions (cross-correlations, as everywhere in deep learning).
#pragma once

#include "lockstep/backend/kernels.h"
#include "lockstep/backend/weight_view.h"
#include "lockstep/backend/window.h"

namespace lockstep {

enum class ConvPass : std::uint8_t { forward, backward_data, backward_weights };

namespace kernels {

// x is [N, C, H, W], y [N, O, H', W'], both of the same dtype (f32, bf16, f16 or f64), each in any layout that fits it.
// w is [O, C / groups, KH, KW], plain. w, bias [O], and their gradients are f32 master weights (f64 if x is f64);
// kernels round them to x's dtype if that is bf16 or f16. H' = (H + 2 padding - dilation (KH - 1) - 1) / stride + 1.

// Kernels may read weights in an order of their own. This call writes them in that order to `prepared`, which the calls
// of a pass can share until the weights change. See ConvKernels::prepared_size().
struct PrepareConv {
  ConvPass pass;
  Conv2dOptions options;
  Shape x;
  View w;
  DType dtype;
  View prepared;
  static void views(auto& c, const auto& in, const auto& out) { in(c.w), out(c.prepared); }
};

// bias may be absent.
struct Conv {
  Conv2dOptions options;
  View x;
  WeightView w;
  View bias, y;
  std::int64_t as_images = 0;  // kernels whose bits depend on N sum as for this N; 0: N
  static void views(auto& c, const auto& in, const auto& out) {
    in(c.x), in(c.w), in(c.w.prepared), in(c.bias), out(c.y);
  }
};

struct ConvBackwardData {
  Conv2dOptions options;
  View dy;
  WeightView w;
  View dx;
  std::int64_t as_images = 0;
  static void views(auto& c, const auto& in, const auto& out) { in(c.dy), in(c.w), in(c.w.prepared), out(c.dx); }
};

// dw = the gradient of w; db (may be absent) = the sum of dy over N, H', and W'.
struct ConvBackwardWeights {
  Conv2dOptions options;
  View x, dy, dw, db;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), in(c.dy), out(c.dw), out(c.db); }
};

}  // namespace kernels

class ConvKernels
    : public Kernels<kernels::PrepareConv, kernels::Conv, kernels::ConvBackwardData, kernels::ConvBackwardWeights> {
 public:
  // The fastest layout for activations of this dtype and number of channels.
  virtual Layout preferred_layout(DType dtype, std::int64_t channels) const = 0;

  // Number of f32 in PrepareConv::prepared; 0 if there is nothing to prepare. It may depend on images, stride, padding,
  // and dilation, but calls with the same size, pass, and dtype can share the result.
  virtual std::int64_t prepared_size([[maybe_unused]] ConvPass pass, const Conv2dOptions&,
                                     [[maybe_unused]] const Shape& x, [[maybe_unused]] const Shape& w,
                                     [[maybe_unused]] DType dtype) const {
    return 0;
  }

  using Kernels::run;
  void run(KernelContext&, const kernels::PrepareConv&) override {}
};

}  // namespace lockstep
