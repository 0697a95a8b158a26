// Losses are sums of element losses over the whole batch, composed of operations that mix shards. The two most common
// ones, without weights, have kernels.
#include "lockstep/autograd/losses.h"

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>

#include "lockstep/autograd/function.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/shape.h"
#include "lockstep/ops/softmax.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep {
namespace {

// Half types become f32.
Tensor widened(const Tensor& x) { return is_half_dtype(x.dtype()) ? cast(x, DType::f32) : x; }

// The weight on x's devices, in x's type.
Tensor weight_near(const Tensor& x, const Tensor& weight) { return cast(beside(x, weight), x.dtype()); }

// A target with a number for each element, and not a class: whole numbers are cast to x's type, as in PyTorch.
Tensor as_numbers(const Tensor& x, const Tensor& target) {
  const bool whole = x.defined() && target.defined() && is_floating(x.dtype()) && !is_floating(target.dtype());
  return whole ? cast(target, x.dtype()) : target;
}

// Moves the target to the input: like the input of a model, it may be in host memory.
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
  // Half types are computed in f32.
  const auto computed = [](const Tensor& t) { return is_half_dtype(t.dtype()) ? DType::f32 : t.dtype(); };
  check(is_floating(x.dtype()) && computed(x) == computed(target), "{}: {} and {}, expected one floating type", what, x,
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

// The row of the batch where the shard begins. If samples are not adjacent, rows count from 0 in each shard.
std::int64_t first_row(const Placed& placed, int shard) {
  if (placed.kind != Kind::cut || placed.cut.outer != 1) return 0;
  std::int64_t before = 0;
  for (int s = 0; s < shard; ++s) before += placed.at->rows_of(s);
  return before * placed.cut.inner;
}

// The shards' sums, which the gradient needs, too, give the mean over the samples that count. If no sample is ignored,
// it has the same bits as the mean over all samples.
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

// The axis that has the classes (1, or 0 for a single row) and their number.
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

// Takes log-probabilities in f32 or f64, and spreads `smoothing` of each row's target over all classes.
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

// Cross entropy for targets that are probabilities.
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
  if (options.reduction == Reduction::mean && x.numel() > 0) {
    return x.dtype() == target.dtype() ? fused_mse(x, target) : fused_mse(widened(x), widened(target));
  }
  return reduced("mse_loss", square(widened(x) - widened(target)), options.reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& given_target, const LossOptions& options) {
  const Tensor target = as_numbers(x, near_input("l1_loss", x, given_target));
  check_pair("l1_loss", x, target);
  return reduced("l1_loss", abs(widened(x) - widened(target)), options.reduction);
}

Tensor huber_loss(const Tensor& x, const Tensor& given_target, const HuberLossOptions& options) {
  const Tensor target = as_numbers(x, near_input("huber_loss", x, given_target));
  check_pair("huber_loss", x, target);
  check(options.delta > 0, "huber_loss: delta {}, expected above 0", options.delta);
  return reduced("huber_loss", huber(x, target, options.delta), options.reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& given_target, const SmoothL1LossOptions& options) {
  const Tensor target = as_numbers(x, near_input("smooth_l1_loss", x, given_target));
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
  // -log(sigmoid(x)) and -log(1 - sigmoid(x)). Beyond the threshold they are linear in f64, too.
  Tensor positive = softplus(-logits, 1, 80);
  if (options.pos_weight.defined()) {
    positive = positive * weight_near(logits, options.pos_weight);
  }
  // Each term is computed by itself, because next to a large logit, a common formula would lose small terms.
  Tensor loss = (1 - wanted) * softplus(logits, 1, 80) + wanted * positive;
  if (options.weight.defined()) loss = loss * weight_near(logits, options.weight);
  check(loss.shape() == x.shape(), "{}: the weights broadcast the losses to {}, expected weights that broadcast to {}",
        kName, loss.shape(), x.shape());
  return reduced(kName, loss, options.reduction);
}

namespace {

// -target log(x) - (1 - target) log(1 - x), element by element. The gradient is finite where a logarithm is not.
struct ProbabilityEntropy : Function {
  SavedTensor x, target;

  static Tensor bounded_log(const Tensor& p) { return clamp(log(p), -100); }
  Tensor forward(const Tensor& p, const Tensor& t) {
    x = p, target = t;
    return -(t * bounded_log(p) + (1 - t) * bounded_log(1 - p));
  }
  std::pair<Tensor, Tensor> backward(const Tensor& dy) {
    const Tensor &p = x.get(), &t = target.get();
    return {dy * (p - t) / clamp((1 - p) * p, 1e-12), dy * (bounded_log(1 - p) - bounded_log(p))};
  }
};

Tensor with_weight(std::string_view what, const Tensor& loss, const Tensor& weight) {
  if (!weight.defined()) return loss;
  const Tensor weighted = loss * weight_near(loss, weight);
  check(weighted.shape() == loss.shape(), "{}: the weight is {}, expected one that broadcasts to {}", what, weight,
        loss.shape());
  return weighted;
}

// Checks that a and b have vectors on the last axis, and one shape.
void check_vectors(std::string_view what, const Tensor& a, const Tensor& b) {
  check_pair(what, a, b);
  check(a.shape().dim() >= 1, "{}: {}, expected vectors on the last axis", what, a);
}

// Checks that there is one target for each vector.
void check_target(std::string_view what, const Tensor& x, const Tensor& target) {
  check(target.defined() && target.shape() == ops::without_axes(x.shape(), 1U << (x.shape().dim() - 1)) &&
            target.dtype() == x.dtype(),
        "{}: target is {}, expected {} {}, one for each vector of {}", what, target,
        ops::without_axes(x.shape(), 1U << (x.shape().dim() - 1)), name(x.dtype()), x);
}

Tensor at_least_0(const Tensor& x) { return clamp(x, 0); }

// Checks lengths, and waits for them. They decide which elements count, so a wrong length would go unnoticed.
void check_lengths(std::string_view what, const Tensor& lengths, std::int64_t least, std::int64_t most) {
  if (StepRecorder* const recorder = StepRecorder::current()) {
    recorder->refuse(fmt::format("{} reads its lengths, which differ in the next step", what));
  }
  for (const Array& part : lengths->parts) {
    for (const std::int64_t length : ops::host_readable(part).to_vector<std::int64_t>()) {
      check(length >= least && length <= most, "{}: a length is {}, expected {} to {}", what, length, least, most);
    }
  }
}

// Checks that x is rows of classes [N, C], or one row [C].
void check_rows(std::string_view what, const Tensor& x) {
  const int dims = x.shape().dim();
  check(x.defined() && (dims == 1 || dims == 2) && is_floating(x.dtype()) && x.size(-1) > 0,
        "{}: input is {}, expected floating (N, C), or (C)", what, x);
  if (x->kind == Kind::cut && x->cut.axis == dims - 1) fail_across_batch(what, x, "but that one has the classes");
}

}  // namespace

Tensor binary_cross_entropy(const Tensor& x, const Tensor& given_target, const ProbabilityLossOptions& options) {
  const Tensor target = near_input("binary_cross_entropy", x, given_target);
  check_pair("binary_cross_entropy", x, target);
  const Tensor loss = apply<ProbabilityEntropy>(widened(x), widened(target));
  return reduced("binary_cross_entropy", with_weight("binary_cross_entropy", loss, options.weight), options.reduction);
}

Tensor gaussian_nll_loss(const Tensor& x, const Tensor& given_target, const Tensor& given_var,
                         const GaussianNllLossOptions& options) {
  const Tensor target = near_input("gaussian_nll_loss", x, given_target);
  const Tensor var = near_input("gaussian_nll_loss", x, given_var);
  check_pair("gaussian_nll_loss", x, target);
  Shape one = x.shape();
  if (one.dim() > 0) one[-1] = 1;
  check(var.defined() && (var.shape() == x.shape() || var.shape() == one) && var.dtype() == x.dtype(),
        "gaussian_nll_loss: variance is {}, expected {} or {} of the type of {}", var, x.shape(), one, x);
  check(options.eps > 0, "gaussian_nll_loss: eps {}, expected above 0", options.eps);
  const Tensor given = widened(var);
  // At least eps, with the gradient of the given variance.
  const Tensor used = given + (clamp(given, options.eps) - given).detach();
  Tensor loss = (log(used) + square(widened(x) - widened(target)) / used) * 0.5;
  if (options.full) loss = loss + std::log(2 * std::numbers::pi) / 2;
  return reduced("gaussian_nll_loss", loss, options.reduction);
}

Tensor poisson_nll_loss(const Tensor& x, const Tensor& given_target, const PoissonNllLossOptions& options) {
  const Tensor target = as_numbers(x, near_input("poisson_nll_loss", x, given_target));
  check_pair("poisson_nll_loss", x, target);
  const Tensor given = widened(x), wanted = widened(target);
  Tensor loss = options.log_input ? exp(given) - wanted * given : given - wanted * log(given + options.eps);
  if (options.full) {
    const Tensor many = gt(wanted, 1.0), n = where(many, wanted, 1.0);
    loss = loss + where(many, n * log(n) - n + log(n * (2 * std::numbers::pi)) * 0.5, 0.0);
  }
  return reduced("poisson_nll_loss", loss, options.reduction);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& options) {
  check_vectors("triplet_margin_loss", anchor, positive);
  check_vectors("triplet_margin_loss", anchor, negative);
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return pairwise_distance(widened(a), widened(b), options.p, options.eps);
  };
  Tensor far = distance(anchor, negative);
  if (options.swap) far = minimum(far, distance(positive, negative));
  return reduced("triplet_margin_loss", at_least_0(distance(anchor, positive) - far + options.margin),
                 options.reduction);
}

Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& given_target,
                           const MarginLossOptions& options) {
  const Tensor target = as_numbers(x1, near_input("margin_ranking_loss", x1, given_target));
  check_pair("margin_ranking_loss", x1, x2);
  check_pair("margin_ranking_loss", x1, target);
  const Tensor loss = at_least_0(options.margin - widened(target) * (widened(x1) - widened(x2)));
  return reduced("margin_ranking_loss", loss, options.reduction);
}

Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& given_target,
                             const MarginLossOptions& options) {
  check_vectors("cosine_embedding_loss", x1, x2);
  const Tensor target = as_numbers(x1, near_input("cosine_embedding_loss", x1, given_target));
  check_target("cosine_embedding_loss", x1, target);
  // As in PyTorch.
  constexpr double kEps = 1e-12;
  const Tensor a = widened(x1), b = widened(x2), wanted = widened(target);
  const Tensor cos = sum(a * b, -1) / sqrt((sum(square(a), -1) + kEps) * (sum(square(b), -1) + kEps));
  const Tensor loss =
      where(eq(wanted, 1.0), 1 - cos, 0.0) + where(eq(wanted, -1.0), at_least_0(cos - options.margin), 0.0);
  return reduced("cosine_embedding_loss", loss, options.reduction);
}

