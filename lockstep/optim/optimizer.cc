#include "lockstep/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/gradient_reducer.h"
#include "lockstep/autograd/gradient_tree.h"
#include "lockstep/engine/pending_updates.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/optimizer.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep {

namespace {

void check_at_least_zero(std::string_view what, double value) {
  check(std::isfinite(value) && value >= 0, "optimizer: {} {}, expected at least 0", what, value);
}

}  // namespace

Optimizer::Optimizer(const ParameterGroups& groups, double learning_rate, double weight_decay,
                     std::vector<std::string> state_names, bool counts_steps)
    : state_names_(std::move(state_names)), counts_steps_(counts_steps), initial_learning_rate_(learning_rate),
      base_learning_rate_(learning_rate), learning_rate_(learning_rate), updates_(std::make_shared<PendingUpdates>()) {
  check(groups.size() > 0, "optimizer: no parameters");
  check_at_least_zero("learning rate", learning_rate);
  check_at_least_zero("weight decay", weight_decay);
  std::size_t number = 0;
  for (const ParameterGroup& group : groups) add_group(number++, group, weight_decay);
}

void Optimizer::add_group(std::size_t number, const ParameterGroup& group, double weight_decay) {
  const double lr = group.lr.value_or(learning_rate_), decay = group.weight_decay.value_or(weight_decay);
  check(!group.parameters.empty(), "optimizer: no parameters{}",
        number > 0 || group.lr || group.weight_decay ? fmt::format(" in group {}", number) : "");
  check_at_least_zero(fmt::format("learning rate of group {}", number), lr);
  check_at_least_zero(fmt::format("weight decay of group {}", number), decay);
  check(!group.lr || learning_rate_ > 0,
        "optimizer: group {} has its own learning rate, which scales with the optimizer's, but the optimizer's is 0: "
        "expected above 0",
        number);
  groups_.push_back({lr, decay, group.lr});
  has_own_options_ = has_own_options_ || group.lr || group.weight_decay;
  for (const Parameter& p : group.parameters) {
    for (const Slot& slot : slots_) {
      if (slot.parameter != p) continue;
      check(slot.group != number, "optimizer: parameter {} is listed twice", p.name());
      fail("optimizer: parameter {} is in group {} and in group {}", p.name(), slot.group, number);
    }
    slots_.push_back({p, number, p.claim(), {}, {}});
  }
}

std::vector<Parameter> Optimizer::parameters() const {
  std::vector<Parameter> all;
  for (const Slot& slot : slots_) all.push_back(slot.parameter);
  return all;
}

const Optimizer::Group& Optimizer::group_at(std::size_t group) const {
  check(group < groups_.size(), "optimizer: there is no group {}, expected a number below {}", group, groups_.size());
  return groups_[group];
}

void Optimizer::set_learning_rate(double lr) {
  scale_rates(lr);
  base_learning_rate_ = lr;
}

void Optimizer::set_scheduled_learning_rate(double lr) { scale_rates(lr); }

void Optimizer::scale_rates(double lr) {
  check_at_least_zero("learning rate", lr);
  learning_rate_ = lr;
  for (Group& group : groups_) group.lr = group.own_lr ? *group.own_lr * (lr / reference_rate()) : lr;
}

void Optimizer::set_learning_rate(std::size_t group, double lr) {
  group_at(group);
  check_at_least_zero("learning rate", lr);
  check(learning_rate_ > 0, "optimizer: cannot set a group's learning rate while the optimizer's is 0");
  groups_[group].own_lr = lr * (reference_rate() / learning_rate_);
  groups_[group].lr = lr;
  has_own_options_ = true;
}

std::string Optimizer::describe_groups() const {
  if (groups_.size() == 1 && !has_own_options_) return "";
  // An initial rate of 0 says nothing about the ratios.
  const double others = std::ranges::any_of(groups_, [](const Group& g) { return g.own_lr.has_value(); })
                            ? reference_rate()
                            : initial_learning_rate_;
  std::string text;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    std::string names;
    for (const Slot& slot : slots_) {
      if (slot.group == g) names += (names.empty() ? "" : ", ") + slot.parameter.name();
    }
    text += fmt::format("{}lr {}, weight_decay {}: {}", g > 0 ? "; " : "", groups_[g].own_lr.value_or(others),
                        groups_[g].weight_decay, names);
  }
  return text;
}

