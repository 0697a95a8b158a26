// Internal: optimizer steps: one task per device for all parameters.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "lockstep/backend/optimizer.h"
#include "lockstep/ops/launch.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// The arrays and views of a task of updates.
struct UpdateOperands {
  std::vector<Array> reads, writes;
  std::vector<std::vector<Update<View>>> updates;  // of each group
  std::vector<View> rates;                         // of each group; may be absent
};
UpdateOperands update_operands(std::string_view what, std::span<const Update<Array>> updates, std::size_t groups,
                               const Array& scale, const Array& rates);

// Pushes one task that applies rules[update.group] to every update. A gradient may lie on another device of the memory
// domain. `scale` is undefined, or f64 [1] anywhere in the memory domain. `rates` is undefined, or f64 [rules] on the
// device: it replaces the rules' learning rates.
template <typename Rule>
void update_(std::span<const Update<Array>> updates, std::vector<Rule> rules, const Array& scale,
             const Array& rates = {}) {
  if (updates.empty()) return;
  for (const Update<Array>& u : updates) {
    check(u.steps.defined() || !Rule::kCountsSteps, "{}: an update has no number of steps", Rule::kName);
  }
  UpdateOperands o = update_operands(Rule::kName, updates, rules.size(), scale, rates);
  launch(Rule::kName, o.reads, o.writes,
         [rules = std::move(rules), updates = std::move(o.updates), rates = std::move(o.rates), scale = scale.view()](
             Backend& b, KernelContext& c) {
           for (std::size_t g = 0; g < rules.size(); ++g) {
             if (!updates[g].empty()) b.run(c, kernels::Update<Rule>{rules[g], updates[g], scale, rates[g]});
           }
         },
         {.foreign_reads = true});
}

// min(1, max_norm / (sqrt(squared_norm) + 1e-6)), f64 [1].
Array clip_scale(const Array& squared_norm, double max_norm);

// See kernels::LossScale: writes state, f32 [2], and returns the factor, f64 [1], on its device. squared_norm may be
// anywhere.
Array loss_scale_(const Array& state, const Array& squared_norm, const LossScaleArgs& args);

}  // namespace lockstep::ops