Tensor hinge_embedding_loss(const Tensor& x, const Tensor& given_target, const HingeEmbeddingLossOptions& options) {
  const Tensor target = as_numbers(x, near_input("hinge_embedding_loss", x, given_target));
  check_pair("hinge_embedding_loss", x, target);
  const Tensor given = widened(x), wanted = widened(target);
  const Tensor loss =
      where(ne(wanted, 1.0), at_least_0(options.margin - given), 0.0) + where(ne(wanted, -1.0), given, 0.0);
  return reduced("hinge_embedding_loss", loss, options.reduction);
}

Tensor soft_margin_loss(const Tensor& x, const Tensor& given_target, const LossOptions& options) {
  const Tensor target = as_numbers(x, near_input("soft_margin_loss", x, given_target));
  check_pair("soft_margin_loss", x, target);
  return reduced("soft_margin_loss", softplus(-(widened(target) * widened(x)), 1, 80), options.reduction);
}

Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& given_target, const ProbabilityLossOptions& options) {
  constexpr std::string_view kName = "multilabel_soft_margin_loss";
  const Tensor target = as_numbers(x, near_input("multilabel_soft_margin_loss", x, given_target));
  check_pair(kName, x, target);
  check_rows(kName, x);
  const Tensor logits = widened(x), wanted = widened(target);
  const Tensor loss = -(wanted * logsigmoid(logits) + (1 - wanted) * logsigmoid(-logits));
  return reduced(kName, mean(with_weight(kName, loss, options.weight), -1), options.reduction);
}

