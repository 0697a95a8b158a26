#include "lockstep/train/watch.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

double value_of(const EpochRecord& epoch, const std::string& metric) {
  if (metric == "train_loss") return epoch.train_loss;
  const auto found = std::ranges::find(epoch.metrics, metric, &std::pair<std::string, double>::first);
  if (found != epoch.metrics.end()) return found->second;
  if (metric == "accuracy" && epoch.test_total > 0) {
    return static_cast<double>(epoch.test_correct) / static_cast<double>(epoch.test_total);
  }
  std::string names = "train_loss";
  if (epoch.metrics.empty() && epoch.test_total > 0) names += ", accuracy";
  for (const auto& [name, value] : epoch.metrics) names += ", " + name;
  fail("trainer: watch.metric is {}, but epoch {} has [{}]", metric, epoch.epoch, names);
}

}  // namespace

std::int64_t best_epoch(std::span<const EpochRecord> epochs, const WatchOptions& options) {
  std::int64_t best = 0;
  double best_value = 0;
  for (const EpochRecord& epoch : epochs) {
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

bool stops_early(std::span<const EpochRecord> epochs, const WatchOptions& options) {
  if (options.metric.empty() || options.patience == 0 || epochs.empty()) return false;
  const std::int64_t best = std::max(best_epoch(epochs, options), epochs.front().epoch - 1);
  return epochs.back().epoch - best >= options.patience;
}

}  // namespace lockstep
