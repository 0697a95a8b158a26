// Optimizer steps over many tensors in one call. Arithmetic and state are f32 (f64 with f64), plain layout.
#pragma once

#include <span>

#include "lockstep/backend/context.h"
#include "lockstep/base/plain_math.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

// Values that differ from step to step.
struct UpdateRates {
  double lr = 0;
  // 1 - beta^step for Adam's moments.
  double correction1 = 1, correction2 = 1;
};

struct SgdArgs {
  double lr = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  // Absent, or f64 [3]: replaces the values of UpdateRates above. A recorded step reads its rates there.
  View rates = {};
};

struct AdamArgs {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  // AdamW: decays the weights directly instead of through the gradient.
  bool decoupled = false;
  // Counts from 1, for the bias corrections.
  std::int64_t step = 1;
  View rates = {};
};

inline UpdateRates rates_of(const SgdArgs& args) { return {.lr = args.lr}; }
inline UpdateRates rates_of(const AdamArgs& args) {
  return {args.lr, 1 - plain_power(args.beta1, args.step), 1 - plain_power(args.beta2, args.step)};
}
// Returns the rates, from memory if they are there. The caller must be able to read that memory.
template <typename Args>
UpdateRates current_rates(const Args& args) {
  if (!args.rates) return rates_of(args);
  const double* r = args.rates.template as<double>();
  return {r[0], r[1], r[2]};
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

  bool skipped() const { return present && *present.as<std::uint8_t>() == 0; }
};

class OptimizerKernels {
 public:
  virtual ~OptimizerKernels() = default;

  // Like torch.optim.SGD with dampening 0: g = scale * grad + weight_decay * w; m = momentum * m + g; w -= lr *
  // (nesterov ? g + momentum * m : m). state0 is absent without momentum and starts as zeros, so m = g in the first
  // step. `scale` (absent: 1) is a scalar [1] of f64: the factor of clipping by norm and of loss scaling. A negative
  // one leaves all weights and states unchanged.
  virtual void sgd(KernelContext&, const SgdArgs&, std::span<const UpdateItem>, const View& scale) = 0;

  // Like torch.optim.Adam and AdamW.
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
