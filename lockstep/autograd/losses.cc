// Losses are sums of element losses over the whole batch, composed of operations that mix shards. The two most common
// ones, without weights, have kernels.
#include "lockstep/autograd/losses.h"

#include <array>
#include <memory>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/shape.h"
#include "lockstep/ops/softmax.h"

namespace lockstep {
namespace {

// Half types become f32.
Tensor widened(const Tensor& x) { return is_half_dtype(x.dtype()) ? cast(x, DType::f32) : x; }

// The weight on x's devices, in x's type.
Tensor weight_near(const Tensor& x, const Tensor& weight) { return cast(beside(x, weight), x.dtype()); }

// The target where the input is: like the input of a model, it may be in host memory.
Tensor near_input(std::string_view what, const Tensor& x, const Tensor& target) {
  if (!x.defined() || !target.defined() || target->kind != Kind::whole || !target.device().is_host()) return target;
  check(x->kind != Kind::cut,
        "{}: the input is {}, cut over the batch, and the target is {}, a whole tensor: take both from loader.on(net), "
        "or split_and_load() both",
        what, x.describe(), target.describe());
  return x->kind == Kind::whole ? target.to(x.device()) : target;
}

void check_pair(std::string_view what, const Tensor& x, const Tensor& target) {
  check(x.defined() && target.defined() && x.shape() == target.shape(), "{}: {} and {}, expected the same shape", what,
        x, target);
  check(is_floating(x.dtype()) && x.dtype() == target.dtype(), "{}: {} and {}, expected one floating type", what, x,
        target);
  if ((x->kind == Kind::cut) != (target->kind == Kind::cut)) {
    fail("{}: one of {} and {} is cut over the batch, the other is not: split_and_load() both", what, x.describe(),
         target.describe());
  }
}

Tensor reduced(std::string_view what, const Tensor& loss, Reduction reduction) {
  switch (reduction) {
    case Reduction::none: return loss;
    case Reduction::mean: return mean(loss);
    case Reduction::sum: return sum(loss);
    case Reduction::batchmean: break;
  }
  fail("{}: reduction batchmean, expected none, mean, or sum", what);
}

// The mean over samples of all shards, from kernels that compute it for one shard.
template <typename Forward, typename Backward>
Tensor fused(std::string_view name, const Placed& placed, const Tensor& x, const Tensor& target, const Forward& forward,
             const Backward& backward, const MixFinish& finish = {}) {
  return mix_shards(
      name, Mix::mean, placed, {x, target},
      [&](const Arrays& in) -> Lifted {
        return {forward(in[0], in[1]),
                [x = SavedArray(in[0]), y = SavedArray(in[1]), backward](const PartPass& p, const Array& dy) -> Arrays {
                  return backward(p, x.get(p.name()), y.get(p.name()), dy);
                }};
      },
      finish);
}

// The row of the batch where the shard begins. Rows of samples that are not adjacent are numbered in their shard.
std::int64_t first_row(const Placed& placed, int shard) {
  if (placed.kind != Kind::cut || placed.cut.outer != 1) return 0;
  std::int64_t before = 0;
  for (int s = 0; s < shard; ++s) before += placed.at->rows_of(s);
  return before * placed.cut.inner;
}

// The shards' sums, which the gradient needs, too, give the mean over the samples that count. Without ignored samples
// it has the bits of the mean over all of them.
Tensor fused_cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing,
                           std::optional<std::int64_t> ignored) {
  const Placed placed = place_rows("cross_entropy", {logits, labels});
  const auto rules = [=] { return LabelRules{smoothing, ignored, first_row(placed, ops::ShardScope::current())}; };
  const auto sums = std::make_shared<Tensor>();
  return fused(
      "cross entropy", placed, logits, labels,
      [&](const Array& x, const Array& y) { return ops::cross_entropy(x, y, rules()); },
      [=](const PartPass&, const Array& x, const Array& y, const Array& dy) -> Arrays {
        return {ops::cross_entropy_backward(x, y, rules(), (*sums)->on(x.device()), dy), Array()};
      },
      [&](const Array& mixed, std::optional<LaneId> lane) {
        std::vector<Array> parts = sums->defined() ? (*sums)->parts : std::vector<Array>();
        parts.push_back(mixed);
        *sums = replicated_tensor(std::move(parts), placed.at);
        return ops::cross_entropy_mean(mixed, lane);
      });
}

Tensor fused_mse(const Tensor& x, const Tensor& target) {
  return fused("mse", place_broadcast("mse_loss", {x, target}), x, target, ops::mse,
               [](const PartPass& p, const Array& x, const Array& target, const Array& dy) -> Arrays {
                 Array dx, dt;
                 if (p.needs(0)) dx = ops::mse_backward(x, target, dy);
                 if (p.needs(1)) dt = ops::mse_backward(target, x, dy);
                 return {dx, dt};
               });
}

// d^2 / 2 near zero, and a straight line beyond |d| = delta.
Tensor huber(const Tensor& x, const Tensor& target, double delta) {
  const Tensor distance = abs(widened(x) - widened(target)), bent = clamp(distance, {}, delta);
  return bent * (distance - bent * 0.5);
}

// The sizes of rows of classes. Axis 1 has the classes, or axis 0 of a single row.
struct Classes {
  int axis;
  std::int64_t count;
};

Classes classes_of(std::string_view what, const Tensor& x, const Tensor& weight, const Tensor& target) {
  check(x.defined() && target.defined() && x.shape().dim() > 0 && is_floating(x.dtype()),
        "{}: input is {}, target {}, expected floating numbers of classes on axis 1", what, x, target);
  const int axis = x.shape().dim() == 1 ? 0 : 1;
  const std::int64_t count = x.size(axis);
  check(!weight.defined() || weight.shape() == Shape{count}, "{}: weight is {}, expected one for each of {} classes",
        what, weight, count);
  check(!weight.defined() || !needs_grad(std::array{weight}),
        "{}: weight requires a gradient, which classes' weights do not get: pass weight.detach()", what);
  if (x->kind == Kind::cut && x->cut.axis == axis) fail_across_batch(what, x, "but that one has the classes");
  if ((x->kind == Kind::cut) != (target->kind == Kind::cut)) {
    fail("{}: one of {} and {} is cut over the batch, the other is not: split_and_load() both", what, x.describe(),
         target.describe());
  }
  return {axis, count};
}

// The classes' weights along their axis of x.
Tensor weight_along(const Tensor& x, const Tensor& weight, const Classes& classes) {
  Shape shape(std::vector<std::int64_t>(static_cast<std::size_t>(x.shape().dim()), 1));
  shape[classes.axis] = classes.count;
  return weight_near(x, weight).detach().reshape(shape);
}

// Takes f32 or f64 logarithms, and spreads `smoothing` of each row's target over all classes.
Tensor nll(std::string_view what, const Tensor& x, const Tensor& labels, const NllLossOptions& options,
           double smoothing) {
  const Classes classes = classes_of(what, x, options.weight, labels);
  check(labels.dtype() == DType::i64 && labels.shape() == ops::without_axes(x.shape(), 1U << classes.axis),
        "{}: labels are {}, expected i64 {}, one for each row of classes of {}", what, labels,
        ops::without_axes(x.shape(), 1U << classes.axis), x);
  Tensor counts, chosen = labels;
  if (options.ignore_index) {
    counts = ne(labels, static_cast<double>(*options.ignore_index));
    chosen = where(counts, labels, 0.0);
  }
  Tensor loss = -squeeze(take_along_dim(x, unsqueeze(chosen, classes.axis), classes.axis), classes.axis);
  Tensor weight;  // of each row
  if (options.weight.defined()) {
    weight = squeeze(embedding(chosen, weight_near(x, options.weight).detach().reshape({classes.count, 1})), -1);
    loss = loss * weight;
  }
  if (smoothing > 0) {
    const Tensor all = options.weight.defined() ? x * weight_along(x, options.weight, classes) : x;
    loss = loss * (1 - smoothing) - sum(all, classes.axis) * (smoothing / static_cast<double>(classes.count));
  }
  if (counts.defined()) {
    loss = where(counts, loss, 0.0);
    weight = weight.defined() ? where(counts, weight, 0.0) : cast(counts, x.dtype());
  }
  if (options.reduction == Reduction::mean && weight.defined()) {
    // Both are summed in one operation, so that processes exchange once.
    const Tensor both = stack({loss, weight}, 0), sums = sum(both.reshape({2, -1}), 1);
    return narrow(sums, 0, 0, 1) / narrow(sums, 0, 1, 1);
  }
  return reduced(what, loss, options.reduction);
}

// For probabilities.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  check_pair("cross_entropy", logits, target);
  check(options.ignore_index.value_or(kIgnoredLabel) == kIgnoredLabel,
        "cross_entropy: ignore_index {} with probabilities, expected labels (i64)", *options.ignore_index);
  const Classes classes = classes_of("cross_entropy", logits, options.weight, target);
  const double smoothing = options.label_smoothing;
  const Tensor x = log_softmax(widened(logits), classes.axis);
  Tensor wanted = widened(target);
  if (smoothing > 0) wanted = wanted * (1 - smoothing) + smoothing / static_cast<double>(classes.count);
  if (options.weight.defined()) wanted = wanted * weight_along(x, options.weight, classes);
  return reduced("cross_entropy", -sum(x * wanted, classes.axis), options.reduction);
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& given_target, const LossOptions& options) {
  const Tensor target = near_input("mse_loss", x, given_target);
  check_pair("mse_loss", x, target);
  // The kernel's mean of no elements would be 0.
  if (options.reduction == Reduction::mean && x.numel() > 0) return fused_mse(x, target);
  return reduced("mse_loss", square(widened(x) - widened(target)), options.reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& given_target, const LossOptions& options) {
  const Tensor target = near_input("l1_loss", x, given_target);
  check_pair("l1_loss", x, target);
  return reduced("l1_loss", abs(widened(x) - widened(target)), options.reduction);
}

Tensor huber_loss(const Tensor& x, const Tensor& given_target, const HuberLossOptions& options) {
  const Tensor target = near_input("huber_loss", x, given_target);
  check_pair("huber_loss", x, target);
  check(options.delta > 0, "huber_loss: delta {}, expected above 0", options.delta);
  return reduced("huber_loss", huber(x, target, options.delta), options.reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& given_target, const SmoothL1LossOptions& options) {
  const Tensor target = near_input("smooth_l1_loss", x, given_target);
  check_pair("smooth_l1_loss", x, target);
  check(options.beta >= 0, "smooth_l1_loss: beta {}, expected at least 0", options.beta);
  if (options.beta == 0) return l1_loss(x, target, {.reduction = options.reduction});
  return reduced("smooth_l1_loss", huber(x, target, options.beta) / options.beta, options.reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& given_target,
                                        const BinaryCrossEntropyOptions& options) {
  constexpr std::string_view kName = "binary_cross_entropy_with_logits";
  const Tensor target = near_input("binary_cross_entropy_with_logits", x, given_target);
  check_pair(kName, x, target);
  const Tensor logits = widened(x), wanted = widened(target);
  // -log(sigmoid(x)). Beyond the threshold it equals -x in f64, too.
  Tensor positive = softplus(-logits, 1, 80);
  if (options.pos_weight.defined()) {
    positive = positive * ((weight_near(logits, options.pos_weight) - 1) * wanted + 1);
  }
  Tensor loss = (1 - wanted) * logits + positive;
  if (options.weight.defined()) loss = loss * weight_near(logits, options.weight);
  check(loss.shape() == x.shape(), "{}: the weights broadcast the losses to {}, expected weights that broadcast to {}",
        kName, loss.shape(), x.shape());
  return reduced(kName, loss, options.reduction);
}

Tensor kl_div(const Tensor& x, const Tensor& given_target, const KlDivOptions& options) {
  const Tensor target = near_input("kl_div", x, given_target);
  check_pair("kl_div", x, target);
  const Tensor given = widened(x), wanted = widened(target);
  const auto entropy = [&] { return wanted * log(where(ne(wanted, 0.0), wanted, 1.0)); };
  const Tensor loss = options.log_target ? exp(wanted) * (wanted - given) : entropy() - wanted * given;
  if (options.reduction != Reduction::batchmean) return reduced("kl_div", loss, options.reduction);
  return sum(loss) / static_cast<double>(x.shape().dim() == 0 ? 1 : x.size(0));
}

Tensor nll_loss(const Tensor& x, const Tensor& given_labels, const NllLossOptions& options) {
  const Tensor labels = near_input("nll_loss", x, given_labels);
  return nll("nll_loss", widened(x), labels, options, 0);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& given_target, const CrossEntropyOptions& options) {
  const Tensor target = near_input("cross_entropy", logits, given_target);
  const double smoothing = options.label_smoothing;
  check(smoothing >= 0 && smoothing <= 1, "cross_entropy: label smoothing {}, expected 0 to 1", smoothing);
  if (target.defined() && is_floating(target.dtype())) {
    check(target.shape() == logits.shape(), "cross_entropy: labels are {}, expected i64, or probabilities of shape {}",
          target, logits.shape());
    return soft_cross_entropy(logits, target, options);
  }
  const bool all_alike = !options.weight.defined() && options.reduction == Reduction::mean;
  if (all_alike && logits.shape().dim() == 2) {
    // A shard's own error would show its part of the shape.
    check(!target.defined() || target.shape().dim() == 1,
          "cross_entropy: labels are {}, expected i64 [{}], one for each row", target, logits.size(0));
    return fused_cross_entropy(logits, target, smoothing, options.ignore_index);
  }
  const Classes classes = classes_of("cross_entropy", logits, options.weight, target);
  return nll("cross_entropy", log_softmax(widened(logits), classes.axis), target,
             {options.weight, options.ignore_index, options.reduction}, smoothing);
}

}  // namespace lockstep