Tensor multilabel_margin_loss(const Tensor& x, const Tensor& given_labels, const LossOptions& options) {
  constexpr std::string_view kName = "multilabel_margin_loss";
  const Tensor labels = near_input("multilabel_margin_loss", x, given_labels);
  check_rows(kName, x);
  check(labels.defined() && labels.dtype() == DType::i64 && labels.shape() == x.shape(),
        "{}: labels are {}, expected i64 {}", kName, labels, x.shape());
  const Tensor logits = widened(x);
  // Labels before the first negative label count.
  const Tensor counts = eq(cumsum(cast(lt(labels, 0.0), logits.dtype()), -1), 0.0);
  const Tensor chosen = where(counts, labels, 0.0);
  const Tensor among = where(unsqueeze(counts, -1), one_hot(chosen, x.size(-1)), 0.0);  // [N, label, class]
  const Tensor others = logical_not(any(ne(among, 0.0), -2));
  const Tensor margins = relu(1 - unsqueeze(take_along_dim(logits, chosen, -1), -1) + unsqueeze(logits, -2));
  const Tensor both = logical_and(unsqueeze(counts, -1), unsqueeze(others, -2));
  const Tensor loss = sum(where(both, margins, 0.0), {-2, -1}) / static_cast<double>(x.size(-1));
  return reduced(kName, loss, options.reduction);
}

