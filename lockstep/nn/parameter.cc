#include "lockstep/nn/parameter.h"

#include <algorithm>

#include "lockstep/autograd/gradient_reducer.h"
#include "lockstep/autograd/gradient_tree.h"
#include "lockstep/autograd/node.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep {

struct Parameter::State : std::enable_shared_from_this<State> {
  ParameterOptions options;
  std::string name;
  std::string label = "a parameter";  // for errors; contains the name once there is one
  Initializer fallback;
  RandomKey key;
  std::vector<Device> devices;
  std::vector<Array> replicas;  // one for each device, or empty
  Tensor tensor;                // made of them
  GradientTree gradient;
  std::shared_ptr<void> claim = std::make_shared<char>();

  // Gradients go into the parameter's tree. A history may outlive its parameter.
  struct Leaf : GradMeta {
    std::weak_ptr<State> owner;
    void reached(BackwardPass& pass) override {
      const auto state = owner.lock();
      if (!state || !state->options.trainable) return;
      const auto& reducer = state->gradient.reducer();
      // Only this process would train it, so processes would differ from then on.
      check(reducer || !pass.at || !pass.at->exchange(),
            "backward: {} is not summed over processes: it is not part of the module whose DistributedDataParallel cut "
            "this "
            "batch",
            state->label);
      if (reducer && std::ranges::find(pass.observers, reducer) == pass.observers.end())
        pass.observers.push_back(reducer);
    }
    void accumulate(const BackwardPass& pass, Gradient g) override {
      const auto state = owner.lock();
      if (state && state->options.trainable) state->accumulate(pass, std::move(g));
    }
    bool takes_shards() const override { return true; }
    void accumulate_shard(const BackwardPass& pass, Gradient::Addend addend) override {
      const auto state = owner.lock();
      if (!state || !state->options.trainable) return;
      state->check_joined(pass);
      state->add(pass, std::move(addend));
    }
    Tensor grad() const override {
      const auto state = owner.lock();
      return state ? state->own_gradient(state->devices.at(0)) : Tensor();
    }
    void zero_grad() override {
      if (const auto state = owner.lock()) state->gradient.clear();
    }
    void abandon(const BackwardPass& pass) override {
      if (const auto state = owner.lock()) state->gradient.abandon(pass);
    }
    void passed(const BackwardPass& pass) override {
      if (const auto state = owner.lock()) state->gradient.passed(pass);
    }
    Array destination(const BackwardPass& pass, int shard, Device device) override {
      const auto state = owner.lock();
      return state ? state->gradient.destination(pass, shard, device) : Array();
    }
  };

  Tensor own_gradient(Device device) {
    const Array sum = gradient.sum(device).sum;
    // The reducer's memory is read by other processes and overwritten by the next step.
    if (!sum.defined() || gradient.reducer() == nullptr) return sum;
    const Array copy = ops::empty(sum.shape(), sum.dtype(), device);
    ops::copy_(sum, copy, {.non_blocking = true});
    return copy;
  }

  // For a gradient of samples.
  void check_joined(const BackwardPass& pass) const {
    check(gradient.reducer() == nullptr || (pass.at && pass.at->exchange()),
          "backward: {} is trained by DistributedDataParallel, but the loss is not made of a batch that its batches() "
          "or split() cut: other processes would not have this gradient",
          label);
  }

  void add(const BackwardPass& pass, Gradient::Addend a) {
    // Plain, like the parameter: trees and optimizers go through memory.
    if (a.counts) gradient.add(pass, a.shard, ops::to_layout(a.sum.value, Layout::plain));
  }

