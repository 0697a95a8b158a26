#include "lockstep/autograd/reduce.h"

#include <algorithm>
#include <limits>

#include "lockstep/autograd/axes.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/autograd/unary.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/shape.h"

namespace lockstep {
namespace {

bool contains(unsigned axes, int axis) { return axes >> axis & 1U; }

// The number of elements that are reduced to one.
std::int64_t count_of(const Tensor& x, unsigned axes) {
  std::int64_t count = 1;
  for (int i = 0; i < x.shape().dim(); ++i) count *= contains(axes, i) ? x.size(i) : 1;
  return count;
}

// The shape with extents of 1 on the reduced axes.
Shape kept(Shape shape, unsigned axes) {
  for (int i = 0; i < shape.dim(); ++i) {
    if (contains(axes, i)) shape[i] = 1;
  }
  return shape;
}

// f reduces a part to extents of 1. Shards are mixed if the batch is reduced.
Tensor reduce(std::string_view name, const Tensor& x, unsigned axes, bool keepdim, Mix mix,
              const std::function<Lifted(const Array&, const Shape& to)>& f) {
  Placed placed = place_as(name, x);
  const auto part = [&](const Arrays& in) -> Lifted {
    const Shape ones = kept(in[0].shape(), axes);
    Lifted reduced = f(in[0], ones);
    if (keepdim) return reduced;
    return {ops::reshape(reduced.y, ops::without_axes(ones, axes)),
            [ones, backward = std::move(reduced.backward)](const PartPass& p, const Array& dy) -> Arrays {
              return backward(p, ops::reshape(ops::to_layout(dy, Layout::plain), ones));
            }};
  };
  const auto traits = [&] {
    return OpTraits{mix == Mix::max ? "reduce_max" : "reduce_sum",
                    {{"axes", std::int64_t{axes}}, {"keepdim", std::int64_t{keepdim}}}};
  };
  if (placed.kind != Kind::cut) return lift(name, placed, {x}, part, traits);
  if (contains(axes, placed.cut.axis)) return mix_shards(name, mix, placed, {x}, part);
  for (int i = 0; !keepdim && i < x->cut.axis; ++i) placed.cut.axis -= contains(axes, i) ? 1 : 0;
  return lift(name, placed, {x}, part);
}

Lifted sum_part(const Array& in, const Shape& to) {
  return {ops::sum_to(ops::to_layout(in, Layout::plain), to),
          [old = in.shape()](const PartPass&, const Array& dy) -> Arrays { return {ops::expand(dy, old)}; }};
}

Tensor sum_over(const Tensor& x, unsigned axes, bool keepdim) {
  return reduce("sum", x, axes, keepdim, Mix::sum, sum_part);
}

// Equal elements share the gradient.
Lifted max_part(const Array& in, const Shape& to) {
  const Array plain = ops::to_layout(in, Layout::plain), y = ops::max_to(plain, to);
  return {y, [x = SavedArray(plain), y = SavedArray(y), to](const PartPass& p, const Array& dy) -> Arrays {
            const Array largest = ops::compare(CompareOp::eq, x.get(p.name()), y.get(p.name()));
            const Array ties = ops::sum_to(ops::convert(largest, dy.dtype(), Layout::plain), to);
            return {ops::where(largest, ops::binary(BinaryOp::divide, dy, ties), ops::scalar_like(dy, 0))};
          }};
}

// The largest of all samples. Equal elements of all shards share its gradient, as if it were the sum of their shares.
Tensor max_over_batch(std::string_view name, const Tensor& x, unsigned axes, bool keepdim) {
  Tensor largest, share;
  {
    NoGradGuard no_grad;
    largest = reduce(name, x, axes, keepdim, Mix::max, max_part);
    if (!x.requires_grad()) return largest;
    const Tensor ones = keepdim ? largest : largest.reshape(kept(x.shape(), axes));
    const Tensor ties = cast(eq(x, ones), x.dtype());
    share = ties / sum_over(ties, axes, true);
  }
  const Tensor sum = sum_over(where(gt(share, 0), x, 0.0) * share, axes, keepdim);
  TensorImpl::of(largest).grad = sum->grad;
  return largest;
}

// Half types are reduced in f32.
template <typename F>
Tensor in_f32(const Tensor& x, const F& f) {
  return is_half_dtype(x.dtype()) ? cast(f(cast(x, DType::f32)), x.dtype()) : f(x);
}

// Products are computed in f64, and rounded once: those of some factors may exceed the range of f32.
template <typename F>
Tensor in_f64(const Tensor& x, const F& f) {
  return cast(f(cast(x, DType::f64)), x.dtype());
}
bool is_narrow(const Tensor& x) { return is_floating(x.dtype()) && x.dtype() != DType::f64; }

// Bools and u8 are reduced in i64.
bool is_small(const Tensor& x) { return x.defined() && is_mask(x.dtype()); }
bool is_i64(const Tensor& x) { return x.defined() && x.dtype() == DType::i64; }

Tensor as_i64(const Tensor& x) { return cast(x.detach(), DType::i64); }

// Elements are smallest where their opposites are largest. -x - 1 exists for every i64, -x does not.
Tensor opposite(const Tensor& x) { return is_i64(x) ? affine(x, -1, -1) : -x; }

void check_floating(std::string_view what, const Tensor& x) {
  check(!x.defined() || is_floating(x.dtype()), "{}: input is {}, expected a floating type: cast() it", what, x);
}

// The largest elements, or the smallest.
Tensor extreme(std::string_view name, const Tensor& x, const Dims& dims, bool keepdim, bool smallest) {
  const unsigned axes = resolve_axes(name, x, dims);
  if (is_small(x)) return cast(extreme(name, as_i64(x), dims, keepdim, smallest), x.dtype());
  check(count_of(x, axes) > 0, "{}: no elements along the axes of {}", name, x.shape());
  if (smallest) return opposite(extreme(name, opposite(x), dims, keepdim, false));
  const bool over_batch = x->kind == Kind::cut && contains(axes, x->cut.axis);
  return over_batch ? max_over_batch(name, x, axes, keepdim) : reduce(name, x, axes, keepdim, Mix::max, max_part);
}

}  // namespace

unsigned resolve_axes(std::string_view what, const Tensor& x, const Dims& dims) {
  check(x.defined(), "{}: undefined tensor", what);
  if (dims.empty()) return (1U << x.shape().dim()) - 1;
  unsigned axes = 0;
  for (int dim : dims) {
    if (is_axis_of_scalar(what, x, dim)) continue;
    const unsigned axis = 1U << ops::resolve_axis(what, x.shape(), dim);
    check(!(axes & axis), "{}: axis {} is named twice", what, dim);
    axes |= axis;
  }
  return axes;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (is_small(x)) return sum_to(as_i64(x), shape);
  Placed placed = place_as("sum_to", x);
  bool mixes = false;
  if (placed.kind == Kind::cut) {
    const int axis = placed.cut.axis - (x.shape().dim() - shape.dim());
    // A single sample needs no sum.
    mixes = axis < 0 || (shape[axis] == 1 && x.size(placed.cut.axis) != 1);
    if (!mixes && shape[axis] != x.size(placed.cut.axis)) {
      fail("sum_to: shape {} for {}, expected extents that are 1 or equal", shape.str(), x.describe());
    }
    placed.cut.axis = mixes ? placed.cut.axis : axis;
  }
  const auto part = [&](const Arrays& in) -> Lifted {
    Shape to = shape;
    if (placed.kind == Kind::cut && !mixes) to[placed.cut.axis] = in[0].size(x->cut.axis);
    return sum_part(in[0], to);
  };
  return mixes ? mix_shards("sum", Mix::sum, placed, {x}, part)
               : lift("sum", placed, {x}, part, [] { return OpTraits{"sum_to"}; });
}

Tensor sum(const Tensor& x) {
  if (is_small(x)) return sum(as_i64(x));
  const auto part = [](const Arrays& in) -> Lifted {
    const Array flat = ops::reshape(ops::to_layout(in[0], Layout::plain), {in[0].numel()});
    return {ops::sum_to(flat, {1}), [old = in[0].shape()](const PartPass&, const Array& dy) -> Arrays {
              return {ops::expand(ops::reshape(dy, kept(old, ~0U)), old)};
            }};
  };
  return mix_shards("sum", Mix::sum, place_as("sum", x), {x}, part, {}, [] { return OpTraits{"sum_to"}; });
}

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  if (is_small(x)) return sum(as_i64(x), dims, keepdim);
  return sum_over(x, resolve_axes("sum", x, dims), keepdim);
}

