// Operations that select by an i64 index tensor.
#include "lockstep/autograd/index.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/autograd/axes.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/index.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/shape.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep {
namespace {

// The placement of broadcast tensors, none of which has the batch on `axis`.
Placed place_indexed(std::string_view what, InputList inputs, int axis) {
  const int dims = inputs.begin()->shape().dim();
  for (const Tensor& x : inputs) {
    check(x.defined() && x.shape().dim() == dims, "{}: tensors of shapes {} and {}, expected the same number of axes",
          what, x.shape(), inputs.begin()->shape());
    if (x->kind == Kind::cut && x->cut.axis == axis) fail_across_batch(what, x, "and it would choose among them");
  }
  return place_broadcast(what, inputs);
}

// index as [1, ..., n, ..., 1], as many axes as x.
Array along_axis(const Array& index, int dims, int axis) {
  Shape shape(std::vector<std::int64_t>(static_cast<std::size_t>(dims), 1));
  shape[axis] = index.numel();
  return ops::reshape(ops::to_layout(index, Layout::plain), shape);
}

// The first elements along every axis, as many as `shape` says.
Array first_of(Array x, const Shape& shape) {
  for (int i = 0; i < shape.dim(); ++i) {
    if (x.size(i) != shape[i]) x = ops::slice(x, i, 0, shape[i]);
  }
  return x;
}

// The reverse: zeros of `shape`, with x at the start of every axis.
Array among_zeros(const Array& x, const Shape& shape) { return ops::slice_into_zeros(x, shape, 0, 0); }

// x.take(index) along the axis, and its backward function.
Lifted take(const Array& x, const Array& index, int axis) {
  return {ops::take_along_axis(x, index, axis),
          [index = SavedArray(index), axis, shape = x.shape()](const PartPass& p, const Array& dy) -> Arrays {
            return {ops::sum_to(ops::scatter_sum(dy, index.get(p.name()), axis, shape[axis]), shape), Array()};
          }};
}

}  // namespace

Tensor take_along_dim(const Tensor& x, const Tensor& index, int dim) {
  const int axis = ops::resolve_axis("take_along_dim", x.shape(), dim);
  return lift(
      "take_along_dim", place_indexed("take_along_dim", {x, index}, axis), {x, index},
      [axis](const Arrays& in) { return take(in[0], in[1], axis); },
      [&] {
        return OpTraits{{}, {{"axis", axis}}};
      });
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  if (is_axis_of_scalar("index_select", x, dim)) {
    check(index.defined() && index.numel() == 1, "index_select: the index is {}, expected one element for shape []",
          index.shape());
    return index_select(x.reshape({1}), 0, index.reshape({1})).reshape({});
  }
  const int axis = ops::resolve_axis("index_select", x.shape(), dim), dims = x.shape().dim();
  check(index.defined() && index.shape().dim() == 1, "index_select: the index is {}, expected one axis", index.shape());
  const Tensor inputs[] = {x, index};
  Placed placed = place("index_select", inputs);
  if (placed.kind == Kind::cut) {
    if (x->kind == Kind::cut && x->cut.axis == axis)
      fail_across_batch("index_select", x, "and it would choose among them");
    if (x->kind == Kind::cut && index->kind == Kind::cut) {
      fail_across_batch("index_select", index, "and so are those of the tensor: each would meet all others");
    }
    if (index->kind == Kind::cut) placed.cut.axis = axis;
  }
  return lift(
      "index_select", placed, {x, index},
      [=](const Arrays& in) { return take(in[0], along_axis(in[1], dims, axis), axis); },
      [&] {
        return OpTraits{{}, {{"axis", axis}}};
      });
}

Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<std::int64_t> padding_idx) {
  check(weight.defined() && weight.shape().dim() == 2, "embedding: weight is {}, expected 2 axes (numbers, features)",
        weight.shape());
  check(input.defined() && input.dtype() == DType::i64, "embedding: input is {}, expected i64", input);
  const std::int64_t rows = weight.size(0);
  const std::int64_t padding = padding_idx.value_or(0) < 0 ? *padding_idx + rows : padding_idx.value_or(0);
  check(padding >= 0 && padding < std::max<std::int64_t>(rows, 1),
        "embedding: padding_idx {} of {} rows, expected one of them", padding, rows);
  const Tensor inputs[] = {input, weight};
  const Placed placed = place("embedding", inputs);
  if (weight->kind == Kind::cut) fail_across_batch("embedding", weight, "but a weight is the same for all samples");
  return lift("embedding", placed, {input, weight}, [&](const Arrays& in) -> Lifted {
    std::vector<std::int64_t> dims(in[0].shape().begin(), in[0].shape().end());
    dims.push_back(in[1].size(1));
    const Array index = along_axis(in[0], 2, 0);
    return {ops::reshape(ops::take_along_axis(in[1], index, 0), Shape(dims)),
            [=, index = SavedArray(index), columns = in[1].size(1), skips = padding_idx.has_value()](
                const PartPass& p, const Array& dy) -> Arrays {
              Array g = ops::reshape(ops::to_layout(dy, Layout::plain), {index.get(p.name()).numel(), columns});
              if (skips) {
                const Array here =
                    ops::compare(CompareOp::eq, index.get(p.name()), ops::scalar_like(index.get(p.name()), padding));
                g = ops::where(here, ops::scalar_like(g, 0), g);
              }
              return {Array(), ops::scatter_sum(g, index.get(p.name()), 0, rows)};
            }};
  });
}

