// Internal: kernels that move elements without computing.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/backend/kernels.h"

namespace lockstep {

// Maps elements of one plain array to elements of another. Element (i, j, ..) of `extent` lies at from_first + i *
// from[0] + j * from[1] + .. in the source, and correspondingly, with `to`, in the destination. A source stride of 0
// repeats an element; no two elements have the same place in the destination. Permutations, slices, broadcasts, and
// concatenations are such copies.
struct StridedCopy {
  Shape extent;
  std::array<std::int64_t, Shape::kMaxDim> from{}, to{};
  std::int64_t from_first = 0, to_first = 0;
};

namespace kernels {

// y = x: same shape, any pair of dtypes and layouts. f32 to bf16 and f16 rounds to nearest even; floating to integer
// truncates. x and y do not overlap.
struct Copy {
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};

// y[to(i)] = x[from(i)] for every i within the extents: see StridedCopy. One dtype; other elements of y stay.
struct CopyStrided {
  StridedCopy copy;
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};

}  // namespace kernels

using CopyKernels = Kernels<kernels::Copy, kernels::CopyStrided>;

}  // namespace lockstep