// The mean of no elements is NaN, as in PyTorch, because the loss of a rank without samples must not throw. Means
// multiply by 1 / n, which decides the bits of trained models.
Tensor mean(const Tensor& x) {
  check_floating("mean", x);
  // The sum may exceed a half type's range.
  return in_f32(x, [](const Tensor& x) { return sum(x) * (1 / static_cast<double>(x.numel())); });
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  const unsigned axes = resolve_axes("mean", x, dims);
  check_floating("mean", x);
  const double share = 1 / static_cast<double>(count_of(x, axes));
  return in_f32(x, [=](const Tensor& x) { return sum_over(x, axes, keepdim) * share; });
}

Tensor var(const Tensor& x, const Dims& dims, const VarOptions& options) {
  const unsigned axes = resolve_axes("var", x, dims);
  check_floating("var", x);
  const auto count = static_cast<double>(count_of(x, axes));
  return in_f32(x, [=](const Tensor& x) {
    const Tensor difference = x - sum_over(x, axes, true) * (1 / count);
    return sum_over(square(difference), axes, options.keepdim) * (1 / std::max(count - options.correction, 0.0));
  });
}

// Where all elements are equal, the gradient is 0, as in PyTorch; the gradient of sqrt() alone would be infinite.
Tensor std(const Tensor& x, const Dims& dims, const VarOptions& options) {
  resolve_axes("std", x, dims);
  check_floating("std", x);
  return in_f32(x, [&](const Tensor& x) {
    const Tensor variance = var(x, dims, options), none = eq(variance, 0);
    return masked_fill(sqrt(masked_fill(variance, none, 1)), none, 0);
  });
}