namespace {

// The placement of scatter_add() and scatter(), whose inputs do not broadcast.
Placed place_scattered(std::string_view name, const Tensor& x, const Tensor& index, const Tensor& src, int axis) {
  const Placed placed = place_indexed(name, {x, index, src}, axis);
  for (const Tensor* t : {&x, &index, &src}) {
    check(
        placed.kind != Kind::cut || (*t)->kind == Kind::cut,
        "{}: {} is not cut over the batch, but another input is: cut it with split_and_load(), or gather() the others",
        name, *t);
  }
  for (int i = 0; i < x.shape().dim(); ++i) {
    check(index.size(i) <= src.size(i) && (i == axis || index.size(i) <= x.size(i)),
          "{}: the index is {}, expected at most the source's extents, {}, and, except on axis {}, at most {}", name,
          index.shape(), src.shape(), axis, x.shape());
  }
  return placed;
}

// Whether each position of the index is the last one that selects its element. `all`: the shape that it selects from.
Array is_last(const Array& index, Shape all, int axis) {
  for (int i = 0; i < all.dim(); ++i) all[i] = i == axis ? all[i] : index.size(i);
  Shape along(std::vector<std::int64_t>(static_cast<std::size_t>(all.dim()), 1));
  along[axis] = index.size(axis);
  const Array places =
      ops::expand(ops::reshape(ops::arange(index.size(axis), DType::i64, index.device()), along), index.shape());
  const Array winners = ops::scatter(ops::full(all, 0, DType::i64, index.device()), index, places, axis);
  return ops::compare(CompareOp::eq, ops::take_along_axis(winners, index, axis), places);
}

// `all` with `part` at the start of every axis.
Array overwritten(const Array& all, const Array& part) {
  std::vector<std::int64_t> zeros(static_cast<std::size_t>(all.shape().dim()));
  if (part.shape() == all.shape()) return part;
  const Array mask = ops::pad(ops::full(part.shape(), 1, DType::boolean, all.device()), all.shape(), zeros, 0);
  return ops::where(mask, ops::pad(part, all.shape(), zeros, 0), all);
}

}  // namespace

