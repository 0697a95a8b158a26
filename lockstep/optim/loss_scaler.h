// Dynamic loss scaling, which training in f16 needs: gradients below 6e-8 are 0 there, and above 65504 infinite. So the loss
// is multiplied by a scale before backward(), and the gradients' sums are divided by it, in f32, by the optimizer's step.
// As torch.amp.GradScaler, the scale is halved when a gradient is not finite, and that step left out; after many good steps in
// a row it doubles.
//
//     LossScaler scaler(runtime.devices());
//     loss.backward({.scales = scaler.scales()});
//     optimizer.unscale(scaler);
//     optimizer.step();
//
// The scale lives on the devices, and the host does not wait for it: each of them, in all processes, takes the same decision
// from the same norm.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/tensor/array.h"

namespace LOCKSTEP_API lockstep {

struct LossScalerOptions {
  // A power of two.
  double initial_scale = 65536;
  // Good steps in a row before the scale doubles.
  std::int64_t growth_interval = 2000;
};

// What a checkpoint needs.
struct LossScalerState {
  double scale = 0;
  std::int64_t good_steps = 0;  // since the scale changed
};

class LossScaler {
 public:
  explicit LossScaler(std::span<const Device> devices, LossScalerOptions options = {});

  // f32 [1], one on each device: for backward().
  std::span<const Array> scales() const { return scales_; }
  // The scale after all steps that were described so far, f32 [1]. Not waited for.
  Array current() const;

  // For Optimizer::unscale: takes the squared norm of the gradients with the scale, and moves on. Returns the optimizer's
  // factor, f64 [1], on each device.
  std::vector<Array> update(const Array& squared_norm, double max_norm);

  // Waits.
  LossScalerState state() const;
  void set_state(const LossScalerState& state);

 private:
  std::vector<Array> states_, scales_;  // a scale is part of a state
  std::int64_t growth_interval_;
};

}  // namespace lockstep
