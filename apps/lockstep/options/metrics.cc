#include "apps/lockstep/options/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace lockstep::app {
namespace {

// Returns 5 for "top5_accuracy", 0 for other names.
std::int64_t k_of_top_k(std::string_view name) {
  constexpr std::string_view kFirst = "top", kLast = "_accuracy";
  if (!name.starts_with(kFirst) || !name.ends_with(kLast) || name.size() <= kFirst.size() + kLast.size()) return 0;
  const std::string_view digits = name.substr(kFirst.size(), name.size() - kFirst.size() - kLast.size());
  std::int64_t k = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), k);
  return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() ? k : 0;
}

Metric make_metric(const std::string& name, std::int64_t classes, const metrics::ClassOptions& options) {
  if (name == "accuracy") return metrics::accuracy(options);
  if (name == "perplexity") return metrics::perplexity(options);
  if (name == "confusion_matrix") return metrics::confusion_matrix(classes, options);
  if (const std::int64_t k = k_of_top_k(name); k > 0) {
    if (k > classes) throw UsageError(fmt::format("--metrics {}: there are {} classes", name, classes));
    return metrics::top_k_accuracy(k, options);
  }
  throw UsageError(fmt::format(
      "--metrics {}: expected accuracy, top5_accuracy (or another number), perplexity, or confusion_matrix", name));
}

}  // namespace

std::vector<Metric> make_metrics(const CommonOptions& o, std::int64_t classes) {
  if (o.is_regression()) return task_metrics(o.source->schema);
  std::vector<std::string> names = o.metrics;
  if (names.empty() && !o.is_language_model()) return {};
  if (names.empty()) names = {"perplexity"};
  // Adds the accuracy for the log and the plot.
  if (std::ranges::find(names, "accuracy") == names.end()) names.insert(names.begin(), "accuracy");
  const metrics::ClassOptions axis{.dim = -1};
  std::vector<Metric> all;
  for (const std::string& name : names) {
    if (std::ranges::count(names, name) > 1) throw UsageError(fmt::format("--metrics: {} is named twice", name));
    all.push_back(make_metric(name, classes, axis));
  }
  return all;
}

}  // namespace lockstep::app