// Gradients are summed on one device each, spread over all of them; where they are summed does not change the sum.
Device Optimizer::home(std::size_t slot) const {
  const auto& devices = slots_[slot].parameter.devices();
  return devices[slot % devices.size()];
}

void Optimizer::make_states(Slot& slot) const {
  if (!slot.states.empty()) return;
  // A repeated step must not clear them again.
  const RecordingPause pause;
  // All or none, because an allocation may fail.
  std::vector<Array> steps;
  std::vector<std::vector<Array>> states(state_names_.size());
  for (Device device : slot.parameter.devices()) {
    if (counts_steps_) steps.push_back(ops::full({1}, 0, DType::i64, device).with_shard(-1));
    for (auto& state : states) {
      Array t = ops::empty(slot.parameter.shape(), slot.parameter.dtype(), device).with_shard(-1);
      ops::fill_(t, 0);
      state.push_back(std::move(t));
    }
  }
  slot.steps = std::move(steps);
  slot.states = std::move(states);
}

void Optimizer::advance() {
  ++steps_;
  add_random_steps(1);
}

// Kernels get the numbers as arguments, so nothing waits for host memory.
void Optimizer::write_rates(std::span<const Array> places) const {
  ops::ShardScope lane(-1);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const Array& tensor : places) ops::fill_(tensor.narrow(static_cast<std::int64_t>(g), 1), groups_[g].lr);
  }
}

std::int64_t Optimizer::steps() const {
  steps_ -= updates_->take_left_out();
  return steps_;
}

// The losses that the gradients are of. A step of gradients without their loss would be a step of a part of the batch.
std::vector<Resource> Optimizer::losses() const {
  std::vector<Resource> all;
  for (const Slot& slot : slots_) slot.parameter.gradient_tree().list_losses(all);
  return all;
}

// What can fail comes first, such as allocations and hooks; then nothing but tasks is described, so that all replicas
// change or none.
void Optimizer::step() {
  steps();  // forgets the outcomes of former steps
  drop_failed_scales();
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
  // Every replica of every parameter is updated, or none.
  std::vector<Resource> needed = losses();
  for (const ReducedGradient& g : gradients) {
    if (g.sum.defined()) needed.push_back(g.sum.resource());
    if (g.present.defined()) needed.push_back(g.present.resource());
  }
  for (const Array& scale : scales_) needed.push_back(scale.resource());
  // A recorded step has no outcome of its own for each repetition.
  const std::shared_ptr<Engine> engine =
      devices.empty() || StepRecorder::current() ? nullptr : state_of(devices[0], "step").engine;
  const Resource done = engine ? engine->make_resource() : Resource();
  Resource first_writes = done;
  // In the order of devices. They belong to this call: a recorded step may have several.
  std::vector<Array> rates(devices.size());
  if (StepRecorder* recorder = StepRecorder::current()) {
    RecordingPause pause;
    const auto count = static_cast<std::int64_t>(groups_.size());
    for (std::size_t d = 0; d < devices.size(); ++d) rates[d] = ops::empty({count}, DType::f64, devices[d]);
    write_rates(rates);
    recorder->before_each([this, rates] {
      advance();
      write_rates(rates);
    });
  }
  std::vector<std::vector<std::vector<Update<Array>>>> lists(devices.size());
  std::vector<Array> scales(devices.size());
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const Device device = devices[d];
    std::size_t lanes = state_of(device, "step").compute_lanes.size();
    std::vector<std::vector<Update<Array>>>& items = lists[d];
    items.resize(lanes);
    scales[d] = ops::readable_from(scale_on(device), device);
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
      const Array steps = counts_steps_ ? slots_[i].steps[replica] : Array();
      items[lane].push_back({.weight = p.tensor().on(device),
                             .grad = grad,
                             .states = {state(0), state(1), state(2)},
                             .present = present,
                             .steps = steps,
                             .group = slots_[i].group});
    }
  }
  advance();
  for (std::size_t d = 0; d < devices.size(); ++d) {
    for (std::size_t lane = 0; lane < lists[d].size(); ++lane) {
      ops::ShardScope scope(static_cast<int>(lane));
      const ops::UpdateScope one_step(needed, &first_writes);
      if (!lists[d][lane].empty()) update(lists[d][lane], scales[d], rates[d]);
    }
  }
  zero_grad();
  if (!engine) return;
  updates_->add(engine, done);
  for (RandomState* random : random_states()) random->count_if_done(engine, done);
}

