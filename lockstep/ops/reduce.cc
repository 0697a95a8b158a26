#include "lockstep/ops/reduce.h"

#include <algorithm>

#include "lockstep/backend/sum_grain.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/joined_scope.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/shape.h"

namespace lockstep::ops {
namespace {

void check_number(std::string_view what, const Array& x) {
  check_defined(what, x);
  check(is_floating(x.dtype()) || x.dtype() == DType::i64,
        "{}: input is {}, expected a floating type or i64: cast() it", what, name(x.dtype()));
}

template <typename Call>
Array reduce_to(std::string_view what, const Array& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  check_number(what, x);
  bool fits = shape.dim() <= x.shape().dim();
  for (int i = 1; fits && i <= shape.dim(); ++i) fits = shape[-i] == 1 || shape[-i] == x.shape()[-i];
  check(fits, "{}: {} does not broadcast to {}", what, shape, x.shape());
  Array in = to_layout(x, Layout::plain);
  Array y = empty(shape, x.dtype(), x.device());
  const std::int64_t calls = in.numel() > kSumGrain ? JoinedScope::calls() : 1;
  const std::int64_t rows = in.shape().dim() == shape.dim() && in.size(0) == shape[0] ? in.size(0) / calls : 0;
  if (calls == 1 || rows == 0 || rows * calls != in.size(0)) {
    launch(what, {in}, {y}, Call{in.view(), y.view()});
    return y;
  }
  for (std::int64_t call = 0; call < calls; ++call) {
    const Array from = narrow(in, call * rows, rows), to = narrow(y, call * rows, rows);
    launch(what, {from}, {to}, Call{from.view(), to.view()});
  }
  return y;
}

// Joins the defined leaves by `op`, one after the other.
Array fold_of(std::span<const Array> leaves, Device device, BinaryOp op) {
  Array all;
  for (const Array& leaf : leaves) {
    if (!leaf.defined()) continue;
    const Array here = to_device(leaf, device, {.non_blocking = true});
    all = all.defined() ? binary(op, all, here) : here;
  }
  return all;
}

}  // namespace

Array sum_to(const Array& x, const Shape& shape) { return reduce_to<kernels::SumTo>("sum", x, shape); }
Array max_to(const Array& x, const Shape& shape) { return reduce_to<kernels::MaxTo>("max", x, shape); }

Array cumsum(const Array& x, int axis, bool reverse) {
  check_number("cumsum", x);
  const Array in = around_axis(x, axis);
  Array y = empty(x.shape(), x.dtype(), x.device());
  launch("cumsum", {in}, {y}, kernels::Cumsum{reverse, in.view(), around_axis(y, axis).view()});
  return y;
}

Array argmax(const Array& x) {
  check_dim("argmax", "input", x, 2, "(n, classes)");
  check(x.size(1) > 0, "argmax: rows are empty");
  Array in = to_layout(x, Layout::plain);
  Array y = empty({x.size(0)}, DType::i64, x.device());
  launch("argmax", {in}, {y}, kernels::Argmax{in.view(), y.view()});
  return y;
}

Array argsort(const Array& x, bool descending) {
  check_dim("argsort", "input", x, 2, "(n, elements)");
  Array in = to_layout(x, Layout::plain);
  Array y = empty(x.shape(), DType::i64, x.device());
  launch("argsort", {in}, {y}, kernels::Argsort{descending, in.view(), y.view()});
  return y;
}

Array tree_sum(std::span<const Array> leaves, Device device, std::optional<LaneId> lane) {
  const auto first = std::ranges::find_if(leaves, &Array::defined);
  if (first == leaves.end()) return {};
  if (first->dtype() == DType::i64) return fold_of(leaves, device, BinaryOp::add);  // exact in any order
  check(is_floating(first->dtype()), "tree_sum: a leaf is {}, expected a floating type or i64", *first);
  // Kernels sum f32 and f64, in the order of memory.
  const DType dtype = first->dtype() == DType::f64 ? DType::f64 : DType::f32;
  // Most sums have two leaves.
  SmallVector<View, 2> views;
  SmallVector<Array, 2> reads;
  for (const Array& leaf : leaves) {
    if (leaf.defined()) check_same("tree_sum", *first, leaf);
    const Array addend = leaf.defined() ? convert(leaf, dtype, first->layout()) : leaf;
    reads.push_back(readable_from(addend, device));
    views.push_back(reads[reads.size() - 1].view());
  }
  Array out = empty(first->shape(), dtype, device, first->layout());
  launch("tree sum", reads, std::span(&out, 1),
         [views = std::move(views), out = out.view()](Backend& b, KernelContext& c) {
           b.run(c, kernels::TreeSum{views, out});
         },
         {.lane = lane, .foreign_reads = true});
  return convert(out, first->dtype(), first->layout());
}

Array max_of(std::span<const Array> leaves, Device device) { return fold_of(leaves, device, BinaryOp::maximum); }

Array squared_norm(std::span<const Array> xs, std::span<const Array> present) {
  check(!xs.empty(), "squared_norm: no arrays");
  check(present.empty() || present.size() == xs.size(), "squared_norm: {} arrays and {} flags", xs.size(),
        present.size());
  std::vector<View> views, flags;
  std::vector<Array> reads;
  const Device device = xs[0].device();
  for (const Array& x : xs) views.push_back(reads.emplace_back(readable_from(x, device)).view());
  for (const Array& flag : present) flags.push_back(reads.emplace_back(readable_from(flag, device)).view());
  Array out = empty({1}, DType::f64, device);
  launch("squared norm", reads, std::span(&out, 1),
         [views = std::move(views), flags = std::move(flags), out = out.view()](Backend& b, KernelContext& c) {
           b.run(c, kernels::SquaredNorm{views, flags, out});
         },
         {.foreign_reads = true});
  return out;
}

}  // namespace lockstep::ops