  void accumulate(const BackwardPass& pass, Gradient g) {
    const auto& reducer = gradient.reducer();
    if (!g.addends.empty() || g.single.defined()) check_joined(pass);
    if (!g.parts.empty() || g.single.defined() || g.seed) {
      // A contribution that counts once joins the lowest shard, wherever that is.
      const int shard = pass.at ? pass.at->lowest_shard() : 0;
      const Slot* here = nullptr;
      if (pass.at) {
        for (const Slot& slot : pass.at->slots()) {
          if (slot.shard == shard) here = &slot;
        }
      }
      if (pass.at ? here != nullptr : !reducer || reducer->has_shard(shard)) {
        const Array own = g.addend(shard);
        Device device = own.defined() ? own.device() : here ? here->device : devices[0];
        if (!here && g.single.defined()) device = g.single.value.device();
        g.add_addend(shard, g.once(device).with_shard(shard), true);
      }
    }
    for (Gradient::Addend& a : g.addends) add(pass, std::move(a));
  }

  bool shape_known() const {
    return std::ranges::none_of(options.shape, [](std::int64_t d) { return d == 0; });
  }

  void make_replicas(const Array* value = nullptr) {
    replicas.clear();
    for (Device device : devices) {
      Array replica = ops::empty(options.shape, options.dtype, device).with_shard(-1);
      if (value) {
        assign(replica, *value);
      } else {
        // The host computes initial values for devices of all kinds, so the bits are the same.
        const Device maker = state_of(device, "initialize").host_visible_device();
        Array made = maker == device ? replica : ops::empty(options.shape, options.dtype, maker).with_shard(-1);
        (options.initializer ? options.initializer : fallback)(made, key);
        if (options.after_initializer) options.after_initializer(made);
        if (maker != device) assign(replica, made);
      }
      replicas.push_back(std::move(replica));
    }
    connect();
  }

  void move(const std::vector<Device>& to, DType dtype) {
    const Array value = replicas.empty() ? Array() : replicas[0];
    devices = to;
    options.dtype = dtype;
    tensor = {};
    gradient.clear();
    if (value.defined()) make_replicas(&value);
  }

  // Attached to the graph, or not.
  void connect() {
    if (replicas.empty()) return;
    tensor = Tensor::replicated(replicas);
    tensor.set_label(label);
    if (!options.trainable) return;
    auto leaf = std::make_shared<Leaf>();
    leaf->owner = weak_from_this();
    tensor.set_grad_meta(std::move(leaf));
  }

  static void assign(const Array& replica, const Array& value) {
    // Held until the copy is done if it comes from the host.
    ops::copy_(value, replica, {.non_blocking = !value.device().is_host()});
  }

  void check_replicas(const std::vector<Device>& wanted) const {
    check(!devices.empty(),
          "{} is not initialized: call initialize() with the devices that should hold it; it reaches only modules that "
          "make() or add() registered",
          label);
    check(!replicas.empty(),
          "{} is not initialized on {} yet: its shape {} is settled by the first forward pass (0: not "
          "known)",
          label, describe_devices(wanted), options.shape);
  }
};

Parameter::Parameter(ParameterOptions options) : state_(std::make_shared<State>()) {
  state_->options = std::move(options);
}

const std::string& Parameter::name() const { return state_->name; }
const Shape& Parameter::shape() const { return state_->options.shape; }
DType Parameter::dtype() const { return state_->options.dtype; }
bool Parameter::trainable() const { return state_->options.trainable; }
bool Parameter::computed() const { return state_->options.computed; }
void Parameter::set_trainable(bool trainable) const {
  State& s = *state_;
  check(!trainable || is_floating(s.options.dtype), "{}: {} elements cannot be trained, expected a floating type",
        s.label, lockstep::name(s.options.dtype));
  if (trainable == s.options.trainable) return;
  s.options.trainable = trainable;
  s.connect();
  if (!trainable) s.gradient.clear();
}
bool Parameter::shape_known() const { return state_->shape_known(); }

bool Parameter::fits(const Shape& shape) const {
  const Shape& mine = state_->options.shape;
  bool agrees = shape.rank() == mine.rank();
  for (int i = 0; agrees && i < mine.rank(); ++i) agrees = mine[i] == 0 || mine[i] == shape[i];
  return agrees;
}

const std::vector<Device>& Parameter::devices() const { return state_->devices; }

