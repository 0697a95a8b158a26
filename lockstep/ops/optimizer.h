// Internal: optimizer steps: one task per device for all parameters.
#pragma once

#include <span>
#include <vector>

#include "lockstep/backend/optimizer.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// One parameter's replica on one device. grad may lie on another device of the memory domain; states as in
// backend/optimizer.h, undefined where the optimizer has none.
struct Update {
  Array weight;
  Array grad;
  Array state0;
  Array state1;
  // u8 [1]: 0 leaves weight and states unchanged, as if the parameter did not exist. Undefined: 1.
  Array present;
  // The index of the parameter's group in `groups`.
  std::size_t group = 0;
  // i64 [1]: see UpdateItem::steps.
  Array steps = {};
};

// One task for all groups. `scale` is undefined, or f64 [1] anywhere in the memory domain. `rates` is undefined, or f64
// [groups] on the device: it replaces the groups' learning rates.
void sgd_(std::span<const Update> updates, std::vector<SgdArgs> groups, const Array& scale, const Array& rates = {});
void adam_(std::span<const Update> updates, std::vector<AdamArgs> groups, const Array& scale, const Array& rates = {});

// min(1, max_norm / (sqrt(squared_norm) + 1e-6)), f64 [1].
Array clip_scale(const Array& squared_norm, double max_norm);

// See OptimizerKernels::loss_scale: writes state, f32 [2], and returns the factor, f64 [1], on its device. squared_norm
// may be anywhere.
Array loss_scale_(const Array& state, const Array& squared_norm, const LossScaleArgs& args);

}  // namespace lockstep::ops
