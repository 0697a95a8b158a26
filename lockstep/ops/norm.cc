#include "lockstep/ops/norm.h"

#include <vector>

#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {
namespace {

DType stats_dtype(const Array& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace

BatchStats batch_norm_stats(const Array& x) {
  check_dim("batch_norm", "input", x, 4, "(N, C, H, W)");
  check(is_floating(x.dtype()), "batch_norm: input is {}, expected a floating type", name(x.dtype()));
  Shape channels{x.size(1)};
  BatchStats stats{x.size(0) * x.size(2) * x.size(3), empty(channels, stats_dtype(x), x.device()),
                   empty(channels, stats_dtype(x), x.device())};
  launch("batch norm stats", {x}, {stats.mean, stats.m2}, kernels::NormStats{x.view(), stats.view()});
  return stats;
}

BatchStats merge_batch_stats(std::span<const BatchStats> parts, Device device, bool urgent) {
  BatchStats merged;
  std::vector<Array> reads;
  std::vector<BatchNormStats> views;
  for (const BatchStats& part : parts) {
    merged.n += part.n;
    const BatchStats here{part.n, readable_from(part.mean, device), readable_from(part.m2, device)};
    reads.insert(reads.end(), {here.mean, here.m2});
    views.push_back(here.view());
    if (part.mean.defined() && !merged.mean.defined()) {
      merged.mean = empty(part.mean.shape(), part.mean.dtype(), device);
      merged.m2 = empty(part.mean.shape(), part.mean.dtype(), device);
    }
  }
  check(merged.mean.defined(), "batch_norm: no shard has statistics to merge");
  LaunchOptions options{.foreign_reads = true};
  if (urgent) options.lane = state_of(device, "batch_norm").urgent_lane;
  std::vector<Array> writes{merged.mean, merged.m2};
  launch(
      "batch norm merge", reads, writes,
      [views = std::move(views), out = merged.view()](Backend& b, KernelContext& c) {
        b.run(c, kernels::MergeNormStats{views, out});
      },
      options);
  return merged;
}

Array batch_norm(const Array& x, const BatchStats& stats, const Array& gamma, const Array& beta, const Array& residual,
                 const BatchNormApply& apply) {
  check_dim("batch_norm", "input", x, 4, "(N, C, H, W)");
  check(gamma.shape() == Shape{x.size(1)}, "batch_norm: input has {} channels, weight expects {}", x.size(1),
        gamma.numel());
  Array add;
  if (residual.defined()) {
    check_same("batch_norm", x, residual);
    add = to_layout(residual, x.layout());
  }
  Array y = empty_like(x);
  launch("batch norm", {x, stats.mean, stats.m2, gamma, beta, add}, {y},
         kernels::Norm{x.view(), stats.view(), apply.eps, gamma.view(), beta.view(), add.view(), apply.relu, y.view()});
  return y;
}

BatchNormSums batch_norm_backward_stats(const Array& dy, const Array& x, const Array& y, const BatchStats& stats,
                                        double eps) {
  check_same("batch_norm", dy, x);
  Array g = to_layout(dy, x.layout());
  BatchNormSums sums{empty_like(stats.mean), empty_like(stats.mean)};
  // Without values there is no variance to divide by.
  if (stats.n == 0) {
    fill_(sums.g, 0);
    fill_(sums.g_xhat, 0);
    return sums;
  }
  launch(
      "batch norm backward stats", {g, x, y, stats.mean, stats.m2}, {sums.g, sums.g_xhat},
      kernels::NormBackwardStats{g.view(), x.view(), y.view(), stats.view(), eps, sums.g_xhat.view(), sums.g.view()});
  return sums;
}

BatchNormGrads batch_norm_backward_data(const Array& dy, const Array& x, const Array& y, const BatchStats& stats,
                                        double eps, const Array& gamma, const BatchNormSums& sums, bool with_residual) {
  Array g = to_layout(dy, x.layout());
  BatchNormGrads grads{empty_like(x), with_residual ? empty_like(x) : Array()};
  launch("batch norm backward", {g, x, y, stats.mean, stats.m2, gamma, sums.g, sums.g_xhat}, {grads.x, grads.residual},
         kernels::NormBackwardData{g.view(), x.view(), y.view(), stats.view(), eps, gamma.view(), sums.g.view(),
                                   sums.g_xhat.view(), grads.x.view(), grads.residual.view()});
  return grads;
}

void batch_norm_commit(const BatchStats& stats, double momentum, const Array& running_mean, const Array& running_var,
                       const Array& batches) {
  DeviceState& device = state_of(running_mean.device(), "batch_norm");
  launch("batch norm commit", {stats.mean, stats.m2, running_mean, running_var, batches},
         {running_mean, running_var, batches},
         kernels::CommitNormStats{stats.view(), momentum, running_mean.view(), running_var.view(), batches.view()},
         {.lane = device.urgent_lane, .updates = true});
}

namespace {

// The last axes of x as rows.
Array as_rows(const Array& x, const Shape& row) {
  std::int64_t rows = 1;
  for (int i = 0; i < x.shape().dim() - row.dim(); ++i) rows *= x.size(i);
  return reshape(to_layout(x, Layout::plain), {rows, row.numel()});
}

Array plain(const Array& parameter) { return parameter.defined() ? to_layout(parameter, Layout::plain) : parameter; }

void check_parameter(std::string_view what, std::string_view which, const Array& parameter, const Array& x,
                     const Shape& row) {
  if (!parameter.defined()) return;
  check(parameter.shape() == row && parameter.dtype() == stats_dtype(x), "{}: {} is {} {}, expected {} {}", what, which,
        parameter.shape(), name(parameter.dtype()), row, name(stats_dtype(x)));
}

}  // namespace

RowNorm row_norm(std::string_view what, const Array& x, const Array& weight, const Array& bias,
                 const RowNormOptions& options) {
  check_defined(what, x);
  check(is_floating(x.dtype()), "{}: input is {}, expected a floating type", what, name(x.dtype()));
  check_parameter(what, "weight", weight, x, options.row);
  check_parameter(what, "bias", bias, x, options.row);
  // A weight that an operation has made may have another layout.
  const Array in = as_rows(x, options.row), scale = plain(weight), shift = plain(bias);
  const auto of_rows = [&] { return empty({in.size(0)}, stats_dtype(x), x.device()); };
  RowNorm norm{empty_like(in), options.centered ? of_rows() : Array(), of_rows()};
  launch(what, {in, scale, shift}, {norm.y, norm.mean, norm.rstd},
         kernels::NormRows{in.view(), scale.view(), shift.view(), options.eps, norm.mean.view(), norm.rstd.view(),
                           norm.y.view()});
  norm.y = reshape(norm.y, x.shape());
  return norm;
}

RowNormGrads row_norm_backward(std::string_view what, const Array& dy, const Array& x, const RowNorm& saved,
                               const Array& weight, const RowNormNeeds& needs, const Shape& row) {
  check_same(what, dy, x);
  const Array g = as_rows(dy, row), in = as_rows(x, row), scale = plain(weight);
  const auto of_row = [&] { return empty(row, stats_dtype(x), x.device()); };
  RowNormGrads grads{needs.x ? empty_like(in) : Array(), needs.weight ? of_row() : Array(),
                     needs.bias ? of_row() : Array()};
  std::vector<Array> writes;
  for (const Array& result : {grads.x, grads.weight, grads.bias}) {
    if (result.defined()) writes.push_back(result);
  }
  launch(fmt::format("{} backward", what), std::vector<Array>{g, in, saved.mean, saved.rstd, scale}, writes,
         kernels::NormRowsBackward{g.view(), in.view(), saved.mean.view(), saved.rstd.view(), scale.view(),
                                   grads.x.view(), grads.weight.view(), grads.bias.view()});
  if (needs.x) grads.x = reshape(grads.x, x.shape());
  return grads;
}

}  // namespace lockstep::ops
