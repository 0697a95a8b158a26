#include "lockstep/ops/reduce.h"

#include <algorithm>

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {

Array sum_to(const Array& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  check_on_device("sum", x);
  check(is_floating(x.dtype()), "sum: input is {}, expected a floating type", name(x.dtype()));
  bool fits = shape.rank() <= x.shape().rank();
  for (int i = 1; fits && i <= shape.rank(); ++i) fits = shape[-i] == 1 || shape[-i] == x.shape()[-i];
  check(fits, "sum: {} does not broadcast to {}", shape.str(), x.shape().str());
  Array in = to_layout(x, Layout::plain);
  Array y = empty(shape, x.dtype(), x.device());
  launch("sum", {in}, {y},
         [x = in.view(), y = y.view()](Backend& b, KernelContext& c) { b.reduce().sum_to(c, x, y); });
  return y;
}

Array argmax(const Array& x) {
  check_rank("argmax", "input", x, 2, "(n, classes)");
  check(x.size(1) > 0, "argmax: rows are empty");
  Array in = to_layout(x, Layout::plain);
  Array y = empty({x.size(0)}, DType::i64, x.device());
  launch("argmax", {in}, {y},
         [x = in.view(), y = y.view()](Backend& b, KernelContext& c) { b.reduce().argmax(c, x, y); });
  return y;
}

Array tree_sum(std::span<const Array> leaves, Device device, bool urgent) {
  const auto first = std::ranges::find_if(leaves, &Array::defined);
  if (first == leaves.end()) return {};
  check(is_floating(first->dtype()), "tree_sum: a leaf is {}, expected a floating type", first->describe());
  // Kernels go through memory, and sum f32 and f64.
  const DType dtype = first->dtype() == DType::f64 ? DType::f64 : DType::f32;
  std::vector<View> views;
  std::vector<Array> reads;
  views.reserve(leaves.size());
  for (const Array& leaf : leaves) {
    if (leaf.defined()) check_same("tree_sum", *first, leaf);
    const Array addend = leaf.defined() ? convert(leaf, dtype, first->layout()) : leaf;
    views.push_back(reads.emplace_back(readable_from(addend, device)).view());
  }
  Array out = empty(first->shape(), dtype, device, first->layout());
  launch("tree sum", reads, std::span(&out, 1),
         [views = std::move(views), out = out.view()](Backend& b, KernelContext& c) {
           b.reduce().tree_sum(c, views, out);
         },
         {.lane = urgent ? std::optional(state_of(device, "tree sum").urgent_lane) : std::nullopt, .foreign_reads = true});
  return convert(out, first->dtype(), first->layout());
}

Array squared_norm(std::span<const Array> xs, std::span<const Array> present) {
  check(!xs.empty(), "squared_norm: no tensors");
  check(present.empty() || present.size() == xs.size(), "squared_norm: {} tensors and {} flags", xs.size(), present.size());
  std::vector<View> views, flags;
  std::vector<Array> reads;
  const Device device = xs[0].device();
  for (const Array& x : xs) views.push_back(reads.emplace_back(readable_from(x, device)).view());
  for (const Array& flag : present) flags.push_back(reads.emplace_back(readable_from(flag, device)).view());
  Array out = empty({1}, DType::f64, device);
  launch("squared norm", reads, std::span(&out, 1),
         [views = std::move(views), flags = std::move(flags), out = out.view()](Backend& b, KernelContext& c) {
           b.reduce().squared_norm(c, views, flags, out);
         },
         {.foreign_reads = true});
  return out;
}

}  // namespace lockstep::ops
