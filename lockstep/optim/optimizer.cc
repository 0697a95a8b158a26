#include "lockstep/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "lockstep/nn/gradient_reducer.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/optimizer.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep {

Optimizer::Optimizer(std::vector<Parameter> parameters, double learning_rate, std::vector<std::string> state_names)
    : state_names_(std::move(state_names)), learning_rate_(0) {
  check(!parameters.empty(), "optimizer: no parameters");
  set_learning_rate(learning_rate);
  for (Parameter& p : parameters) {
    for (const Slot& slot : slots_) check(slot.parameter != p, "optimizer: parameter {} is listed twice", p.name());
    std::shared_ptr<void> claim = p.claim();
    slots_.push_back({std::move(p), std::move(claim), {}});
  }
}

void Optimizer::set_learning_rate(double lr) {
  check(std::isfinite(lr) && lr >= 0, "optimizer: learning rate {}, expected at least 0", lr);
  learning_rate_ = lr;
}

// Gradients are summed on one device each, spread over all of them; where they are summed does not change the sum.
Device Optimizer::home(std::size_t slot) const {
  const auto& devices = slots_[slot].parameter.devices();
  return devices[slot % devices.size()];
}

void Optimizer::make_states(Slot& slot) const {
  if (!slot.states.empty()) return;
  slot.states.resize(state_names_.size());
  for (auto& state : slot.states) {
    for (Device device : slot.parameter.devices()) {
      Array t = ops::empty(slot.parameter.shape(), slot.parameter.dtype(), device).with_shard(-1);
      ops::fill_(t, 0);
      state.push_back(std::move(t));
    }
  }
}

void Optimizer::advance() {
  ++steps_;
  add_random_steps(1);
}

// By kernels with the numbers as arguments, so that nobody waits for memory of the host's.
void Optimizer::write_rates(std::span<const Array> places) const {
  const UpdateRates now = rates(steps_);
  for (const Array& tensor : places) {
    ops::ShardScope lane(-1);
    ops::fill_(tensor.narrow(0, 1), now.lr);
    ops::fill_(tensor.narrow(1, 1), now.correction1);
    ops::fill_(tensor.narrow(2, 1), now.correction2);
  }
}

void Optimizer::step() {
  advance();
  std::vector<ReducedGradient> gradients(slots_.size());
  std::vector<Device> devices;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    // Spreads the sums over a device's lanes, too.
    ops::ShardScope lane(static_cast<int>(i));
    if (!slots_[i].parameter.initialized()) continue;
    gradients[i] = slots_[i].parameter.reduced_gradient(home(i));
    if (!gradients[i].sum.defined()) continue;
    make_states(slots_[i]);
    for (Device d : slots_[i].parameter.devices()) {
      if (std::ranges::find(devices, d) == devices.end()) devices.push_back(d);
    }
  }
  // As devices; of this very call, since a recorded step may have several.
  std::vector<Array> rates(devices.size());
  if (StepRecorder* recorder = StepRecorder::current()) {
    RecordingPause pause;
    for (std::size_t d = 0; d < devices.size(); ++d) rates[d] = ops::empty({3}, DType::f64, devices[d]);
    write_rates(rates);
    recorder->before_each([this, rates] {
      advance();
      write_rates(rates);
    });
  }
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const Device device = devices[d];
    std::size_t lanes = state_of(device, "step").compute_lanes.size();
    std::vector<std::vector<Item>> items(lanes);
    std::vector<std::int64_t> load(lanes, 0);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!gradients[i].sum.defined()) continue;
      const Parameter& p = slots_[i].parameter;
      auto at = std::ranges::find(p.devices(), device);
      if (at == p.devices().end()) continue;
      auto replica = static_cast<std::size_t>(at - p.devices().begin());
      auto [grad, present] = gradients[i];
      grad = ops::readable_from(grad, device);
      present = ops::readable_from(present, device);
      auto state = [&](std::size_t k) { return k < state_names_.size() ? slots_[i].states[k][replica] : Array(); };
      auto lane = static_cast<std::size_t>(std::ranges::min_element(load) - load.begin());
      load[lane] += grad.numel();
      items[lane].push_back({p.data(device).array(), grad, state(0), state(1), present});
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      ops::ShardScope scope(static_cast<int>(lane));
      if (!items[lane].empty()) update(items[lane], scale_on(device), rates[d], steps_);
    }
  }
  zero_grad();
}

void Optimizer::zero_grad() {
  scales_.clear();
  for (Slot& slot : slots_) slot.parameter.zero_grad();
}

Array Optimizer::squared_norm(std::string_view what) const {
  std::vector<Array> gradients, present;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].parameter.initialized()) continue;
    ReducedGradient g = slots_[i].parameter.reduced_gradient(home(i));
    if (!g.sum.defined()) continue;
    gradients.push_back(std::move(g.sum));
    present.push_back(std::move(g.present));
  }
  check(!gradients.empty(), "{}: no parameter has a gradient", what);
  return ops::squared_norm(gradients, present);
}

Tensor Optimizer::clip_grad_norm(double max_norm) {
  Array squared = squared_norm("clip_grad_norm");
  scales_ = {ops::clip_scale(squared, max_norm)};
  return ops::unary(UnaryOp::sqrt, squared);
}