namespace {

// Adds i64 numbers exactly: add() sums their upper and their lower 32 bits separately in f64.
Tensor add_whole(std::string_view name, const Tensor& x, const Tensor& src, int axis,
                 const std::function<Tensor(const Tensor& zeros, const Tensor& part)>& add) {
  check(src.size(axis) <= 1 << 21, "{}: {} whole numbers along axis {}, expected at most 2^21", name, src.size(axis),
        axis);
  const Tensor zeros = cast(full_like(x, 0), DType::f64);
  const auto sum = [&](const Tensor& part) { return cast(add(zeros, cast(part, DType::f64)), DType::i64); };
  return x + sum(div(src, 0x1p32, {.rounding_mode = Rounding::floor})) * 0x1p32 + sum(remainder(src, 0x1p32));
}

// Sums of u8 wrap, and a sum of bools is true if any of them is.
bool are_small(const Tensor& x, const Tensor& src) { return is_mask(x.dtype()) && x.dtype() == src.dtype(); }
bool are_whole(const Tensor& x, const Tensor& src) { return x.dtype() == DType::i64 && src.dtype() == DType::i64; }

}  // namespace

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  constexpr std::string_view kName = "scatter_add";
  check(x.defined() && index.defined() && src.defined(), "{}: undefined tensor", kName);
  const int axis = ops::resolve_axis(kName, x.shape(), dim);
  if (are_small(x, src)) {
    return cast(scatter_add(cast(x, DType::i64), axis, index, cast(src, DType::i64)), x.dtype());
  }
  if (are_whole(x, src) && src.dim() == x.dim()) {
    return add_whole(kName, x, src, axis,
                     [&](const Tensor& zeros, const Tensor& part) { return scatter_add(zeros, axis, index, part); });
  }
  const auto part = [axis](const Arrays& in) -> Lifted {
    const Shape to = in[1].shape(), all = in[0].shape(), source = in[2].shape();
    Shape sums = to;
    sums[axis] = all[axis];
    const Array added = ops::scatter_sum(first_of(in[2], to), in[1], axis, all[axis]);
    return {ops::binary(BinaryOp::add, in[0], among_zeros(added, all)),
            [=, index = SavedArray(in[1])](const PartPass& p, const Array& dy) -> Arrays {
              if (!p.needs(2)) return {dy, Array(), Array()};
              const Array taken = ops::take_along_axis(first_of(dy, sums), index.get(p.name()), axis);
              return {dy, Array(), among_zeros(taken, source)};
            }};
  };
  return lift(kName, place_scattered(kName, x, index, src, axis), {x, index, src}, part, [&] {
    return OpTraits{{}, {{"axis", axis}}};
  });
}

Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  constexpr std::string_view kName = "scatter";
  const int axis = ops::resolve_axis(kName, x.shape(), dim);
  const auto part = [axis](const Arrays& in) -> Lifted {
    const Shape to = in[1].shape(), all = in[0].shape(), source = in[2].shape();
    Shape reached = to;
    reached[axis] = all[axis];
    const Array y = ops::scatter(first_of(in[0], reached), in[1], first_of(in[2], to), axis);
    return {overwritten(in[0], y), [=, index = SavedArray(in[1])](const PartPass& p, const Array& dy) -> Arrays {
              const Array &numbers = index.get(p.name()), part = first_of(dy, reached);
              Array dx, dsrc;
              if (p.needs(0)) {
                const Array zeros = ops::full(to, 0, dy.dtype(), dy.device());
                dx = overwritten(dy, ops::scatter(part, numbers, zeros, axis));
              }
              if (p.needs(2)) {
                const Array taken = ops::take_along_axis(part, numbers, axis);
                dsrc = among_zeros(ops::where(is_last(numbers, all, axis), taken, ops::scalar_like(dy, 0)), source);
              }
              return {dx, Array(), dsrc};
            }};
  };
  return lift(kName, place_scattered(kName, x, index, src, axis), {x, index, src}, part, [&] {
    return OpTraits{{}, {{"axis", axis}}};
  });
}

Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Scalar& value) {
  check(x.defined() && index.defined(), "scatter: undefined tensor");
  ops::check_holds("scatter", x.dtype(), value);
  const auto part = [&](const Arrays& in) -> Lifted {
    return {ops::full(in[0].shape(), value, x.dtype(), in[0].device()), nullptr};
  };
  const Tensor src = lift("scatter", place_as("scatter", index), {index}, part, [&] {
    return OpTraits{"fill", {{"value", value}}};
  });
  return scatter(x, dim, index, src);
}

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  check(x.defined() && index.defined(), "gather: undefined tensor");
  const Shape shape = index.shape();
  if (is_axis_of_scalar("gather", x, dim) && shape.dim() <= 1)
    return gather(x.reshape({1}), 0, index.reshape({shape.numel()})).reshape(shape);
  check(x.shape().dim() == shape.dim(), "gather: the index is {} for {}, expected as many axes", shape, x.shape());
  const int axis = ops::resolve_axis("gather", x.shape(), dim);
  Tensor part = x;
  for (int i = 0; i < x.shape().dim(); ++i) {
    if (i == axis || index.size(i) == x.size(i)) continue;
    check(index.size(i) < x.size(i), "gather: the index is {}, expected, except on axis {}, at most {}", index.shape(),
          axis, x.shape());
    part = narrow(part, i, 0, index.size(i));
  }
  return take_along_dim(part, index, axis);
}