StdMean std_mean(const Tensor& x, const Dims& dims, const VarOptions& options) {
  return {std(x, dims, options), mean(x, dims, options.keepdim)};
}
VarMean var_mean(const Tensor& x, const Dims& dims, const VarOptions& options) {
  return {var(x, dims, options), mean(x, dims, options.keepdim)};
}

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) { return extreme("amax", x, dims, keepdim, false); }
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) { return extreme("amin", x, dims, keepdim, true); }
Tensor max(const Tensor& x) { return extreme("max", x, {}, false, false); }
Tensor min(const Tensor& x) { return extreme("min", x, {}, false, true); }

namespace {

// The index of the largest element, or the smallest, along `dim` or among all.
Tensor index_of_extreme(std::string_view name, const Tensor& x, std::optional<int> dim, bool keepdim, bool smallest) {
  check(x.defined(), "{}: undefined tensor", name);
  if (dim && is_axis_of_scalar(name, x, *dim)) dim.reset();
  if (is_small(x)) return index_of_extreme(name, as_i64(x), dim, keepdim, smallest);
  if (smallest) return index_of_extreme(name, opposite(x.detach()), dim, keepdim, false);
  Placed placed = place_as(name, x);
  const int axis = dim ? ops::resolve_axis(name, x.shape(), *dim) : 0;
  if (placed.kind == Kind::cut) {
    if (!dim || placed.cut.axis == axis) fail_across_batch(name, x, "and it would choose among them");
    if (!keepdim && placed.cut.axis > axis) --placed.cut.axis;
  }
  NoGradGuard no_grad;
  const auto part = [&](const Arrays& in) -> Lifted {
    const Array plain = ops::to_layout(in[0], Layout::plain);
    const Array rows = dim ? ops::move_axis(plain, axis, plain.shape().dim() - 1) : plain;
    const std::int64_t extent = dim ? in[0].size(axis) : in[0].numel();
    check(extent > 0, "{}: no elements along axis {} of {}", name, axis, x.shape());
    const Array y = ops::argmax(ops::reshape(rows, {in[0].numel() / extent, extent}));
    const unsigned axes = dim ? 1U << axis : ~0U;
    return {ops::reshape(y, keepdim ? kept(in[0].shape(), axes) : ops::without_axes(in[0].shape(), axes)), nullptr};
  };
  return lift(name, placed, {x}, part, [&] {
    return OpTraits{"argmax", {{"axis", dim ? axis : -1}}};
  });  // -1: of all elements
}

// The elements themselves and their indices.
MaxResult extreme_along(std::string_view name, const Tensor& x, int dim, bool keepdim, bool smallest) {
  const Tensor indices = index_of_extreme(name, x, dim, true, smallest);
  if (x.shape().dim() == 0) return {clone(x), indices};
  const Tensor values = take_along_dim(x, indices, dim);
  if (keepdim) return {values, indices};
  return {squeeze(values, dim), squeeze(indices, dim)};
}

}  // namespace

