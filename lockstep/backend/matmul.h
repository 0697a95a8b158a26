// Internal: matrix products.
#pragma once

#include "lockstep/backend/kernels.h"
#include "lockstep/backend/weight_view.h"

namespace lockstep {

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;

  bool operator==(const MatmulOptions&) const = default;
};

namespace kernels {

// Kernels may read b in an order of their own. This call writes b in that order to `prepared`, which calls with the
// same options and the same dtype of a can share until b changes. See MatmulKernels::prepared_size().
struct PrepareMatmul {
  MatmulOptions options;
  View b;
  DType dtype;
  View prepared;
  static void views(auto& c, const auto& in, const auto& out) { in(c.b), out(c.prepared); }
};

// c = op(a) op(b) + bias, where op(a) is [m, k], op(b) [k, n], c [m, n] and bias [n] or absent. Plain layout.
// Products are computed in a's dtype (f32, bf16, f16, or f64) and summed in at least f32. If a is bf16 or f16, b may
// be f32 (master weights) and is rounded first, and c may be f32, too. bias is f32 (f64 with f64).
struct Matmul {
  MatmulOptions options;
  View a;
  WeightView b;
  View bias, c;
  static void views(auto& m, const auto& in, const auto& out) {
    in(m.a), in(m.b), in(m.b.prepared), in(m.bias), out(m.c);
  }
};

// c[i] = op(a[i]) op(b[i]) for every i of an additional first axis.
struct BatchedMatmul {
  MatmulOptions options;
  View a, b, c;
  static void views(auto& m, const auto& in, const auto& out) { in(m.a), in(m.b), out(m.c); }
};

}  // namespace kernels

class MatmulKernels : public Kernels<kernels::PrepareMatmul, kernels::Matmul, kernels::BatchedMatmul> {
 public:
  // Number of f32 in PrepareMatmul::prepared; 0 if preparing does not pay for products of `rows` rows.
  virtual std::int64_t prepared_size(const MatmulOptions&, [[maybe_unused]] std::int64_t rows,
                                     [[maybe_unused]] const Shape& b, [[maybe_unused]] DType dtype) const {
    return 0;
  }

  using Kernels::run;
  void run(KernelContext&, const kernels::PrepareMatmul&) override {}
  // Runs one Matmul after the other.
  void run(KernelContext&, const kernels::BatchedMatmul&) override;
};

}  // namespace lockstep
