// Normalizes each sample separately, so shards need not exchange anything.
#include "lockstep/autograd/normalize.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/ops/norm.h"

namespace lockstep {
namespace {

bool is_over_batch(const Tensor& t) { return t.defined() && t->kind == Kind::cut; }

// Normalizes rows: the last axes, whose extents must be `options.row`.
Tensor by_row(std::string_view what, const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ops::RowNormOptions& options) {
  const int count = options.row.dim(), dims = x.shape().dim();
  bool fits = x.defined() && count > 0 && count <= dims;
  for (int i = 1; fits && i <= count; ++i) fits = x.size(-i) == options.row[-i];
  check(fits, "{}: input is {}, expected {} as its last axes", what, x, options.row);
  const Tensor inputs[] = {x, weight, bias};
  const Placed placed = place(what, inputs);
  for (const Tensor* t : {&weight, &bias}) {
    if (is_over_batch(*t)) fail_across_batch(what, *t, "but a parameter is the same for all samples");
  }
  if (is_over_batch(x) && x->cut.axis >= dims - count) fail_across_batch(what, x, "and it would take their mean");
  const bool saves_w = x.requires_grad();
  const auto part = [=](const Arrays& in) -> Lifted {
    ops::RowNorm norm = ops::row_norm(what, in[0], in[1], in[2], options);
    return {norm.y,
            [x = SavedArray(in[0]), mean = SavedArray(norm.mean), rstd = SavedArray(norm.rstd),
             w = SavedArray(saves_w, in[1]), row = options.row](const PartPass& p, const Array& dy) -> Arrays {
              ops::RowNormGrads grads =
                  ops::row_norm_backward(p.name(), dy, x.get(p.name()), {{}, mean.get(p.name()), rstd.get(p.name())},
                                         w.get(p.name()), {p.needs(0), p.needs(1), p.needs(2)}, row);
              return {grads.x, grads.weight, grads.bias};
            }};
  };
  return lift(what, placed, inputs, part, [&] {
    return OpTraits{"row_norm", {{"axes", count}, {"eps", options.eps}, {"centered", std::int64_t{options.centered}}}};
  });
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  return by_row("layer_norm", x, weight, bias, {.row = normalized_shape, .eps = eps});
}

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, std::optional<double> eps) {
  // bf16 and f16 are normalized in f32, so their default is f32's eps.
  const double smallest = x.defined() && x.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
  return by_row("rms_norm", x, weight, {}, {.row = normalized_shape, .eps = eps.value_or(smallest), .centered = false});
}

Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  check(x.defined() && x.shape().dim() >= 2, "group_norm: input is {}, expected 2 axes (N, C) or more", x);
  check(num_groups > 0 && x.size(1) % num_groups == 0,
        "group_norm: {} groups for {} channels, expected a number that divides them", num_groups, x.size(1));
  Shape channels(std::vector<std::int64_t>(static_cast<std::size_t>(x.shape().dim()) - 1, 1));
  channels[0] = x.size(1);
  const auto by_channel = [&](const Tensor& t) { return t.defined() ? reshape(t, channels) : t; };
  // Half types are normalized in f32.
  const Tensor wide = is_half_dtype(x.dtype()) ? cast(x, DType::f32) : x;
  const Shape row{x.size(0) == 0 ? 0 : x.numel() / x.size(0) / num_groups};
  const Tensor groups = reshape(wide, {x.size(0), num_groups, row[0]});
  Tensor y = reshape(by_row("group_norm", groups, {}, {}, {.row = row, .eps = eps}), x.shape());
  if (weight.defined()) y = y * by_channel(weight);
  if (bias.defined()) y = y + by_channel(bias);
  return cast(y, x.dtype());
}

Tensor normalize(const Tensor& x, double p, int dim, double eps) {
  check(x.defined() && is_floating(x.dtype()), "normalize: input is {}, expected a floating type", x);
  if (is_half_dtype(x.dtype())) return cast(normalize(cast(x, DType::f32), p, dim, eps), x.dtype());
  return x / clamp(norm(x, p, dim, true), eps);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const int dims = x.shape().dim();
  check(x.defined() && dims >= 3, "instance_norm: input is {}, expected 3 axes (N, C, L) or more", x);
  bool several = x.numel() == 0;
  for (int i = 2; i < dims; ++i) several = several || x.size(i) > 1;
  check(several, "instance_norm: input is {}, expected more than 1 element in a channel", x);
  return group_norm(x, x.size(1), weight, bias, eps);
}

}  // namespace lockstep
