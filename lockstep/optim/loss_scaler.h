// Loss scaling for training in f16.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

class Optimizer;  // optim/optimizer.h

struct LossScalerOptions {
  // A power of two from 2^-60 to 2^60.
  double initial_scale = 65536;
  // Number of good steps in a row before the scale doubles.
  std::int64_t growth_interval = 2000;
};

// The state that a checkpoint stores.
struct LossScalerState {
  double scale = 0;
  std::int64_t good_steps = 0;  // since the scale changed
};

// Dynamic loss scaling for training in f16, where gradients below 6e-8 are 0 and those above 65504 are infinite. The
// loss is multiplied by a scale before backward(), and the optimizer divides the summed gradients by it, in f32. The
// rule is that of torch.amp.GradScaler: if a gradient is not finite, the step is skipped and the scale is halved; after
// many good steps in a row, the scale is doubled.
//
//     LossScaler scaler(optimizer);
//     scaler.scale(loss).backward();
//     optimizer.unscale(scaler);
//     optimizer.step();
//
// The scale is stored on the devices, so the host never waits for it. All devices in all processes see the same norm
// and therefore make the same decision.
//
// unscale() adjusts the scale for the next backward(). Two optimizers therefore cannot share one backward(): use one
// optimizer with parameter groups, or a backward() for each optimizer.
class LossScaler {
 public:
  explicit LossScaler(std::span<const Device> devices, LossScalerOptions options = {});
  // Uses the devices of the optimizer's parameters. Places their models if nobody did.
  explicit LossScaler(const Optimizer& optimizer, LossScalerOptions options = {});
  // No copies: they would share the scale. Keep state() instead.
  LossScaler(LossScaler&&) = default;
  LossScaler& operator=(LossScaler&&) = default;

  // Returns the loss times the scale. The loss must not be cut over the batch. Call it for each backward().
  Tensor scale(const Tensor& loss) const;
  // Returns the scale on each device, f32 [1], for BackwardOptions::scales, which needs no operation on the loss. Call
  // it for each backward().
  std::span<const Array> scales() const {
    used_ = true;
    return scales_;
  }
  // Returns the scale after all steps described so far, f32 [1]. Does not wait.
  Array current() const;

  // For Optimizer::unscale(): adjusts the scale, given the squared norm of the scaled gradients. Returns for each
  // device the factor, f64 [1], by which the optimizer multiplies the gradients. Throws unless scale() or scales() was
  // called since the last adjustment, because the gradients would have no scale, or the former one.
  std::vector<Array> update(const Array& squared_norm, double max_norm);

  // Waits.
  LossScalerState state() const;
  void set_state(const LossScalerState& state);
  // Throws where set_state() would.
  void check_state(const LossScalerState& state) const { check_state(state, growth_interval_); }
  // Checks the growth interval, too.
  static void check_state(const LossScalerState& state, std::int64_t growth_interval);

 private:
  std::vector<Array> states_, scales_;  // a scale shares the memory of its state
  mutable bool used_ = false;           // by scale() or scales(), since it was adjusted
  bool adjusted_ = false;
  std::int64_t growth_interval_;
};

}  // namespace lockstep
