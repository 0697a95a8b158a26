// Internal: optimizer steps over many arrays in one call. Arithmetic and state are f32 (f64 with f64), plain layout.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "lockstep/backend/kernels.h"
#include "lockstep/backend/update_rules.h"

namespace lockstep {

// The update of one parameter's replica on one device. Operands are arrays in ops and views in kernels.
template <typename Operand>
struct Update {
  Operand weight;
  Operand grad;
  // The states of the rule; unused ones are absent.
  std::array<Operand, 3> states = {};
  // u8 [1]: 0 leaves weight and states as they are, as if the parameter did not exist. Absent: 1.
  Operand present = {};
  // i64 [1]: number of the parameter's steps so far. Rules with kCountsSteps need it and increment it.
  Operand steps = {};
  // Index of the parameter's group, whose rule updates it.
  std::size_t group = 0;

  static void views(auto& u, const auto& each) {
    each(u.weight), each(u.grad), each(u.present), each(u.steps);
    for (auto& state : u.states) each(state);
  }
};

// One step of dynamic loss scaling. The scale is a power of two, so multiplying and dividing by it is exact.
struct LossScaleArgs {
  // The norm to which the unscaled gradients are clipped; 0: no clipping.
  double max_norm = 0;
  // Number of consecutive good steps after which the scale doubles.
  std::int64_t growth_interval = 2000;

  // Limits of the scale, so that f32 can hold it, its reciprocal, and scaled values.
  static constexpr double kLeast = 0x1p-60, kMost = 0x1p60;
};

namespace kernels {

// Updates by a rule of update_rules.h. `scale` (absent: 1) is a scalar [1] of f64 by which gradients are multiplied:
// the factor of clipping by norm and of loss scaling. If it is negative, weights and states stay unchanged, but steps
// count. `rate` is absent, or f64 [1], which replaces the rule's learning rate; a recorded step reads it there.
template <typename Rule>
struct Update {
  Rule rule;
  std::span<const lockstep::Update<View>> updates;
  View scale, rate;
  static void views(auto& c, const auto& in, const auto& out) { in(c.scale), in(c.rate), out(c.updates); }
};

// scale [1] = min(1, max_norm / (sqrt(squared_norm) + 1e-6)); both f64.
struct ClipScale {
  double max_norm;
  View squared_norm, scale;
  static void views(auto& c, const auto& in, const auto& out) { in(c.squared_norm), out(c.scale); }
};

// Like torch.amp.GradScaler. state, f32 [2], holds the loss scale and the number of good steps since it changed.
// squared_norm is computed from the scaled gradients. If it is finite, factor = min(1, max_norm / (norm + 1e-6)) /
// state[0], with the norm of the unscaled gradients, and the scale doubles after growth_interval such steps in a row.
// Otherwise factor = -1, and the scale is halved.
struct LossScale {
  LossScaleArgs args;
  View squared_norm, state, factor;
  static void views(auto& c, const auto& in, const auto& out) { in(c.squared_norm), out(c.state), out(c.factor); }
};

}  // namespace kernels

template <typename... Rules>
Kernels<kernels::Update<Rules>..., kernels::ClipScale, kernels::LossScale> optimizer_kernels(RuleList<Rules...>);
using OptimizerKernels = decltype(optimizer_kernels(UpdateRules()));

// The formulas of ClipScale and LossScale, shared by the cpu and cuda back ends.
constexpr double clip_factor(double max_norm, double norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor;  // NaN stays NaN
}
// Returns the factor. A template only because std::sqrt is not constexpr, which device code needs.
template <typename C>
constexpr C loss_scale_factor(const LossScaleArgs& args, C squared_norm, float* state) {
  const double scale = state[0], good = state[1] + 1;
  if (squared_norm - squared_norm != 0) {  // not finite
    if (scale > LossScaleArgs::kLeast) state[0] = static_cast<float>(scale / 2);
    state[1] = 0;
    return -1.0;
  }
  const bool grows = good >= static_cast<double>(args.growth_interval);
  if (grows && scale < LossScaleArgs::kMost) state[0] = static_cast<float>(scale * 2);
  state[1] = static_cast<float>(grows ? 0 : good);
  return (args.max_norm > 0 ? clip_factor(args.max_norm, std::sqrt(squared_norm) / scale) : 1) / scale;
}

}  // namespace lockstep
