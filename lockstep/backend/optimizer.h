// Internal: optimizer steps over many arrays in one call. Arithmetic and state are f32 (f64 with f64), plain layout.
#pragma once

#include <span>

#include "lockstep/backend/context.h"
#include "lockstep/base/plain_math.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

struct SgdArgs {
  double lr = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  // Absent, or f64 [1]: replaces lr. A recorded step reads its learning rate there.
  View rate = {};
};

struct AdamArgs {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  // AdamW: decays the weights directly instead of through the gradient.
  bool decoupled = false;
  View rate = {};
};

// Returns the learning rate, from memory if it is there. The caller must be able to read that memory.
template <typename Args>
double current_rate(const Args& args) {
  return args.rate ? *args.rate.template as<double>() : args.lr;
}

// The divisors of the moments in a step of Adam. `step` counts from 1.
struct BiasCorrections {
  double first, second;
};
constexpr BiasCorrections bias_corrections(double beta1, double beta2, std::int64_t step) {
  return {1 - plain_power(beta1, step), 1 - plain_power(beta2, step)};
}

// One step of dynamic loss scaling. The scale is a power of two, so multiplying and dividing by it is exact.
struct LossScaleArgs {
  // The norm to which the unscaled gradients are clipped; 0: no clipping.
  double max_norm = 0;
  // Number of consecutive good steps after which the scale doubles.
  std::int64_t growth_interval = 2000;

  // Limits of the scale, so that f32 can hold it, its reciprocal, and scaled values.
  static constexpr double kLeast = 0x1p-60, kMost = 0x1p60;
};

// One parameter on one device. state0 is the momentum buffer or Adam's first moment, state1 the second.
struct UpdateItem {
  View weight;
  View grad;
  View state0;
  View state1;
  // u8 [1]: 0 leaves the parameter as it is. Absent: 1.
  View present;
  // i64 [1]: the parameter's number of steps so far. Adam needs it and counts further.
  View steps = {};

  bool skipped() const { return present && *present.as<std::uint8_t>() == 0; }
  // Counts a step and returns its number, from 1.
  std::int64_t count_step() const { return ++*steps.as<std::int64_t>(); }
};

class OptimizerKernels {
 public:
  virtual ~OptimizerKernels() = default;

  // Like torch.optim.SGD with dampening 0: g = scale * grad + weight_decay * w; m = momentum * m + g; w -= lr *
  // (nesterov ? g + momentum * m : m). state0 is absent without momentum and starts as zeros, so m = g in the first
  // step. `scale` (absent: 1) is a scalar [1] of f64: the factor of clipping by norm and of loss scaling. A negative
  // one leaves all weights and states unchanged.
  virtual void sgd(KernelContext&, const SgdArgs&, std::span<const UpdateItem>, const View& scale) = 0;

  // Like torch.optim.Adam and AdamW. The bias corrections are those of each item's own steps. A step with a negative
  // scale counts, too.
  virtual void adam(KernelContext&, const AdamArgs&, std::span<const UpdateItem>, const View& scale) = 0;

  // scale [1] = min(1, max_norm / (sqrt(squared_norm) + 1e-6)); both f64.
  virtual void clip_scale(KernelContext&, double max_norm, const View& squared_norm, const View& scale) = 0;

  // Like torch.amp.GradScaler. state, f32 [2], holds the loss scale and the number of good steps since it changed.
  // squared_norm is that of the scaled gradients. If it is finite, factor = min(1, max_norm / (norm + 1e-6)) /
  // state[0], with the norm of the unscaled gradients, and the scale doubles after growth_interval such steps in a row.
  // Otherwise factor = -1, and the scale is halved.
  virtual void loss_scale(KernelContext&, const LossScaleArgs&, const View& squared_norm, const View& state,
                          const View& factor) = 0;
};

}  // namespace lockstep