Tensor index_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src, const Scalar& alpha) {
  constexpr std::string_view kName = "index_add";
  check(x.defined() && src.defined(), "{}: undefined tensor", kName);
  const int axis = ops::resolve_axis(kName, x.shape(), dim), dims = x.shape().dim();
  check(index.defined() && index.shape().dim() == 1, "{}: the index is {}, expected one axis", kName, index.shape());
  if (are_small(x, src)) {
    return cast(index_add(cast(x, DType::i64), axis, index, cast(src, DType::i64), alpha), x.dtype());
  }
  if (are_whole(x, src) && alpha.fits_int64() && src.dim() == dims) {
    return add_whole(kName, x, alpha == 1 ? src : src * alpha, axis,
                     [&](const Tensor& zeros, const Tensor& part) { return index_add(zeros, axis, index, part); });
  }
  Shape expected = x.shape();
  expected[axis] = index.size(0);
  check(src.shape() == expected, "{}: the source is {}, expected {}: {}'s extents, and the index's on axis {}", kName,
        src.shape(), expected, x.shape(), axis);
  const Tensor inputs[] = {x, index, src};
  if (index->kind == Kind::cut) fail_across_batch(kName, index, "and it would add to all others");
  const Placed both = place_indexed(kName, {x, src}, axis);
  Placed placed = place(kName, inputs);
  placed.cut = both.cut;
  check(placed.kind != Kind::cut || (x->kind == Kind::cut && src->kind == Kind::cut),
        "{}: {} and {}, expected both cut over the batch: split_and_load() or gather() them", kName, x, src);
  const auto part = [=](const Arrays& in) -> Lifted {
    const Array numbers = along_axis(in[1], dims, axis);
    const Array source = alpha == 1 ? in[2] : ops::affine(in[2], alpha, 0);
    return {ops::binary(BinaryOp::add, in[0], ops::scatter_sum(source, numbers, axis, in[0].size(axis))),
            [=, index = SavedArray(numbers)](const PartPass& p, const Array& dy) -> Arrays {
              if (!p.needs(2)) return {dy, Array(), Array()};
              const Array taken = ops::take_along_axis(dy, index.get(p.name()), axis);
              return {dy, Array(), alpha == 1 ? taken : ops::affine(taken, alpha, 0)};
            }};
  };
  return lift(kName, placed, inputs, part, [&] { return OpTraits{{}, {{"axis", axis}, {"alpha", alpha}}}; });
}

