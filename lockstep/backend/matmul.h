// Internal: matrix products.
#pragma once

#include "lockstep/backend/context.h"
#include "lockstep/backend/weight_view.h"

namespace lockstep {

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;

  bool operator==(const MatmulOptions&) const = default;
};

class MatmulKernels {
 public:
  virtual ~MatmulKernels() = default;

  // Kernels may read b in their own order. prepare() writes that order to `prepared`, which calls of the same options
  // and dtype of a can share until b changes. prepared_size() is its size in f32; 0 if preparing does not pay for
  // products of `rows` rows.
  virtual std::int64_t prepared_size(const MatmulOptions&, [[maybe_unused]] std::int64_t rows,
                                     [[maybe_unused]] const Shape& b, [[maybe_unused]] DType dtype) const {
    return 0;
  }
  virtual void prepare(KernelContext&, const MatmulOptions&, [[maybe_unused]] const View& b,
                       [[maybe_unused]] DType dtype, [[maybe_unused]] const View& prepared) {}

  // c = op(a) op(b) + bias, where op(a) is [m, k], op(b) [k, n], c [m, n] and bias [n] or absent. Plain layout.
  // Products are computed in a's dtype (f32, bf16, f16, or f64) and summed in at least f32. If a is bf16 or f16, b may
  // be f32 (master weights) and is rounded first, and c may be f32, too. bias is f32 (f64 with f64).
  virtual void matmul(KernelContext&, const MatmulOptions& options, const View& a, const WeightView& b,
                      const View& bias, const View& c) = 0;

  // c[i] = op(a[i]) op(b[i]) for every i of one more axis in front. Calls matmul() for one product after the other.
  virtual void batched_matmul(KernelContext&, const MatmulOptions& options, const View& a, const View& b,
                              const View& c);
};

}  // namespace lockstep
