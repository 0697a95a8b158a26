// Losses under PyTorch's names, arguments, and defaults, except that results have shape [1]. The samples are on axis 0.
// Sums and means run over the samples of all shards of all processes, so every process must call them. In per_shard()
// they run over one shard.
//
//   Tensor loss = cross_entropy(net(x), labels, {.weight = rare_counts_more, .label_smoothing = 0.1});
//   loss.backward();
//
// Inputs must be floating. Losses of bf16 and f16 inputs are computed and returned in f32. Inputs and targets must have
// equal shapes; only weights broadcast.
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

struct KlDivOptions {
  Reduction reduction = Reduction::mean;
  bool log_target = false;  // the target holds log-probabilities
};
// target (log(target) - x), for log-probabilities x; 0 where the target is 0.
Tensor kl_div(const Tensor& x, const Tensor& target, const KlDivOptions& options = {});

// The label that does not count by default.
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
