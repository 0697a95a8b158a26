// How broadcast operands line up. Adjacent axes are merged if each operand advances on both or repeats on both. The
// result is walked in runs along the innermost axis, where each operand either advances or repeats one element.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "lockstep/tensor/shape.h"

namespace lockstep::cpu {

template <std::size_t kOperands>
class BroadcastPlan {
 public:
  // Elements [out, out + length) of the result, and the index of each operand's first element.
  struct Run {
    std::array<std::int64_t, kOperands> at;
    std::int64_t out;
    std::int64_t length;
  };

  // The operands broadcast to `out` as in NumPy. All are plain, or all have one shape.
  BroadcastPlan(const std::array<Shape, kOperands>& operands, const Shape& out) : numel_(out.numel()) {
    std::array<std::int64_t, kOperands> strides;
    strides.fill(1);
    for (int k = 1; k <= out.dim(); ++k) {
      const std::int64_t extent = out[-k];
      if (extent == 1) continue;
      Axis axis{extent, {}};
      bool as_before = dim_ > 0;
      for (std::size_t i = 0; i < kOperands; ++i) {
        const bool moves = k <= operands[i].dim() && operands[i][-k] != 1;
        if (moves) axis.step[i] = strides[i];
        if (moves) strides[i] *= extent;
        as_before = as_before && moves == (axes_[dim_ - 1].step[i] != 0);
      }
      if (as_before) {
        axes_[dim_ - 1].extent *= extent;
      } else {
        axes_[dim_++] = axis;
      }
    }
    if (dim_ > 0) return;
    axes_[dim_++].extent = 1;
    axes_[0].step.fill(1);
  }

  std::int64_t numel() const { return numel_; }
  // True if the operand repeats one element during a run. Never true for all operands.
  bool repeats(std::size_t operand) const { return axes_[0].step[operand] == 0; }

  // Calls f(run) for the runs that make up elements [begin, end) of the result, in order.
  template <typename F>
  void for_each_run(std::int64_t begin, std::int64_t end, const F& f) const {
    std::array<std::int64_t, Shape::kMaxDim> index{};
    std::array<std::int64_t, kOperands> at{};
    const auto move = [&](std::int64_t axis, std::int64_t steps) {
      index[axis] += steps;
      for (std::size_t i = 0; i < kOperands; ++i) at[i] += steps * axes_[axis].step[i];
    };
    for (std::int64_t k = 0, rest = begin; k < dim_ && rest > 0; ++k) {
      move(k, rest % axes_[k].extent);
      rest /= axes_[k].extent;
    }
    while (begin < end) {
      std::int64_t length = std::min(axes_[0].extent - index[0], end - begin);
      f(Run{at, begin, length});
      begin += length;
      for (std::int64_t k = 0, step = length; k < dim_; ++k, step = 1) {
        move(k, step);
        if (index[k] < axes_[k].extent) break;
        move(k, -index[k]);
      }
    }
  }

 private:
  // A step of 0 repeats an element.
  struct Axis {
    std::int64_t extent;
    std::array<std::int64_t, kOperands> step;
  };

  std::int64_t numel_;
  int dim_ = 0;
  std::array<Axis, Shape::kMaxDim> axes_{};  // innermost first
};

}  // namespace lockstep::cpu