void Optimizer::zero_grad() {
  scales_.clear();
  factor_.reset();
  for (Slot& slot : slots_) slot.parameter.zero_grad();
}

void Optimizer::check_any(std::string_view what, std::span<const Array> gradients) const {
  check(std::ranges::any_of(gradients, &Array::defined),
        "{}: none of the optimizer's parameters has a gradient (the first is \"{}\"): expected a call of backward() "
        "before it, on a loss of their model",
        what, slots_[0].parameter.name());
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
  check_any(what, gradients);
  return ops::squared_norm(gradients, present);
}

void Optimizer::set_scales(std::vector<Array> scales) {
  if (!factor_) {
    factor_ = std::make_shared<char>();
    for (const Slot& slot : slots_) slot.parameter.gradient_tree().set_factor(factor_);
  }
  scales_ = std::move(scales);
}

// As the trees do with the gradients of a failed batch, once the program knows of the failure.
void Optimizer::drop_failed_scales() {
  if (scales_.empty()) return;
  Engine& engine = *scales_[0].storage()->engine;
  const std::uint64_t reports = engine.reports();
  if (std::exchange(reports_, reports) == reports) return;
  const auto failed = [&](const Array& scale) {
    engine.wait_unused(scale.resource());
    return engine.failure(scale.resource()) != nullptr;
  };
  if (std::ranges::none_of(scales_, failed)) return;
  scales_.clear();
  factor_.reset();
}

void Optimizer::map_gradients(const std::function<Tensor(const Tensor& gradient, const Parameter& parameter)>& f) {
  drop_failed_scales();
  std::vector<Array> found(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Parameter& p = slots_[i].parameter;
    p.gradient_tree().check_summed();
    if (p.initialized()) found[i] = p.gradient_tree().peek(home(i));
  }
  check_any("map_gradients", found);
  std::vector<std::vector<Resource>> losses(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!found[i].defined()) continue;
    const Parameter& p = slots_[i].parameter;
    p.gradient_tree().list_losses(losses[i]);
    // As the step would: optimizers round the factor to the gradient's type.
    if (const Array scale = scale_on(home(i)); scale.defined()) {
      const Array factor = ops::to_device(scale, found[i].device(), {.non_blocking = true}).to(p.dtype());
      found[i] = ops::binary(BinaryOp::multiply, found[i], factor);
    }
    found[i] = p.mapped("map_gradients", found[i], [&](const Tensor& g) { return f(g, p); });
  }
  // The factors are in the gradients now. A negative one still skips the step.
  std::vector<Array> scales;
  for (const Array& scale : scales_) {
    const Array skips = ops::compare(CompareOp::lt, scale, ops::scalar_like(scale, 0));
    scales.push_back(ops::where(skips, scale, ops::scalar_like(scale, 1)));
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (found[i].defined()) slots_[i].parameter.gradient_tree().set(std::move(found[i]), std::move(losses[i]));
  }
  scales_ = std::move(scales);
  factor_.reset();
}

void Optimizer::clip_grad_value(double limit) {
  check(std::isfinite(limit) && limit > 0, "clip_grad_value: a limit of {}, expected a finite number above 0", limit);
  map_gradients([limit](const Tensor& g, const Parameter&) { return clamp(g, -limit, limit); });
}

Tensor Optimizer::clip_grad_norm(double max_norm) {
  drop_failed_scales();
  Array squared = squared_norm("clip_grad_norm");
  if (scales_.empty()) {
    set_scales({ops::clip_scale(squared, max_norm)});
    return ops::unary(UnaryOp::sqrt, squared);
  }
  // The gradients will be multiplied by the scale that unscale() or another clipping left: so is their norm.
  Array scaled;
  std::vector<Array> scales;
  for (const Array& scale : scales_) {
    const Array factor = ops::binary(BinaryOp::multiply, scale, scale);
    const Array here = squared.device() == scale.device() ? squared : ops::to_device(squared, scale.device());
    scaled = ops::binary(BinaryOp::multiply, here, factor);
    const Array both = ops::binary(BinaryOp::multiply, scale, ops::clip_scale(scaled, max_norm));
    // A negative scale skips the step, whatever the norm is.
    const Array skips = ops::compare(CompareOp::lt, scale, ops::scalar_like(scale, 0));
    scales.push_back(ops::where(skips, scale, both));
  }
  set_scales(std::move(scales));
  return ops::unary(UnaryOp::sqrt, scaled);
}