MaxResult max(const Tensor& x, int dim, bool keepdim) { return extreme_along("max", x, dim, keepdim, false); }
MaxResult min(const Tensor& x, int dim, bool keepdim) { return extreme_along("min", x, dim, keepdim, true); }

Tensor argmax(const Tensor& x, std::optional<int> dim, bool keepdim) {
  return index_of_extreme("argmax", x, dim, keepdim, false);
}
Tensor argmin(const Tensor& x, std::optional<int> dim, bool keepdim) {
  return index_of_extreme("argmin", x, dim, keepdim, true);
}

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  const unsigned axes = resolve_axes("logsumexp", x, dims);
  check_floating("logsumexp", x);
  return in_f32(x, [&](const Tensor& x) {
    // Over no elements, the result is log(0).
    if (count_of(x, axes) == 0) return log(sum(exp(x), dims, keepdim));
    // An infinite maximum is not subtracted, so that the result is infinite and not NaN.
    Tensor largest = amax(x.detach(), dims, true);
    largest = masked_fill(largest, eq(abs(largest), std::numeric_limits<double>::infinity()), 0);
    const Tensor y = log(sum(exp(x - largest), dims, true)) + largest;
    return keepdim ? y : y.reshape(ops::without_axes(y.shape(), axes));
  });
}

Tensor cumsum(const Tensor& x, int dim) {
  if (is_axis_of_scalar("cumsum", x, dim)) return cumsum(x.reshape({1}), 0).reshape({});
  const int axis = ops::resolve_axis("cumsum", x.shape(), dim);
  if (is_small(x)) return cumsum(as_i64(x), axis);
  const Placed placed = place_as("cumsum", x);
  if (placed.kind == Kind::cut && placed.cut.axis == axis) fail_across_batch("cumsum", x, "and it would sum over them");
  const auto part = [axis](const Arrays& in) -> Lifted {
    return {ops::cumsum(in[0], axis),
            [axis](const PartPass&, const Array& dy) -> Arrays { return {ops::cumsum(dy, axis, true)}; }};
  };
  return lift("cumsum", placed, {x}, part, [&] { return OpTraits{{}, {{"axis", axis}}}; });
}

Tensor cumprod(const Tensor& x, int dim) {
  if (is_small(x)) return cumprod(as_i64(x), dim);
  if (is_axis_of_scalar("cumprod", x, dim)) return x * 1;
  const int axis = ops::resolve_axis("cumprod", x.shape(), dim);
  if (x->kind == Kind::cut && x->cut.axis == axis) fail_across_batch("cumprod", x, "and it would multiply them");
  if (is_narrow(x)) return in_f64(x, [=](const Tensor& x) { return cumprod(x, axis); });
  // Products of 1, 2, 4, ... elements that end at each place. The gradient then needs no quotient, which would be
  // undefined for a factor of 0.
  Tensor y = x * 1;
  const std::int64_t n = x.size(axis);
  for (std::int64_t known = 1; known < n; known *= 2) {
    const Tensor longer = narrow(y, axis, known, n - known) * narrow(y, axis, 0, n - known);
    y = cat({narrow(y, axis, 0, known), longer}, axis);
  }
  return y;
}

namespace {

// Like cumprod(): y has the extremes of 1, 2, 4, ... elements up to each place. Only the indices decide the gradient.
MaxResult running_extreme(std::string_view name, const Tensor& x, int dim, bool largest) {
  check(x.defined(), "{}: undefined tensor", name);
  if (is_axis_of_scalar(name, x, dim)) {
    const MaxResult one = running_extreme(name, x.reshape({1}), 0, largest);
    return {one.values.reshape({}), one.indices.reshape({})};
  }
  const int axis = ops::resolve_axis(name, x.shape(), dim);
  if (x->kind == Kind::cut && x->cut.axis == axis) fail_across_batch(name, x, "and it would compare them");
  if (is_small(x)) {
    const MaxResult counts = running_extreme(name, as_i64(x), axis, largest);
    return {cast(counts.values, x.dtype()), counts.indices};
  }
  Tensor y = x.detach(), at = cumsum(cast(full_like(y, 1), DType::i64), axis) - 1;
  const std::int64_t n = x.size(axis);
  for (std::int64_t known = 1; known < n; known *= 2) {
    const auto part = [&](const Tensor& t, std::int64_t start) { return narrow(t, axis, start, n - known); };
    const Tensor before = part(y, 0), here = part(y, known);
    Tensor newer = largest ? ge(here, before) : le(here, before);
    if (is_floating(x.dtype())) newer = logical_or(newer, isnan(here));
    y = cat({narrow(y, axis, 0, known), where(newer, here, before)}, axis);
    at = cat({narrow(at, axis, 0, known), where(newer, part(at, known), part(at, 0))}, axis);
  }
  return {x.numel() == 0 ? y : take_along_dim(x, at, axis), at};
}

}  // namespace