Tensor Parameter::tensor() const {
  state_->check_replicas(devices());
  return state_->tensor;
}

Tensor Parameter::data(Device device) const {
  const State& s = *state_;
  const auto it = std::ranges::find(s.devices, device);
  check(s.devices.empty() || it != s.devices.end(), "{} is not initialized on {}: it lives on {}", s.label,
        device.name(), str(s.devices));
  s.check_replicas({device});
  return s.replicas[static_cast<std::size_t>(it - s.devices.begin())];
}

Tensor Parameter::host_data() const {
  check(initialized(), "{} is not initialized", state_->label);
  return data(devices()[0]).to(Device());
}

void Parameter::set_data(const Tensor& value) {
  State& s = *state_;
  check(value.defined(), "{}: set to an undefined tensor", s.label);
  check(value.dtype() == s.options.dtype, "{}: set to {}, expected {}", s.label, value,
        lockstep::name(s.options.dtype));
  check(initialized(), "{} is not initialized: call initialize() before loading it", s.label);
  Shape known = s.options.shape;
  if (!s.replicas.empty()) {
    check(value.shape() == known, "{}: set to {}, expected {}", s.label, value.shape(), known);
    for (const Array& replica : s.replicas) State::assign(replica, value.array());
    return;
  }
  check(value.shape().rank() == known.rank(), "{}: set to {}, expected {} (0: any)", s.label, value.shape(), known);
  for (int i = 0; i < known.rank(); ++i) {
    check(known[i] == 0 || known[i] == value.shape()[i], "{}: set to {}, expected {} (0: any)", s.label, value.shape(),
          known);
  }
  s.options.shape = value.shape();
  s.make_replicas(&value.array());
}

void Parameter::settle_shape(const Shape& shape) {
  State& s = *state_;
  Shape& mine = s.options.shape;
  check(fits(shape), "{}: the input needs shape {}, expected {} (0: any)", s.label, shape, mine);
  mine = shape;
  if (s.replicas.empty() && !s.devices.empty()) s.make_replicas();
}

void Parameter::initialize(std::string name, const std::vector<Device>& devices, const Initializer& fallback,
                           std::uint64_t seed) {
  State& s = *state_;
  check(!devices.empty(), "initialize: no devices");
  s.name = std::move(name);
  s.label = "parameter " + s.name;
  s.devices = devices;
  s.fallback = fallback;
  s.key = random_key(seed, {hash_name(s.name)});
  s.replicas.clear();
  s.tensor = {};
  s.gradient.clear();
  if (s.shape_known()) s.make_replicas();
}

void Parameter::check_movable() const {
  const State& s = *state_;
  check(initialized(), "to: {} is not initialized: initialize() makes it on the devices", s.label);
  check(!optimized(), "to: an optimizer has {}, and keeps its state on {}: move the module first", s.label,
        str(s.devices));
  check(s.gradient.reducer() == nullptr, "to: DistributedDataParallel has {} on {}: move the module first", s.label,
        str(s.devices));
}

void Parameter::to(const std::vector<Device>& devices) const {
  State& s = *state_;
  check(!devices.empty(), "to: no devices");
  check_movable();
  s.move(devices, s.options.dtype);
}

void Parameter::to(DType dtype) const {
  State& s = *state_;
  check(dtype == DType::f32 || dtype == DType::f64, "to: {} parameters, expected f32 or f64", lockstep::name(dtype));
  check_movable();
  if (is_floating(s.options.dtype)) s.move(devices(), dtype);
}

Tensor Parameter::gradient(Device device) const { return state_->own_gradient(device); }
ReducedGradient Parameter::reduced_gradient(Device device) const { return state_->gradient.sum(device); }
std::shared_ptr<void> Parameter::claim() const { return state_->claim; }
bool Parameter::optimized() const { return state_->claim.use_count() > 1; }
GradientTree& Parameter::gradient_tree() const { return state_->gradient; }
void Parameter::zero_grad() const { state_->gradient.clear(); }

}  // namespace lockstep
