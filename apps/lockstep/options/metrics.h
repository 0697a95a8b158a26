// What --metrics names.
#pragma once

#include <vector>

#include "apps/lockstep/options/common_options.h"
#include "lockstep/train/evaluate.h"

namespace lockstep::app {

// Empty means the default of Trainer and evaluate(), for pictures.
std::vector<Metric> make_metrics(const CommonOptions& options, std::int64_t classes);

}  // namespace lockstep::app
