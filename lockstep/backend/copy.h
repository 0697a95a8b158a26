// Internal: kernels that move elements without computing.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

// Maps elements of one plain array to elements of another. Element (i, j, ..) of `extent` lies at from_first + i *
// from[0] + j * from[1] + .. in the source, and correspondingly, with `to`, in the destination. A source stride of 0
// repeats an element; all places in the destination differ. Permutations, slices, broadcasts, and concatenations are
// such copies.
struct StridedCopy {
  Shape extent;
  std::array<std::int64_t, Shape::kMaxDim> from{}, to{};
  std::int64_t from_first = 0, to_first = 0;
};

class CopyKernels {
 public:
  virtual ~CopyKernels() = default;

  // y = x: same shape, any pair of dtypes and layouts. f32 to bf16 and f16 rounds to nearest even; floating to integer
  // truncates. No overlap.
  virtual void copy(KernelContext&, const View& x, const View& y) = 0;

  // y[to(i)] = x[from(i)] for every i within the extents: see StridedCopy. One dtype; the rest of y stays as it is.
  virtual void strided(KernelContext&, const StridedCopy& copy, const View& x, const View& y) = 0;
};

}  // namespace lockstep
