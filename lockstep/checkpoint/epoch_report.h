// What was measured in an epoch of training. Trainer reports it, the log and the plot show it, and checkpoints hold the
// reports of all finished epochs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

struct Accuracy {
  std::int64_t correct = 0;
  std::int64_t total = 0;  // 0: not measured
  double value() const { return total == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(total); }
};

struct MetricResult {
  std::string name;
  double sum = 0;                            // of the values
  double count = 0;                          // of the values
  double value = 0;                          // NaN if there are no values, and for a table
  std::vector<std::vector<double>> table{};  // no rows if there are no samples
};

// Numbers by name, in a fixed order.
using NamedScalars = std::vector<std::pair<std::string, double>>;

struct EpochReport {
  std::int64_t epoch = 0;  // from 1
  double seconds = 0;      // training time, without evaluation
  double train_loss = 0;
  // Accuracy on the test data. With TrainerOptions::metrics: the metric named "accuracy", or 0 of 0 if there is none.
  Accuracy test{};
  // Checkpoints hold the names and values alone, and no tables.
  std::vector<MetricResult> metrics{};
  // The means of BatchOutputs::log over the training samples.
  NamedScalars log{};
  // Part of `seconds` in which a device of this process had nothing to compute because the loader had not made the next
  // batch. TrainerOptions::workers shortens it. For GPUs it is an upper bound, because it also counts time in which
  // they compute steps that were queued before. NaN for an epoch from a checkpoint of an older version, which lacks it.
  double data_seconds = 0;
};

}  // namespace lockstep
