// Internal: the elements of one array in the order of another.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/backend/copy.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

// `extent`, source `stride`, and destination stride `to` per axis. Axes of extent 1 are omitted, and axes that are
// adjacent on both sides are merged: a plain copy has one axis, a change of layout at most four.
struct Walk {
  int dim = 0;
  std::int64_t numel = 1;
  std::int64_t extent[Shape::kMaxDim] = {};
  std::int64_t stride[Shape::kMaxDim] = {};
  std::int64_t to[Shape::kMaxDim] = {};

  void add_axis(std::int64_t axis_extent, std::int64_t axis_stride, std::int64_t axis_to) {
    numel *= axis_extent;
    if (axis_extent == 1) return;
    if (dim > 0 && stride[dim - 1] == axis_extent * axis_stride && to[dim - 1] == axis_extent * axis_to) {
      extent[dim - 1] *= axis_extent;
      stride[dim - 1] = axis_stride;
      to[dim - 1] = axis_to;
    } else {
      extent[dim] = axis_extent;
      stride[dim] = axis_stride;
      to[dim++] = axis_to;
    }
  }
  // Whether both sides are contiguous along the last axis.
  bool moves_rows() const { return dim == 0 || (stride[dim - 1] == 1 && to[dim - 1] == 1); }
  // For a transposition: returns the axis along which the source is contiguous, if it is not the last one and the
  // destination is contiguous along the last one; otherwise -1.
  int contiguous_axis() const {
    for (int axis = 0; axis < dim - 1 && to[dim - 1] == 1; ++axis) {
      if (stride[axis] == 1) return axis;
    }
    return -1;
  }
};

// The walk from x's layout to y's; both have the same shape.
Walk layout_walk(const View& x, const View& y);
// The walk of a strided copy, without its offsets.
Walk strided_walk(const StridedCopy& copy);

}  // namespace lockstep
