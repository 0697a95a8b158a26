#include "lockstep/nn/parameter.h"

#include <algorithm>

#include "lockstep/autograd/node.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep {

struct Parameter::State : std::enable_shared_from_this<State> {
  ParameterOptions options;
  std::string name;
  std::string label = "a parameter";  // for errors; with its name when it has one
  Initializer fallback;
  RandomKey key;
  std::vector<Device> devices;
  std::vector<Tensor> replicas;  // as devices, or empty
  GradientTree gradient;
  std::shared_ptr<void> claim = std::make_shared<char>();

  // A replica's gradients go into the parameter's tree. A history may outlive its parameter.
  struct Replica : GradMeta {
    std::weak_ptr<State> owner;
    void accumulate(int shard, const Tensor& gradient) override {
      auto state = owner.lock();
      if (!state || !state->options.trainable) return;
      // It would be trained by this process alone, and differ between processes from then on.
      check(!ReducerScope::active() || state->gradient.reducer() == ReducerScope::active(),
            "backward: {} is not summed over processes: it is not part of the module whose "
            "DistributedDataParallel cut this batch", state->label);
      // Plain, like the parameter: trees and optimizers go through memory.
      state->gradient.add(shard, ops::to_layout(gradient, Layout::plain));
    }
    Tensor destination(int shard, Device device) override {
      auto state = owner.lock();
      return state ? state->gradient.destination(shard, device) : Tensor();
    }
  };

  bool shape_known() const { return std::ranges::none_of(options.shape, [](std::int64_t d) { return d == 0; }); }

  void make_replicas(const Tensor* value = nullptr) {
    replicas.clear();
    for (Device device : devices) {
      Tensor replica = ops::empty(options.shape, options.dtype, device).with_shard(-1);
      if (value) {
        assign(replica, *value);
      } else {
        // Initial values are the host's on devices of all kinds: the same bits.
        const Device maker = state_of(device, "initialize").host_visible_device();
        Tensor made = maker == device ? replica : ops::empty(options.shape, options.dtype, maker).with_shard(-1);
        (options.initializer ? options.initializer : fallback)(made, key);
        if (maker != device) assign(replica, made);
      }
      replicas.push_back(std::move(replica));
    }
    connect_replicas();
  }

  // To the graph, or not.
  void connect_replicas() {
    for (Tensor& replica : replicas) {
      std::shared_ptr<Replica> meta;
      if (options.trainable) {
        meta = std::make_shared<Replica>();
        meta->owner = weak_from_this();
      }
      replica.set_grad_meta(std::move(meta));
    }
  }

  static void assign(const Tensor& replica, const Tensor& value) {
    // Held until the copy is done where it comes from the host.
    ops::copy_(value, replica.detach(), {.non_blocking = !value.device().is_host()});
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
  check(!trainable || is_floating(s.options.dtype), "{}: {} elements cannot be trained, expected a floating type", s.label,
        lockstep::name(s.options.dtype));
  if (trainable == s.options.trainable) return;
  s.options.trainable = trainable;
  s.connect_replicas();
  if (!trainable) s.gradient.clear();
}
bool Parameter::shape_known() const { return state_->shape_known(); }
const std::vector<Device>& Parameter::devices() const { return state_->devices; }

Tensor Parameter::data(Device device) const {
  const State& s = *state_;
  check(initialized(), "{} is not initialized: call initialize() with the devices that shall hold it", s.label);
  auto it = std::find(s.devices.begin(), s.devices.end(), device);
  check(it != s.devices.end(), "{} is not initialized on {}: it lives on {}", s.label, device.name(),
        str(s.devices));
  check(!s.replicas.empty(), "{} is not initialized on {} yet: its shape {} is settled by the first forward "
        "pass (0: not known)", s.label, device.name(), s.options.shape.str());
  return s.replicas[static_cast<std::size_t>(it - s.devices.begin())];
}

Tensor Parameter::host_data() const {
  check(initialized(), "{} is not initialized", state_->label);
  return data(devices()[0]).detach().to(Device());
}

void Parameter::set_data(const Tensor& value) {
  State& s = *state_;
  check(value.defined(), "{}: set to an undefined tensor", s.label);
  check(value.dtype() == s.options.dtype, "{}: set to {}, expected {}", s.label, value.describe(),
        lockstep::name(s.options.dtype));
  check(initialized(), "{} is not initialized: call initialize() before loading it", s.label);
  Shape known = s.options.shape;
  if (!s.replicas.empty()) {
    check(value.shape() == known, "{}: set to {}, expected {}", s.label, value.shape().str(), known.str());
    for (const Tensor& replica : s.replicas) State::assign(replica, value);
    return;
  }
  check(value.shape().rank() == known.rank(), "{}: set to {}, expected {} (0: any)", s.label,
        value.shape().str(), known.str());
  for (int i = 0; i < known.rank(); ++i) {
    check(known[i] == 0 || known[i] == value.shape()[i], "{}: set to {}, expected {} (0: any)", s.label,
          value.shape().str(), known.str());
  }
  s.options.shape = value.shape();
  s.make_replicas(&value);
}

void Parameter::settle_shape(const Shape& shape) {
  State& s = *state_;
  Shape& mine = s.options.shape;
  bool agrees = shape.rank() == mine.rank();
  for (int i = 0; agrees && i < mine.rank(); ++i) agrees = mine[i] == 0 || mine[i] == shape[i];
  check(agrees, "{}: the input asks for shape {}, expected {} (0: any)", s.label, shape.str(), mine.str());
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
  s.gradient.clear();
  if (s.shape_known()) s.make_replicas();
}

Tensor Parameter::gradient(Device device) const {
  Tensor sum = reduced_gradient(device).sum;
  // What a reducer returns is memory that other processes read, and that the next step overwrites.
  if (!sum.defined() || state_->gradient.reducer() == nullptr) return sum;
  Tensor copy = ops::empty(sum.shape(), sum.dtype(), device);
  ops::copy_(sum, copy, {.non_blocking = true});
  return copy;
}
ReducedGradient Parameter::reduced_gradient(Device device) const { return state_->gradient.sum(device); }
std::shared_ptr<void> Parameter::claim() const { return state_->claim; }
bool Parameter::optimized() const { return state_->claim.use_count() > 1; }
GradientTree& Parameter::gradient_tree() const { return state_->gradient; }
void Parameter::zero_grad() const { state_->gradient.clear(); }

}  // namespace lockstep
