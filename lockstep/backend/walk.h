// The elements of a dense source in the order of a dense destination.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/tensor/view.h"

namespace lockstep {

// `extent` and source `stride` per axis of the destination, the last of which is contiguous there. Axes of one element
// are left out, neighbours on both sides are merged: a plain copy has one axis, a change of layout three or four.
struct Walk {
  int rank = 0;
  std::int64_t numel = 1;
  std::int64_t extent[Shape::kMaxRank] = {};
  std::int64_t stride[Shape::kMaxRank] = {};

  void add_axis(std::int64_t axis_extent, std::int64_t axis_stride) {
    numel *= axis_extent;
    if (axis_extent == 1) return;
    if (rank > 0 && stride[rank - 1] == axis_extent * axis_stride) {
      extent[rank - 1] *= axis_extent;
      stride[rank - 1] = axis_stride;
    } else {
      extent[rank] = axis_extent;
      stride[rank++] = axis_stride;
    }
  }
  std::int64_t destination_stride(int axis) const {
    std::int64_t product = 1;
    for (int i = axis + 1; i < rank; ++i) product *= extent[i];
    return product;
  }
  // The axis along which the source is contiguous.
  int contiguous_axis() const {
    int axis = 0;
    while (axis < rank - 1 && stride[axis] != 1) ++axis;
    return axis;
  }
};

// From x's layout to y's, of the same shape.
Walk layout_walk(const View& x, const View& y);
// y.shape[i] == x.shape[axes[i]], both plain.
Walk permutation_walk(const Shape& x, std::span<const int> axes);

}  // namespace lockstep
