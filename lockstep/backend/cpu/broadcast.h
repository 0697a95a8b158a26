// How broadcast operands line up: axes on which both operands do the same are joined, and what is left is
// walked in runs along the innermost axis, where each operand either moves on or repeats one element.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "lockstep/tensor/shape.h"

namespace lockstep::cpu {

class BroadcastPlan {
 public:
  // Elements [out, out + length) of the result, and the first elements of the operands that belong to them.
  struct Run {
    std::int64_t a;
    std::int64_t b;
    std::int64_t out;
    std::int64_t length;
  };

  // a and b broadcast to `out` as in NumPy: every extent of out is that of a or of b. All plain, or of one
  // shape.
  BroadcastPlan(const Shape& a, const Shape& b, const Shape& out) : numel_(out.numel()) {
    std::int64_t stride_a = 1, stride_b = 1;
    for (int k = 1; k <= out.rank(); ++k) {
      std::int64_t extent = out[-k];
      if (extent == 1) continue;
      bool moves_a = k <= a.rank() && a[-k] != 1, moves_b = k <= b.rank() && b[-k] != 1;
      if (rank_ > 0 && moves_a == (axes_[rank_ - 1].a != 0) && moves_b == (axes_[rank_ - 1].b != 0)) {
        axes_[rank_ - 1].extent *= extent;
      } else {
        axes_[rank_++] = {extent, moves_a ? stride_a : 0, moves_b ? stride_b : 0};
      }
      if (moves_a) stride_a *= extent;
      if (moves_b) stride_b *= extent;
    }
    if (rank_ == 0) axes_[rank_++] = {1, 1, 1};
  }

  std::int64_t numel() const { return numel_; }
  // True if the operand stands still during a run. Never both.
  bool repeats_a() const { return axes_[0].a == 0; }
  bool repeats_b() const { return axes_[0].b == 0; }

  // f(run) for the runs that make up elements [begin, end) of the result, in order.
  template <typename F>
  void for_each_run(std::int64_t begin, std::int64_t end, const F& f) const {
    std::array<std::int64_t, Shape::kMaxRank> index{};
    std::int64_t a = 0, b = 0;
    for (std::int64_t k = 0, rest = begin; k < rank_ && rest > 0; ++k) {
      index[k] = rest % axes_[k].extent;
      rest /= axes_[k].extent;
      a += index[k] * axes_[k].a;
      b += index[k] * axes_[k].b;
    }
    while (begin < end) {
      std::int64_t length = std::min(axes_[0].extent - index[0], end - begin);
      f(Run{a, b, begin, length});
      begin += length;
      for (std::int64_t k = 0, step = length; k < rank_; ++k, step = 1) {
        index[k] += step;
        a += step * axes_[k].a;
        b += step * axes_[k].b;
        if (index[k] < axes_[k].extent) break;
        a -= index[k] * axes_[k].a;
        b -= index[k] * axes_[k].b;
        index[k] = 0;
      }
    }
  }

 private:
  // Strides of 0 repeat.
  struct Axis {
    std::int64_t extent;
    std::int64_t a;
    std::int64_t b;
  };

  std::int64_t numel_;
  int rank_ = 0;
  std::array<Axis, Shape::kMaxRank> axes_{};  // innermost first
};

}  // namespace lockstep::cpu
