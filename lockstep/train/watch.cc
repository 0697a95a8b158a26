#include "lockstep/train/watch.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

double value_of(const EpochReport& epoch, const std::string& metric) {
  if (metric == "train_loss") return epoch.train_loss;
  const auto found = std::ranges::find(epoch.metrics, metric, &MetricResult::name);
  if (found != epoch.metrics.end()) return found->value;
  if (metric == "accuracy" && epoch.test.total > 0) return epoch.test.value();
  std::string names = "train_loss";
  if (epoch.metrics.empty() && epoch.test.total > 0) names += ", accuracy";
  for (const MetricResult& m : epoch.metrics) names += ", " + m.name;
  fail("trainer: watch.metric is {}, but epoch {} has [{}]", metric, epoch.epoch, names);
}

}  // namespace

std::int64_t best_epoch(std::span<const EpochReport> epochs, const WatchOptions& options) {
  std::int64_t best = 0;
  double best_value = 0;
  for (const EpochReport& epoch : epochs) {
    const double value = value_of(epoch, options.metric);
    if (std::isnan(value)) continue;
    const double gain =
        options.smallest.value_or(options.metric == "train_loss") ? best_value - value : value - best_value;
    if (best > 0 && !(gain > options.min_delta)) continue;
    best = epoch.epoch;
    best_value = value;
  }
  return best;
}

bool stops_early(std::span<const EpochReport> epochs, const WatchOptions& options) {
  if (options.metric.empty() || options.patience == 0 || epochs.empty()) return false;
  const std::int64_t best = std::max(best_epoch(epochs, options), epochs.front().epoch - 1);
  return epochs.back().epoch - best >= options.patience;
}

}  // namespace lockstep