namespace {

constexpr std::string_view kBag = "embedding_bag";

// The weight rows of the indices, and a mask of the padding rows, undefined without padding_idx.
struct BagRows {
  Tensor rows, padding;
};

BagRows rows_of_bags(const Tensor& input, const Tensor& weight, const EmbeddingBagOptions& o) {
  const Tensor& factors = o.per_sample_weights;
  check(!factors.defined() || o.mode == BagMode::sum, "{}: weights of samples, expected mode sum", kBag);
  check(!factors.defined() || factors.shape() == input.shape(),
        "{}: weights of samples {} for an input {}, expected equal shapes", kBag, factors, input);
  Tensor rows = embedding(input, weight, o.padding_idx);
  if (factors.defined()) rows = rows * unsqueeze(factors, -1);
  if (!o.padding_idx) return {rows, {}};
  const std::int64_t padding = *o.padding_idx < 0 ? *o.padding_idx + weight.size(0) : *o.padding_idx;
  return {rows, unsqueeze(eq(input, padding), -1)};
}

// [bags, indices, features] -> [bags, features].
Tensor of_equal_bags(const BagRows& bags, BagMode mode) {
  const auto& [rows, padding] = bags;
  if (!padding.defined()) {
    return mode == BagMode::sum ? sum(rows, 1) : mode == BagMode::mean ? mean(rows, 1) : max(rows, 1).values;
  }
  if (mode == BagMode::max) {
    const Tensor largest = max(masked_fill(rows, padding, -std::numeric_limits<double>::infinity()), 1).values;
    return masked_fill(largest, all(padding, 1), 0);
  }
  const Tensor sums = sum(masked_fill(rows, padding, 0), 1);
  if (mode == BagMode::sum) return sums;
  return sums / clamp(sum(cast(logical_not(padding), rows.dtype()), 1), 1);
}

// The start of each bag, then the end of the last bag.
std::vector<std::int64_t> bag_limits(const Tensor& input, const EmbeddingBagOptions& o) {
  check(o.offsets.defined() && o.offsets.dim() == 1 && o.offsets.dtype() == DType::i64,
        "{}: the offsets of an input {} are {}, expected i64 [bags]", kBag, input,
        o.offsets.defined() ? o.offsets.describe() : "missing");
  if (StepRecorder* const recorder = StepRecorder::current()) {
    recorder->refuse("embedding_bag reads offsets, which differ in the next step");
  }
  std::vector<std::int64_t> limits = o.offsets.to_vector<std::int64_t>();
  if (!o.include_last_offset) limits.push_back(input.size(0));
  check(!limits.empty() && limits.front() == 0, "{}: the first offset is {}, expected 0", kBag,
        limits.empty() ? "missing" : std::to_string(limits.front()));
  check(limits.back() == input.size(0), "{}: the last offset is {}, expected the end of the {} numbers", kBag,
        limits.back(), input.size(0));
  for (std::size_t i = 1; i < limits.size(); ++i) {
    check(limits[i - 1] <= limits[i], "{}: an offset of {} after {}, expected ascending ones up to {}", kBag, limits[i],
          limits[i - 1], input.size(0));
  }
  return limits;
}

// Bags of different lengths.
Tensor of_bags_at_offsets(const Tensor& input, const Tensor& weight, const EmbeddingBagOptions& o) {
  if (input->kind == Kind::cut) {
    fail_across_batch(kBag, input, "and offsets cut it elsewhere: pad the bags to rows of one length");
  }
  const std::vector<std::int64_t> limits = bag_limits(input, o);
  const std::int64_t bags = std::ssize(limits) - 1;
  const auto [rows, padding] = rows_of_bags(input, weight, o);
  if (o.mode == BagMode::max) {
    std::int64_t longest = 1;
    for (std::size_t b = 1; b < limits.size(); ++b) longest = std::max(longest, limits[b] - limits[b - 1]);
    // Row indices of each bag, extended to the longest bag with the index of a row of padding.
    std::vector<std::int64_t> places;
    for (std::size_t b = 1; b < limits.size(); ++b) {
      for (std::int64_t i = 0; i < longest; ++i) {
        places.push_back(limits[b - 1] + i < limits[b] ? limits[b - 1] + i : input.size(0));
      }
    }
    const Tensor index = beside(rows, Tensor::from(places, {std::ssize(places)}));
    const Tensor is_padding =
        padding.defined() ? padding : cast(zeros_like(narrow(rows.detach(), 1, 0, 1)), DType::boolean);
    const auto in_bags = [&](const Tensor& x, double last) {
      return unflatten(index_select(pad(x, {0, 0, 0, 1}, last), 0, index), 0, {bags, longest});
    };
    return of_equal_bags({in_bags(rows, 0), in_bags(is_padding, 1)}, o.mode);
  }
  std::vector<std::int64_t> bag_of;
  for (std::size_t b = 1; b < limits.size(); ++b) {
    bag_of.insert(bag_of.end(), static_cast<std::size_t>(limits[b] - limits[b - 1]), static_cast<std::int64_t>(b) - 1);
  }
  const Tensor index = beside(rows, Tensor::from(bag_of, {input.size(0)}));
  const auto per_bag = [&](const Tensor& x) {
    const Tensor zeros = beside(x, cast(Tensor::host({bags, x.size(1)}), x.dtype()));
    return index_add(zeros, 0, index, x);
  };
  const Tensor counted = padding.defined() ? masked_fill(rows, padding, 0) : rows;
  if (o.mode == BagMode::sum) return per_bag(counted);
  const Tensor one = ones_like(narrow(rows.detach(), 1, 0, 1));
  return per_bag(counted) / clamp(per_bag(padding.defined() ? masked_fill(one, padding, 0) : one), 1);
}

}  // namespace

Tensor embedding_bag(const Tensor& input, const Tensor& weight, const EmbeddingBagOptions& o) {
  if (input.defined() && input.dim() == 1) return of_bags_at_offsets(input, weight, o);
  check(input.defined() && input.dim() == 2, "{}: the input is {}, expected [bags, numbers], or [numbers] and offsets",
        kBag, input);
  check(!o.offsets.defined(), "{}: offsets beside an input {}, whose rows are the bags, expected an input [numbers]",
        kBag, input);
  return of_equal_bags(rows_of_bags(input, weight, o), o.mode);
}

Tensor one_hot(const Tensor& input, std::int64_t num_classes) {
  check(input.defined() && input.dtype() == DType::i64, "one_hot: input is {}, expected i64", input);
  check(num_classes > 0, "one_hot: {} classes, expected at least 1", num_classes);
  const auto part = [=](const Arrays& in) -> Lifted {
    std::vector<std::int64_t> dims(in[0].shape().begin(), in[0].shape().end());
    dims.push_back(1);
    // Adds 1 at each class index, which also checks the index.
    const Array one = ops::full(Shape(dims), 1, DType::f32, in[0].device());
    const Array ones = ops::scatter_sum(one, ops::reshape(ops::to_layout(in[0], Layout::plain), Shape(dims)),
                                        static_cast<int>(dims.size()) - 1, num_classes);
    return {ops::convert(ones, DType::i64, Layout::plain), nullptr};
  };
  return lift("one_hot", place_as("one_hot", input), {input}, part, [&] {
    return OpTraits{{}, {{"classes", num_classes}}};
  });
}

}  // namespace lockstep
