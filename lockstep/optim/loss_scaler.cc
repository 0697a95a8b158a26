#include "lockstep/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "lockstep/autograd/elementwise.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/optimizer.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep {

LossScaler::LossScaler(std::span<const Device> devices, LossScalerOptions options)
    : growth_interval_(options.growth_interval) {
  check(!devices.empty(), "loss scaler: no devices");
  check_state({.scale = options.initial_scale}, growth_interval_);
  for (Device device : devices) {
    states_.push_back(ops::empty({2}, DType::f32, device).with_shard(-1));
    scales_.push_back(ops::narrow(states_.back(), 0, 1));
  }
  set_state({.scale = options.initial_scale});
}

namespace {

std::vector<Device> devices_of(const Optimizer& optimizer) {
  std::vector<Device> all;
  for (const Parameter& p : optimizer.parameters()) {
    p.place();
    for (Device device : p.devices()) {
      if (std::ranges::find(all, device) == all.end()) all.push_back(device);
    }
  }
  return all;
}

}  // namespace

LossScaler::LossScaler(const Optimizer& optimizer, LossScalerOptions options)
    : LossScaler(devices_of(optimizer), options) {}

Tensor LossScaler::scale(const Tensor& loss) const {
  check(loss.defined() && loss->kind != Kind::cut && is_floating(loss.dtype()),
        "loss scaler: the loss is {}, expected a floating type that is not cut over the batch", loss);
  used_ = true;
  std::vector<Array> scales;
  for (const Array& scale : scales_) scales.push_back(ops::reshape(scale, {}));
  if (loss->kind == Kind::replicated) return loss * replicated_tensor(std::move(scales), loss->at);
  const auto near = std::ranges::find(scales, loss.device(), &Array::device);
  return loss * Tensor(near != scales.end() ? *near : ops::to_device(scales[0], loss.device()));
}

Array LossScaler::current() const {
  Array copy = ops::empty_like(scales_[0]);
  ops::copy_(scales_[0], copy);
  return copy;
}

std::vector<Array> LossScaler::update(const Array& squared_norm, double max_norm) {
  check(used_ || adjusted_,
        "unscale: this LossScaler has scaled no loss, so the gradients would be divided by a scale that they do not "
        "have: expected scaler.scale(loss).backward(), or backward() with scaler.scales()");
  check(used_,
        "unscale: this LossScaler has already adjusted its scale since the last backward(), so the gradients have "
        "another scale: expected one optimizer, with parameter groups if needed, or a backward() with "
        "scaler.scales() for each optimizer");
  used_ = false;
  adjusted_ = true;
  std::vector<Array> factors;
  for (const Array& state : states_) {
    factors.push_back(
        ops::loss_scale_(state, squared_norm, {.max_norm = max_norm, .growth_interval = growth_interval_}));
  }
  return factors;
}

LossScalerState LossScaler::state() const {
  const std::vector<float> numbers = ops::host_readable(states_[0]).to_vector<float>();
  return {numbers[0], static_cast<std::int64_t>(numbers[1])};
}

void LossScaler::check_state(const LossScalerState& state, std::int64_t growth_interval) {
  // The count is f32, which is exact only up to 2^24.
  check(growth_interval >= 1 && growth_interval < 1 << 24, "loss scaler: a growth interval of {}, expected 1 to {}",
        growth_interval, (1 << 24) - 1);
  int exponent = 0;
  check(state.scale >= LossScaleArgs::kLeast && state.scale <= LossScaleArgs::kMost &&
            std::frexp(state.scale, &exponent) == 0.5,
        "loss scaler: a scale of {}, expected a power of two between 2^-60 and 2^60", state.scale);
  check(state.good_steps >= 0 && state.good_steps < growth_interval, "loss scaler: {} good steps, expected 0 to {}",
        state.good_steps, growth_interval - 1);
}

void LossScaler::set_state(const LossScalerState& state) {
  check_state(state);
  const Array host = Array::from<float>({static_cast<float>(state.scale), static_cast<float>(state.good_steps)}, {2});
  for (const Array& device : states_) ops::copy_(host, device);
}

}  // namespace lockstep