Tensor multi_margin_loss(const Tensor& x, const Tensor& given_labels, const MultiMarginLossOptions& options) {
  constexpr std::string_view kName = "multi_margin_loss";
  const Tensor labels = near_input("multi_margin_loss", x, given_labels);
  check_rows(kName, x);
  const Classes classes = classes_of(kName, x, options.weight, labels);
  check(labels.dtype() == DType::i64 && labels.shape() == ops::without_axes(x.shape(), 1U << classes.axis),
        "{}: labels are {}, expected i64, one for each row of {}", kName, labels, x);
  check(options.p == 1 || options.p == 2, "{}: p {}, expected 1 or 2", kName, options.p);
  const Tensor logits = widened(x);
  // As in PyTorch, a margin of 0 has no gradient, unlike in the losses that clamp.
  Tensor margins = relu(options.margin - take_along_dim(logits, unsqueeze(labels, -1), -1) + logits);
  if (options.p == 2) margins = square(margins);
  Tensor loss =
      sum(where(eq(one_hot(labels, classes.count), 0.0), margins, 0.0), -1) / static_cast<double>(classes.count);
  if (options.weight.defined()) {
    loss =
        loss * squeeze(embedding(labels, weight_near(logits, options.weight).detach().reshape({classes.count, 1})), -1);
  }
  return reduced(kName, loss, options.reduction);
}

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcLossOptions& options) {
  check(log_probs.defined() && log_probs.shape().dim() == 3 && is_floating(log_probs.dtype()) && log_probs.size(0) > 0,
        "ctc_loss: log-probabilities are {}, expected floating (T, N, C) with at least 1 step", log_probs);
  const std::int64_t samples = log_probs.size(1), classes = log_probs.size(2);
  check(targets.defined() && targets.dtype() == DType::i64 && targets.shape().dim() == 2 &&
            targets.size(0) == samples && targets.size(1) > 0,
        "ctc_loss: targets are {}, expected i64 [{}, S] with S at least 1", targets, samples);
  for (const Tensor* lengths : {&input_lengths, &target_lengths}) {
    check(lengths->defined() && lengths->dtype() == DType::i64 && lengths->shape() == Shape{samples},
          "ctc_loss: lengths are {}, expected i64 [{}]", *lengths, samples);
  }
  check_lengths("ctc_loss: input_lengths", input_lengths, 0, log_probs.size(0));
  check_lengths("ctc_loss: target_lengths", target_lengths, 0, targets.size(1));
  check(options.blank >= 0 && options.blank < classes, "ctc_loss: blank {}, expected 0 to {}", options.blank,
        classes - 1);
  // Stands for -infinity: its sums are finite in f32, so their gradients are not NaN.
  constexpr double kNever = -1e30;
  const std::int64_t blank = options.blank;
  // blank, first label, blank, second label, ..., blank.
  const Tensor labels = pad(flatten(stack({full_like(targets, blank), targets}, 2), 1), {0, 1}, blank);
  const std::int64_t places = labels.size(1);
  const Tensor before = narrow(labels, 1, 0, places - 2), after = narrow(labels, 1, 2, places - 2);
  // A label may directly follow a different label, without a blank between them.
  const Tensor skips = pad(logical_and(ne(after, blank), ne(after, before)), {2, 0});
  const std::vector<Tensor> emitted =
      unbind(clamp(take_along_dim(widened(log_probs), unsqueeze(labels, 0), 2), kNever), 0);
  const auto moved = [&](const Tensor& alpha, std::int64_t by) {
    return pad(narrow(alpha, 1, 0, places - by), {by, 0}, kNever);
  };
  // The log-probability of each place in `labels` after a step.
  const Tensor starts = unsqueeze(gt(input_lengths, 0), 1);
  Tensor alpha = where(starts, pad(narrow(emitted[0], 1, 0, 2), {0, places - 2}, kNever), kNever);
  for (std::size_t t = 1; t < emitted.size(); ++t) {
    const Tensor next =
        logsumexp(stack({alpha, moved(alpha, 1), where(skips, moved(alpha, 2), kNever)}, 0), 0) + emitted[t];
    alpha = where(unsqueeze(gt(input_lengths, t), 1), next, alpha);
  }
  const Tensor end = unsqueeze(target_lengths * 2.0, 1), any_label = gt(end, 0.0);
  const Tensor at_blank = take_along_dim(alpha, end, 1);
  const Tensor at_label = where(any_label, take_along_dim(alpha, where(any_label, end - 1.0, 0.0), 1), kNever);
  const Tensor found = -squeeze(logsumexp(cat({at_blank, at_label}, 1), 1, true), 1);
  const double impossible = options.zero_infinity ? 0 : std::numeric_limits<double>::infinity();
  Tensor loss = where(gt(found, -0.1 * kNever), impossible, found);
  if (options.reduction == Reduction::mean) loss = loss / clamp(cast(target_lengths, loss.dtype()), 1);
  return reduced("ctc_loss", loss, options.reduction);
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
    // Checked here, because the error of a shard would show only its part of the shape.
    check(!target.defined() || target.shape().dim() == 1,
          "cross_entropy: labels are {}, expected i64 [{}], one for each row", target, logits.size(0));
    return fused_cross_entropy(logits, target, smoothing, options.ignore_index);
  }
  const Classes classes = classes_of("cross_entropy", logits, options.weight, target);
  return nll("cross_entropy", log_softmax(widened(logits), classes.axis), target,
             {options.weight, options.ignore_index, options.reduction}, smoothing);
}

}  // namespace lockstep
