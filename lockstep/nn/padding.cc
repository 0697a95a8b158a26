#include "lockstep/nn/padding.h"

namespace lockstep {

PaddingLayer::PaddingLayer(PadMode mode, std::vector<std::int64_t> widths, double value)
    : mode_(mode), widths_(std::move(widths)), value_(value) {}

Tensor PaddingLayer::forward(const Tensor& x) {
  const int dims = x.shape().dim(), batched = static_cast<int>(widths_.size()) / 2 + 2;
  check(x.defined() && (dims == batched || dims == batched - 1), "{}: input is {}, expected {} axes ({}), or {} ({})",
        kind(), x, batched, batched == 3 ? "N, C, L" : "N, C, H, W", batched - 1, batched == 3 ? "C, L" : "C, H, W");
  return pad(x, widths_, mode_, value_);
}

}  // namespace lockstep
