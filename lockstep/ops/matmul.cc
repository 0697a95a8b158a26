#include "lockstep/ops/matmul.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {

Array matmul(const Array& a, const Array& b, const Array& bias, const MatmulOutput& output) {
  check_rank("matmul", "a", a, 2, "(rows, columns)");
  check_rank("matmul", "b", b, 2, "(rows, columns)");
  const MatmulOptions& o = output.options;
  std::int64_t m = a.size(o.transpose_a ? 1 : 0), k = a.size(o.transpose_a ? 0 : 1);
  std::int64_t n = b.size(o.transpose_b ? 0 : 1), kb = b.size(o.transpose_b ? 1 : 0);
  check(k == kb, "matmul: a has {} columns, b has {} rows ({} x {})", k, kb, a.shape().str(), b.shape().str());
  check(is_floating(a.dtype()), "matmul: a is {}, expected a floating type", name(a.dtype()));
  check(b.dtype() == a.dtype() || (is_half_dtype(a.dtype()) && b.dtype() == DType::f32),
        "matmul: {} x {}, expected one type (or bf16 or f16 x f32)", name(a.dtype()), name(b.dtype()));
  if (bias.defined()) {
    check(bias.shape() == Shape{n}, "matmul: bias is {}, expected {}", bias.shape().str(), Shape{n}.str());
  }
  Array c = empty_or(output.into, "matmul", {m, n}, output.dtype.value_or(a.dtype()), a.device());
  launch("matmul", {a, b, bias}, {c},
         [o, a = a.view(), b = b.view(), bias = bias.view(), c = c.view()](Backend& backend, KernelContext& ctx) {
           backend.matmul().matmul(ctx, o, a, b, bias, c);
         });
  return c;
}

}  // namespace lockstep::ops