void Optimizer::unscale(LossScaler& scaler, double max_norm) {
  drop_failed_scales();
  check(scales_.empty(),
        "unscale: the gradients are already unscaled or clipped, expected one call of unscale() for each step, before "
        "clip_grad_norm()");
  const Array squared = squared_norm("unscale");
  const std::vector<Resource> needed = losses();
  const ops::UpdateScope one_step(needed);
  set_scales(scaler.update(squared, max_norm));
}

Array Optimizer::scale_on(Device device) const {
  for (const Array& scale : scales_) {
    if (scale.device() == device) return scale;
  }
  return scales_.empty() ? Array() : scales_[0];
}

Sgd::Sgd(const ParameterGroups& parameters, SgdOptions options)
    : Optimizer(parameters, options.lr, options.weight_decay,
                options.momentum != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{}),
      options_(options) {
  check_at_least_zero("momentum", options.momentum);
  check(!options.nesterov || options.momentum > 0, "optimizer: nesterov with momentum 0, expected a momentum above 0");
}

Optimizer::Rule Sgd::rule() const {
  Rule rule{"sgd", {{"momentum", options_.momentum}, {"weight_decay", options_.weight_decay}}};
  if (options_.nesterov) rule.options.emplace_back("nesterov", 1);
  return rule;
}

void Sgd::update(std::span<const Update<Array>> updates, const Array& scale, const Array& rates) {
  ops::update_(updates, group_rules(options_), scale, rates);
}

Adam::Adam(const ParameterGroups& parameters, AdamOptions options)
    : Optimizer(parameters, options.lr, options.weight_decay, {"exp_avg", "exp_avg_sq"}, true), options_(options) {
  check(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
        "optimizer: betas {} and {}, expected at least 0 and below 1", options.beta1, options.beta2);
  check_at_least_zero("eps", options.eps);
}

Optimizer::Rule Adam::rule() const {
  Rule rule{options_.decoupled_weight_decay ? "adamw" : "adam", {{"weight_decay", options_.weight_decay}}};
  constexpr AdamOptions plain;
  if (options_.beta1 != plain.beta1) rule.options.emplace_back("beta1", options_.beta1);
  if (options_.beta2 != plain.beta2) rule.options.emplace_back("beta2", options_.beta2);
  if (options_.eps != plain.eps) rule.options.emplace_back("eps", options_.eps);
  return rule;
}

void Adam::update(std::span<const Update<Array>> updates, const Array& scale, const Array& rates) {
  ops::update_(updates, group_rules(options_), scale, rates);
}

namespace {

std::vector<std::string> states_of(const RMSpropOptions& options) {
  std::vector<std::string> names{"square_avg"};
  if (options.centered) names.emplace_back("grad_avg");
  if (options.momentum != 0) names.emplace_back("momentum_buffer");
  return names;
}

}  // namespace

RMSprop::RMSprop(const ParameterGroups& parameters, RMSpropOptions options)
    : Optimizer(parameters, options.lr, options.weight_decay, states_of(options)), options_(options) {
  check(options.alpha >= 0 && options.alpha <= 1, "optimizer: alpha {}, expected from 0 to 1", options.alpha);
  check_at_least_zero("eps", options.eps);
  check_at_least_zero("momentum", options.momentum);
}

Optimizer::Rule RMSprop::rule() const {
  Rule rule{"rmsprop", {{"momentum", options_.momentum}, {"weight_decay", options_.weight_decay}}};
  constexpr RMSpropOptions plain;
  if (options_.alpha != plain.alpha) rule.options.emplace_back("alpha", options_.alpha);
  if (options_.eps != plain.eps) rule.options.emplace_back("eps", options_.eps);
  if (options_.centered) rule.options.emplace_back("centered", 1);
  return rule;
}

void RMSprop::update(std::span<const Update<Array>> updates, const Array& scale, const Array& rates) {
  ops::update_(updates, group_rules(options_), scale, rates);
}

}  // namespace lockstep