MaxResult cummax(const Tensor& x, int dim) { return running_extreme("cummax", x, dim, true); }
MaxResult cummin(const Tensor& x, int dim) { return running_extreme("cummin", x, dim, false); }

namespace {

// As in PyTorch, any() and all() of u8 are u8.
Tensor truth_of(const Tensor& x, const Tensor& holds) {
  return x.dtype() == DType::u8 ? cast(holds, DType::u8) : holds;
}

}  // namespace

// A sum counts the elements of a mask exactly, and is 0 over no elements.
Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  resolve_axes("any", x, dims);
  return truth_of(x, gt(sum(ne(x, 0), dims, keepdim), 0));
}
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  resolve_axes("all", x, dims);
  return truth_of(x, eq(sum(eq(x, 0), dims, keepdim), 0));
}

Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  check(x.defined() && is_floating(x.dtype()), "norm: input is {}, expected a floating type", x);
  check(p >= 1, "norm: p is {}, expected at least 1", p);
  const unsigned axes = resolve_axes("norm", x, dims);
  // Powers may exceed a half type's range.
  if (is_half_dtype(x.dtype())) return cast(norm(cast(x, DType::f32), p, dims, keepdim), x.dtype());
  if (std::isinf(p)) {
    for (int i = 0; i < x.shape().dim(); ++i) {
      check(!(axes >> i & 1U) || x.size(i) > 0, "norm: no elements along axis {} of {}", i, x.shape());
    }
    return amax(abs(x), dims, keepdim);
  }
  if (p == 1) return sum(abs(x), dims, keepdim);
  const Tensor powers = sum(p == 2 ? square(x) : pow(abs(x), p), dims, keepdim), none = eq(powers, 0);
  // The gradient of the root of 0 would be infinite.
  const Tensor some = masked_fill(powers, none, 1);
  return masked_fill(p == 2 ? sqrt(some) : pow(some, 1 / p), none, 0);
}

namespace {

constexpr std::string_view kMultiplied = "and it would multiply them";

}  // namespace

Tensor prod(const Tensor& x, int dim, bool keepdim) {
  if (is_axis_of_scalar("prod", x, dim)) return prod(x);
  const int axis = ops::resolve_axis("prod", x.shape(), dim);
  if (is_small(x)) return prod(as_i64(x), axis, keepdim);
  if (x->kind == Kind::cut && x->cut.axis == axis) fail_across_batch("prod", x, kMultiplied);
  if (is_narrow(x)) return in_f64(x, [=](const Tensor& x) { return prod(x, axis, keepdim); });
  if (x.size(axis) == 0) return sum(x, axis, keepdim) + 1;
  // Halves are multiplied until one element is left. The gradient then needs no quotient, which would be undefined for
  // a factor of 0.
  Tensor y = x;
  while (y.size(axis) > 1) {
    const std::int64_t half = y.size(axis) / 2;
    const Tensor pairs = narrow(y, axis, 0, half) * narrow(y, axis, half, half);
    y = y.size(axis) % 2 == 0 ? pairs : cat({pairs, narrow(y, axis, 2 * half, 1)}, axis);
  }
  return owned(keepdim ? y : squeeze(y, axis), x);
}

Tensor prod(const Tensor& x) {
  check(x.defined(), "prod: undefined tensor");
  if (x->kind == Kind::cut) fail_across_batch("prod", x, kMultiplied);
  if (is_small(x)) return prod(as_i64(x));
  return prod(x.reshape({x.numel()}), 0);
}

}  // namespace lockstep
