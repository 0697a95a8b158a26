// Losses under PyTorch's names, arguments, and defaults, except that results have shape [1]. The samples are on axis 0,
// or 1 for ctc_loss(). Sums and means run over the samples of all shards of all processes, so every process must call
// them. In per_shard() they run over one shard.
//
//   Tensor loss = cross_entropy(net(x), labels, {.weight = rare_counts_more, .label_smoothing = 0.1});
//   loss.backward();
//
// Inputs must be floating. Losses of bf16 and f16 inputs are computed and returned in f32, also beside f32 targets.
// Inputs and targets must have equal shapes; only weights broadcast.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// none: the loss of each element. mean and sum: shape [1]. batchmean (kl_div only): the sum divided by the number of
// samples, shape [1].
enum class Reduction : std::uint8_t { none, mean, sum, batchmean };

struct LossOptions {
  Reduction reduction = Reduction::mean;
};

// (x - target)^2
Tensor mse_loss(const Tensor& x, const Tensor& target, const LossOptions& options = {});
// |x - target|
Tensor l1_loss(const Tensor& x, const Tensor& target, const LossOptions& options = {});

struct HuberLossOptions {
  Reduction reduction = Reduction::mean;
  double delta = 1;  // above 0
};
// (x - target)^2 / 2 where |x - target| is at most delta, delta (|x - target| - delta / 2) elsewhere.
Tensor huber_loss(const Tensor& x, const Tensor& target, const HuberLossOptions& options = {});

struct SmoothL1LossOptions {
  Reduction reduction = Reduction::mean;
  double beta = 1;  // at least 0; at 0 this is l1_loss
};
// huber_loss with delta = beta, divided by beta.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, const SmoothL1LossOptions& options = {});

struct BinaryCrossEntropyOptions {
  Tensor weight = {};  // of each element; broadcasts
  Reduction reduction = Reduction::mean;
  Tensor pos_weight = {};  // of the part for target 1; broadcasts
};
// -pos_weight target log(sigmoid(x)) - (1 - target) log(1 - sigmoid(x)), without overflow. Targets lie in [0, 1].
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        const BinaryCrossEntropyOptions& options = {});

struct ProbabilityLossOptions {
  Tensor weight = {};  // of each element; broadcasts
  Reduction reduction = Reduction::mean;
};
// -target log(x) - (1 - target) log(1 - x) for probabilities x; each log is at least -100. NaN for x outside [0, 1].
// binary_cross_entropy_with_logits() is exact where this one is not: for probabilities near 0 and 1.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const ProbabilityLossOptions& options = {});

struct GaussianNllLossOptions {
  bool full = false;  // adds log(2 pi) / 2
  double eps = 1e-6;  // smaller variances count as eps, but keep their gradient
  Reduction reduction = Reduction::mean;
};
// (log(var) + (x - target)^2 / var) / 2. The variance has x's shape, or 1 on the last axis.
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& var,
                         const GaussianNllLossOptions& options = {});

struct PoissonNllLossOptions {
  bool log_input = true;
  bool full = false;  // adds Stirling's approximation of log(target!) for targets above 1
  double eps = 1e-8;
  Reduction reduction = Reduction::mean;
};
// exp(x) - target x, or, without log_input, x - target log(x + eps).
Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, const PoissonNllLossOptions& options = {});

struct TripletMarginLossOptions {
  double margin = 1;
  double p = 2;  // of the distance
  double eps = 1e-6;
  bool swap = false;  // uses d(positive, negative) where it is less than d(anchor, negative)
  Reduction reduction = Reduction::mean;
};
// max(0, d(anchor, positive) - d(anchor, negative) + margin) for vectors on the last axis.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& options = {});

// The targets of the next four losses are 1 and -1, in the inputs' type or as whole numbers.
struct MarginLossOptions {
  double margin = 0;
  Reduction reduction = Reduction::mean;
};
// max(0, -target (x1 - x2) + margin)
Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                           const MarginLossOptions& options = {});
// 1 - cos(x1, x2) for target 1, max(0, cos(x1, x2) - margin) for -1: vectors [N, D], or [D], and targets [N], or [].
Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                             const MarginLossOptions& options = {});
struct HingeEmbeddingLossOptions {
  double margin = 1;
  Reduction reduction = Reduction::mean;
};
// x for target 1, max(0, margin - x) for -1.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, const HingeEmbeddingLossOptions& options = {});
// log(1 + exp(-target x))
Tensor soft_margin_loss(const Tensor& x, const Tensor& target, const LossOptions& options = {});

// The mean over the classes of binary cross entropy of logits [N, C], or [C]. The weight broadcasts: [C] for classes.
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target, const ProbabilityLossOptions& options = {});
// Sums max(0, 1 - (x[label] - x[i])) over a sample's labels and the classes i that are not among them, and divides by
// C. Labels are i64 of x's shape, [N, C] or [C]; labels before the first negative one count.
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& labels, const LossOptions& options = {});
struct MultiMarginLossOptions {
  int p = 1;  // or 2
  double margin = 1;
  Tensor weight = {};  // of each class: [C]
  Reduction reduction = Reduction::mean;
};
// Sums weight[label] max(0, margin - x[label] + x[i])^p over the classes i other than the label, and divides by C: x
// [N, C], or [C], labels i64 [N], or [].
Tensor multi_margin_loss(const Tensor& x, const Tensor& labels, const MultiMarginLossOptions& options = {});

struct CtcLossOptions {
  std::int64_t blank = 0;
  Reduction reduction = Reduction::mean;  // of losses divided by the targets' lengths
  bool zero_infinity = false;             // the loss of an impossible target is 0 instead of infinity
};
// Connectionist temporal classification (Graves et al. 2006): -log of the probability that labels of the T steps, with
// repetitions and blanks removed, are the target. log_probs [T, N, C] are log-probabilities, targets i64 [N, S] with S
// at least 1, padded with any classes; lengths are i64 [N]. It takes about ten operations a step, and waits for the
// lengths: a length above T, or S, throws. Impossible targets have no gradient.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcLossOptions& options = {});

struct KlDivOptions {
  Reduction reduction = Reduction::mean;
  bool log_target = false;  // the target holds log-probabilities
};
// target (log(target) - x), for log-probabilities x; 0 where the target is 0.
Tensor kl_div(const Tensor& x, const Tensor& target, const KlDivOptions& options = {});

// The label that is ignored by default.
inline constexpr std::int64_t kIgnoredLabel = -100;

struct NllLossOptions {
  Tensor weight = {};  // of each class: [C]; without a history
  // Labels with this value do not count, and have no gradient. std::nullopt: every label must be a class.
  std::optional<std::int64_t> ignore_index = kIgnoredLabel;
  Reduction reduction = Reduction::mean;
};
// -weight[label] x[label]: x [N, C, ..] are log-probabilities, labels i64 [N, ..]. The mean divides by the sum of the
// labels' weights in the whole batch; it is NaN if no label counts.
Tensor nll_loss(const Tensor& x, const Tensor& labels, const NllLossOptions& options = {});

struct CrossEntropyOptions {
  Tensor weight = {};                                        // see NllLossOptions
  std::optional<std::int64_t> ignore_index = kIgnoredLabel;  // without effect for probabilities
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0;  // this much of the target is spread over all classes
};
// nll_loss of log_softmax(logits), [N, C, ..]. The target is labels, i64 [N, ..], or probabilities of the logits'
// shape; the mean for probabilities divides by the number of rows.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

}  // namespace lockstep