void Optimizer::unscale(LossScaler& scaler, double max_norm) {
  scales_ = scaler.update(squared_norm("unscale"), max_norm);
}

Array Optimizer::scale_on(Device device) const {
  for (const Array& scale : scales_) {
    if (scale.device() == device) return scale;
  }
  return scales_.empty() ? Array() : scales_[0];
}

std::vector<std::pair<std::string, Tensor>> Optimizer::state_dict() const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (std::size_t k = 0; k < state_names_.size(); ++k) {
    for (const Slot& slot : slots_) {
      if (slot.states.empty()) continue;
      all.emplace_back(state_names_[k] + "." + slot.parameter.name(), slot.states[k].at(0).to(Device()));
    }
  }
  return all;
}

void Optimizer::load_state_dict(const std::vector<std::pair<std::string, Tensor>>& state, std::int64_t steps) {
  check(steps >= 0, "optimizer: {} steps, expected at least 0", steps);
  std::map<std::string_view, const Tensor*> given;
  for (auto& [name, tensor] : state) given.emplace(name, &tensor);
  // All checks before the first change. values[i] are slot i's states; none for a parameter that never had a gradient.
  std::vector<std::vector<Array>> values(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Parameter& p = slots_[i].parameter;
    for (const std::string& state_name : state_names_) {
      auto it = given.find(state_name + "." + p.name());
      if (it == given.end()) continue;
      check(it->second->shape() == p.shape() && it->second->dtype() == p.dtype(), "optimizer: {} is {}, expected {} {}",
            it->first, it->second->describe(), p.shape(), name(p.dtype()));
      values[i].push_back(it->second->array());
      given.erase(it);
    }
    check(values[i].empty() || values[i].size() == state_names_.size(), "optimizer: the state of {} is not complete",
          p.name());
  }
  if (!given.empty()) fail("optimizer: {} does not belong to its parameters", given.begin()->first);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    // What is there is kept: recorded steps use it.
    if (!values[i].empty()) make_states(slots_[i]);
    for (const auto& state : slots_[i].states) {
      for (const Array& replica : state) {
        if (values[i].empty()) ops::fill_(replica, 0);
      }
    }
    for (std::size_t k = 0; k < values[i].size(); ++k) {
      for (const Array& replica : slots_[i].states[k]) ops::copy_(values[i][k], replica);
    }
  }
  add_random_steps(steps - std::exchange(steps_, steps));
}

// Once, though every device has it.
void Optimizer::add_random_steps(std::int64_t count) const {
  std::set<RandomState*> states;
  for (const Slot& slot : slots_) {
    for (Device device : slot.parameter.devices()) states.insert(state_of(device, "optimizer").random.get());
  }
  for (RandomState* state : states) state->add_steps(count);
}

namespace {

std::vector<ops::Update> updates(auto items) {
  std::vector<ops::Update> all;
  for (const auto& i : items) all.push_back({i.weight, i.grad, i.state0, i.state1, i.present});
  return all;
}

void check_at_least_zero(std::string_view what, double value) {
  check(std::isfinite(value) && value >= 0, "optimizer: {} {}, expected at least 0", what, value);
}

}  // namespace

Sgd::Sgd(std::vector<Parameter> parameters, SgdOptions options)
    : Optimizer(std::move(parameters), options.lr,
                options.momentum != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{}),
      options_(options) {
  check_at_least_zero("momentum", options.momentum);
  check_at_least_zero("weight decay", options.weight_decay);
  check(!options.nesterov || options.momentum > 0, "optimizer: Nesterov's step needs a momentum");
}

SgdArgs Sgd::args() const {
  return {.lr = learning_rate(),
          .momentum = options_.momentum,
          .weight_decay = options_.weight_decay,
          .nesterov = options_.nesterov};
}

UpdateRates Sgd::rates(std::int64_t) const { return rates_of(args()); }

void Sgd::update(std::span<const Item> items, const Array& scale, const Array& rates, std::int64_t) {
  ops::sgd_(updates(items), args(), scale, rates);
}

Adam::Adam(std::vector<Parameter> parameters, AdamOptions options, bool decoupled)
    : Optimizer(std::move(parameters), options.lr, {"exp_avg", "exp_avg_sq"}), options_(options),
      decoupled_(decoupled) {
  check(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
        "optimizer: betas {} and {}, expected at least 0 and below 1", options.beta1, options.beta2);
  check_at_least_zero("eps", options.eps);
  check_at_least_zero("weight decay", options.weight_decay);
}

AdamArgs Adam::args(std::int64_t step) const {
  return {.lr = learning_rate(),
          .beta1 = options_.beta1,
          .beta2 = options_.beta2,
          .eps = options_.eps,
          .weight_decay = options_.weight_decay,
          .decoupled = decoupled_,
          .step = step};
}

UpdateRates Adam::rates(std::int64_t step) const { return rates_of(args(step)); }

void Adam::update(std::span<const Item> items, const Array& scale, const Array& rates, std::int64_t step) {
  ops::adam_(updates(items), args(step), scale, rates);
}

}  // namespace lockstep
