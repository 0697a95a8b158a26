#include "lockstep/ops/matmul.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/prepared.h"
#include "lockstep/ops/shape.h"

namespace lockstep::ops {

namespace {

// The axes before the last two.
Shape batch_of(const Array& x) { return Shape(x.shape().sizes().first(static_cast<std::size_t>(x.shape().dim()) - 2)); }

Shape with_matrix(const Shape& batch, std::int64_t rows, std::int64_t columns) {
  std::vector<std::int64_t> dims(batch.begin(), batch.end());
  dims.insert(dims.end(), {rows, columns});
  return Shape(dims);
}

// x as [batch, rows, columns].
Array matrices(const Array& x, const Shape& batch) {
  const Array all = expand(x, with_matrix(batch, x.size(-2), x.size(-1)));
  return reshape(to_layout(all, Layout::plain), {batch.numel(), x.size(-2), x.size(-1)});
}

void check_matrices(std::string_view which, const Array& x) {
  check(x.defined(), "matmul: {} is undefined", which);
  check(x.shape().dim() >= 2, "matmul: {} is {}, expected 2 axes (rows, columns) or more", which, x.shape());
}

}  // namespace

Array matmul(const Array& a, const Array& b, const Array& bias, const MatmulOutput& output) {
  check_matrices("a", a);
  check_matrices("b", b);
  const MatmulOptions& o = output.options;
  const std::int64_t m = a.size(o.transpose_a ? -1 : -2), k = a.size(o.transpose_a ? -2 : -1);
  const std::int64_t n = b.size(o.transpose_b ? -2 : -1), kb = b.size(o.transpose_b ? -1 : -2);
  check(k == kb, "matmul: a has {} columns, b has {} rows ({} x {})", k, kb, a.shape(), b.shape());
  check(is_floating(a.dtype()), "matmul: a is {}, expected a floating type", name(a.dtype()));
  check(b.dtype() == a.dtype() || (is_half_dtype(a.dtype()) && b.dtype() == DType::f32),
        "matmul: {} x {}, expected one type (or bf16 or f16 x f32)", name(a.dtype()), name(b.dtype()));
  if (bias.defined()) {
    check(bias.shape() == Shape{n}, "matmul: bias is {}, expected {}", bias.shape(), Shape{n});
  }
  const DType dtype = output.dtype.value_or(a.dtype());
  if (a.shape().dim() == 2 && b.shape().dim() == 2) {
    Array c = empty_or(output.into, "matmul", {m, n}, dtype, a.device());
    Array prepared;
    if (b.device() == a.device()) prepared = prepared_weights(b, o, m, a.dtype());
    launch("matmul", {a, b, prepared, bias}, {c},
           kernels::Matmul{o, a.view(), WeightView(b.view(), prepared.view()), bias.view(), c.view()});
    return c;
  }
  const Shape batch = broadcast_shape("matmul", batch_of(a), batch_of(b));
  if (b.shape().dim() == 2 && !o.transpose_a) {
    // All rows of all matrices in one product.
    const Array rows = reshape(to_layout(a, Layout::plain), {batch.numel() * m, k});
    return reshape(matmul(rows, b, bias, output), with_matrix(batch, m, n));
  }
  check(!bias.defined() && !output.into.defined(),
        "matmul: {} x {} with a bias, or into given memory, expected b with 2 axes", a.shape(), b.shape());
  const Array x = matrices(a, batch), z = matrices(b, batch);
  Array c = empty({batch.numel(), m, n}, dtype, a.device());
  launch("matmul", {x, z}, {c}, kernels::BatchedMatmul{o, x.view(), z.view(), c.view()});
  return reshape(c, with_matrix(batch, m, n));
}

}  // namespace lockstep::ops
