#include "lockstep/nn/parameter.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/autograd/reducer.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/base/warning.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/module_link.h"
#include "lockstep/nn/parameter_change.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/living_runtimes.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/runtime/step_recorder.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {

namespace {

constexpr const char* kReadOnly =
    "gradient: it cannot be changed in place, because gradient() returns a copy, which the optimizer does not read: "
    "use "
    "set_gradient(), map_gradient(), or register_hook() of the parameter, or map_gradients() of the optimizer";

Tensor read_only_copy(const Array& x, Device device) {
  const Array copy = ops::empty(x.shape(), x.dtype(), device);
  ops::copy_(x, copy, {.non_blocking = true});
  copy.storage()->read_only = kReadOnly;
  return copy;
}

bool is_known(const Shape& shape) {
  return std::ranges::none_of(shape, [](std::int64_t d) { return d == 0; });
}

}  // namespace

struct Parameter::State : std::enable_shared_from_this<State> {
  explicit State(ParameterOptions o) : options(std::move(o)), shape_known(is_known(options.shape)) {
    origin = {.seeding = current_seeding(), .thread = Seeding::this_thread(), .trainable = options.trainable};
    if (origin.seeding) origin.number = origin.seeding->count(options.trainable ? 1 : 0);
  }

  ParameterOptions options;
  ParameterOrigin origin;
  std::weak_ptr<ModuleLink> owner;
  std::atomic<bool> shape_known;
  // The replicas exist. Two threads may both make the first pass of a model; the mutex lets one of them settle the
  // shape and make the values.
  std::atomic<bool> ready{false};
  std::mutex mutex;
  std::string name;
  std::string label = "a parameter";  // for errors; contains the name once there is one
  Initializer fallback;
  Initializer chosen;       // by reset(), instead of all others
  std::string chosen_text;  // names it
  RandomKey key;
  std::shared_ptr<DefaultModel> model;  // whose default values it has, or will have
  std::shared_ptr<DefaultModel> began;  // the same, kept when other values took their place; null after initialize()
  std::shared_ptr<Seeding> reset_by;    // of the latest reset()
  std::optional<DefaultModel::Start> reset_start;  // instead of the model's
  std::vector<Device> devices;
  std::vector<Array> replicas;  // one for each device, or empty
  Tensor tensor;                // made of them
  ParameterGradient gradient;
  std::shared_ptr<void> claim = std::make_shared<char>();
  Resource latest_step;

  // Gradients go into the parameter's state. A history may outlive its parameter.
  struct Leaf : GradMeta {
    std::weak_ptr<State> owner;
    void reached(BackwardPass& pass) override {
      const auto state = owner.lock();
      if (!state || !state->options.trainable) return;
      const auto& reducer = state->gradient.reducer();
      // Only this process would train it, so processes would differ from then on.
      check(reducer || !pass.at || !pass.at->exchange(),
            "backward: {} is not summed over processes: it is not part of the module whose DistributedDataParallel cut "
            "this batch: make it a part, or call the DistributedDataParallel with this rank's rows, for a loss of its "
            "own",
            state->label);
      // A gradient that no step will use may add up unseen, as in PyTorch.
      if (state->gradient.old() && !pass.accumulates && !pass.warned && state->claim.use_count() > 1) {
        pass.warned = true;
        warn("stale gradient",
             fmt::format("backward: the gradient of {} is added to that of an earlier backward(), of which another "
                         "optimizer's step has used the other gradients: expected zero_grad() of its own optimizer "
                         "before, backward({{.inputs = ...}}) for the loss of the other optimizer, or .share or .sync "
                         "where gradients are to add up",
                         state->label));
      }
      if (reducer && std::ranges::find(pass.observers, reducer) == pass.observers.end())
        pass.observers.push_back(reducer);
    }
    void accumulate(const BackwardPass& pass, Gradient g) override {
      const auto state = owner.lock();
      if (state && state->options.trainable) state->accumulate(pass, std::move(g));
    }
    bool takes_shards() const override { return true; }
    int once_shard(const BackwardPass& pass) const override {
      const auto state = owner.lock();
      return state ? state->once_shard(pass) : 0;
    }
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

  // A copy, because the sum may be another tensor's gradient as well, or the reducer's memory, which the next step
  // overwrites.
  Tensor own_gradient(Device device) {
    const Array sum = gradient.peek(device);
    return sum.defined() ? read_only_copy(sum, device) : Tensor();
  }

  // Returns a copy of `value` on `device` as this parameter's gradient. Throws if it does not fit the parameter.
  Array taken(std::string_view what, const Tensor& value, Device device) const {
    check(value.defined(), "{}: {}: the gradient is undefined, expected {} {}", what, label, options.shape,
          lockstep::name(options.dtype));
    check(value->kind != Kind::cut && value.shape() == options.shape && value.dtype() == options.dtype,
          "{}: {}: the gradient is {}, expected {} {} that is not cut over a batch", what, label, value, options.shape,
          lockstep::name(options.dtype));
    const Array copy = ops::empty(options.shape, options.dtype, device).with_shard(-1);
    assign(copy, value->array());
    return copy;
  }

  Array mapped(std::string_view what, const Array& sum, const GradientMap& f) const {
    const NoGradGuard no_grad;
    // The sum belongs to no shard, so neither do random numbers of f.
    const ops::ShardScope scope(-1);
    return taken(what, f(read_only_copy(sum, sum.device())), sum.device());
  }

  void check_settable(std::string_view what) {
    check(!gradient.has_scale(),
          "{}: {}: its optimizer has clipped or unscaled the gradients already, and will multiply this one, too: "
          "expected before clip_grad_norm() and unscale(), or Optimizer::map_gradients()",
          what, label);
    gradient.check_summed();
  }

  // Throws if a gradient of samples is not from a batch that DistributedDataParallel, which has the parameter, cut.
  void check_joined(const BackwardPass& pass) const {
    check(gradient.reducer() == nullptr || (pass.at && pass.at->joins_ranks()),
          "backward: {} is trained by DistributedDataParallel, but the loss is not made of a batch that it cut, in its "
          "call, batches(), or split(): other processes would not have this gradient",
          label);
  }

  void add(const BackwardPass& pass, Gradient::Addend a) {
    // In plain layout, like the parameter, because gradients and optimizers go through memory.
    if (a.counts) gradient.add(pass, a.shard, ops::to_layout(a.sum.value, Layout::plain));
  }

  // A contribution that counts once joins the lowest shard, wherever that is.
  int once_shard(const BackwardPass& pass) const {
    if (const auto& reducer = gradient.reducer()) return reducer->once_shard(pass);
    return pass.at ? pass.at->lowest_shard() : 0;
  }

  void accumulate(const BackwardPass& pass, Gradient g) {
    if (!g.addends.empty() || g.single.defined()) check_joined(pass);
    if (const int shard = once_shard(pass); shard >= 0 && g.has_once()) {
      const Array own = g.addend(shard);
      Device device = own.defined() ? own.device() : devices[0];
      if (const Slot* const here = pass.at ? pass.at->slot_of(shard) : nullptr) {
        if (!own.defined()) device = here->device;
      } else if (g.single.defined()) {
        device = g.single.value.device();
      }
      g.add_addend(shard, g.once(device).with_shard(shard), true);
    }
    for (Gradient::Addend& a : g.addends) add(pass, std::move(a));
  }

  // What new replicas hold: the value, or if there is none, initial values.
  struct Contents {
    Array value = {};
    Initializer initializer = {};
    RandomKey key = {};
    std::string_view label = {};
  };

  std::vector<Array> make_replicas(const Shape& shape, DType dtype, const std::vector<Device>& on,
                                   const Contents& contents) const {
    std::vector<Array> made;
    for (Device device : on) {
      Array replica = ops::empty(shape, dtype, device).with_shard(-1);
      if (contents.value.defined()) {
        assign(replica, contents.value);
      } else {
        // The host computes initial values for devices of all kinds, so the bits are the same.
        const Device maker = state_of(device, "initialize").host_visible_device();
        Array values = maker == device ? replica : ops::empty(shape, dtype, maker).with_shard(-1);
        set_initial_values(values, contents);
        if (maker != device) assign(replica, values);
      }
      made.push_back(std::move(replica));
    }
    return made;
  }

  void set_initial_values(const Array& values, const Contents& contents) const try {
    contents.initializer(values, contents.key);
    if (options.after_initializer) options.after_initializer(values);
  } catch (const TaskError&) {
    throw;
  } catch (const Error& error) {
    fail("initialize: {}: {}", contents.label, error.what());
  }

  // Sets the shape, which becomes known now, and makes the replicas. Call it with the lock.
  void settle(const Shape& shape, const Contents& contents) {
    if (!devices.empty()) replicas = make_replicas(shape, options.dtype, devices, contents);
    options.shape = shape;
    connect();
    shape_known.store(is_known(shape), std::memory_order_release);
    ready.store(!replicas.empty(), std::memory_order_release);
  }

  // Places the model and makes the values, as far as the shape is known.
  void make_ready() {
    const auto placed = [&] {
      const std::lock_guard lock(mutex);
      return !devices.empty();
    };
    if (!placed()) {
      if (const auto link = owner.lock()) link->module->place();
    }
    std::shared_ptr<DefaultModel> by_default;
    {
      const std::lock_guard lock(mutex);
      if (!replicas.empty() || devices.empty() || !is_known(options.shape)) return;
      settle(options.shape, initial_values());
      by_default = model;
    }
    if (by_default) by_default->warn_of_threads();
  }

  // Overwrites the values, if there are any. Call it with the lock.
  void make_anew(const Initializer& from) const {
    if (replicas.empty()) return;
    const auto values =
        make_replicas(options.shape, options.dtype, devices, {.initializer = from, .key = own_key(), .label = label});
    for (std::size_t i = 0; i < values.size(); ++i) assign(replicas[i], values[i]);
  }

  Contents initial_values() const {
    if (!model || chosen)
      return {.initializer = chosen ? chosen : initializer(fallback), .key = own_key(), .label = label};
    const Initializer& own = options.default_initializer ? options.default_initializer : options.initializer;
    check(own != nullptr,
          "{} has no initial values: call initialize() of its model, load its weights, or give "
          "ParameterOptions::default_initializer",
          label);
    return {.initializer = own, .key = own_key(), .label = label};
  }
  // Makes a reset() follow a manual_seed() that came after the model was made, as in PyTorch.
  void follow_seed() {
    const std::shared_ptr<Seeding> now = current_seeding();
    const bool by_initialize = !began && key != RandomKey();
    if (by_initialize || !now || now == reset_by) return;
    reset_by = now;
    reset_start = now == origin.seeding ? std::nullopt : std::optional(DefaultModel::Start{now->seed(), now->count(1)});
  }
  static RandomKey key_of(const std::string& name, const DefaultModel::Start& start) {
    // The first model's keys are those of initialize().
    return start.number == 0 ? random_key(start.seed, {hash_name(name)})
                             : random_key(start.seed, {hash_name(name), start.number});
  }
  RandomKey own_key() const {
    if (reset_start) return key_of(name, *reset_start);
    if (!model && key != RandomKey()) return key;
    const auto& from = model ? model : began;
    if (!from) return random_key(state_of(devices[0], "initialize").random()->seed(), {hash_name(name)});
    return key_of(name, from->start(origin, devices[0]));
  }
  // Other values took the place of initial ones.
  void forget_initial() {
    model = nullptr;
    chosen = nullptr;
    chosen_text.clear();
  }
  const Initializer& initializer(const Initializer& other) const {
    return options.initializer ? options.initializer : other;
  }

  // Makes the replicated tensor, which is a leaf of the graph if the parameter is trainable.
  void connect() {
    if (replicas.empty()) return;
    tensor = replicated_tensor(replicas);
    TensorImpl::of(tensor).label = label;
    if (!options.trainable) return;
    auto leaf = std::make_shared<Leaf>();
    leaf->owner = weak_from_this();
    TensorImpl::of(tensor).grad = std::move(leaf);
  }

  static void assign(const Array& replica, const Array& value) {
    // A value in host memory may be freed after this call, so the copy waits.
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

Parameter::Parameter(ParameterOptions options) : state_(std::make_shared<State>(std::move(options))) {}

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
bool Parameter::shape_known() const { return state_->shape_known.load(std::memory_order_acquire); }

bool Parameter::fits(const Shape& shape) const {
  const Shape& mine = state_->options.shape;
  bool agrees = shape.dim() == mine.dim();
  for (int i = 0; agrees && i < mine.dim(); ++i) agrees = mine[i] == 0 || mine[i] == shape[i];
  return agrees;
}

const std::vector<Device>& Parameter::devices() const { return state_->devices; }

Tensor Parameter::tensor() const {
  if (state_->options.trainable && !optimized()) {
    if (const auto owner = state_->owner.lock()) check_registered(*owner);
  }
  if (!state_->ready.load(std::memory_order_acquire)) {
    state_->make_ready();
    state_->check_replicas(devices());
  }
  return state_->tensor;
}

Tensor Parameter::data(Device device) const {
  State& s = *state_;
  if (!s.ready.load(std::memory_order_acquire)) s.make_ready();
  const auto it = std::ranges::find(s.devices, device);
  check(s.devices.empty() || it != s.devices.end(), "{} is not initialized on {}: it lives on {}", s.label,
        device.name(), str(s.devices));
  s.check_replicas({device});
  return s.replicas[static_cast<std::size_t>(it - s.devices.begin())];
}

Tensor Parameter::host_data() const {
  State& s = *state_;
  if (!s.ready.load(std::memory_order_acquire)) s.make_ready();
  check(initialized(), "{} is not initialized", state_->label);
  return data(devices()[0]).to(Device());
}

void Parameter::set_data(const Tensor& value) const {
  State& s = *state_;
  check(value.defined(), "{}: set to an undefined tensor", s.label);
  check(value.dtype() == s.options.dtype, "{}: set to {}, expected {}", s.label, value,
        lockstep::name(s.options.dtype));
  if (!initialized()) {
    if (const auto link = s.owner.lock()) link->module->place();
  }
  check(initialized(), "{} is not initialized: call initialize() before loading it", s.label);
  const std::lock_guard lock(s.mutex);
  Shape known = s.options.shape;
  if (!s.replicas.empty()) {
    check(value.shape() == known, "{}: set to {}, expected {}", s.label, value.shape(), known);
    for (const Array& replica : s.replicas) State::assign(replica, value->array());
    s.forget_initial();
    return;
  }
  check(value.shape().dim() == known.dim(), "{}: set to {}, expected {} (0: any)", s.label, value.shape(), known);
  for (int i = 0; i < known.dim(); ++i) {
    check(known[i] == 0 || known[i] == value.shape()[i], "{}: set to {}, expected {} (0: any)", s.label, value.shape(),
          known);
  }
  s.settle(value.shape(), {.value = value->array()});
  s.forget_initial();
}

void Parameter::settle_shape(const Shape& shape) const {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  check(fits(shape), "{}: the input needs shape {}, expected {} (0: any)", s.label, shape, s.options.shape);
  if (!s.replicas.empty()) return;
  // A default value waits for its first use.
  if (!s.devices.empty() && !s.model) return s.settle(shape, s.initial_values());
  s.options.shape = shape;
  s.shape_known.store(is_known(shape), std::memory_order_release);
}

void Parameter::place() const {
  if (initialized()) return;
  if (const auto link = state_->owner.lock()) link->module->place();
}
bool Parameter::made() const { return state_->ready.load(std::memory_order_acquire); }
void Parameter::set_owner(const std::shared_ptr<ModuleLink>& owner) const { state_->owner = owner; }
const ParameterOrigin& Parameter::origin() const { return state_->origin; }

bool Parameter::by_default() const {
  const std::lock_guard lock(state_->mutex);
  return state_->model != nullptr;
}

void Parameter::set_default_initializer(Initializer initializer) const {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  check(s.replicas.empty(), "{}: its initial values are made already, expected their initializer before its first use",
        s.label);
  s.options.default_initializer = std::move(initializer);
}

void Parameter::reset() const {
  State& s = *state_;
  const Initializer own = s.options.default_initializer ? s.options.default_initializer : s.options.initializer;
  check(own != nullptr, "{}: reset() without an initializer", s.label);
  const std::lock_guard lock(s.mutex);
  s.follow_seed();
  s.model = s.began;
  s.make_anew(own);
  s.chosen = nullptr;
  s.chosen_text.clear();
}

void Parameter::reset(Initializer initializer, std::string text) const {
  check(initializer != nullptr, "{}: reset() without an initializer", state_->label);
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.follow_seed();
  s.make_anew(initializer);
  s.chosen = std::move(initializer);
  if (s.reset_start) text += fmt::format(" of seed {}", s.reset_start->seed);
  s.chosen_text = std::move(text);
}

std::string Parameter::reset_text() const {
  const std::lock_guard lock(state_->mutex);
  return state_->chosen_text;
}

DefaultModel::DefaultModel(std::span<const ParameterOrigin> parameters, bool lone) : lone_(lone) {
  for (const ParameterOrigin& p : parameters) {
    auto found = std::ranges::find(groups_, p.seeding, &Group::seeding);
    if (found == groups_.end()) {
      groups_.push_back({.seeding = p.seeding, .first = p.number, .end = p.number});
      found = groups_.end() - 1;
    }
    // A buffer has the number of the next parameter.
    found->first = std::min(found->first, p.number);
    if (!p.trainable) continue;
    found->end = std::max(found->end, p.number + 1);
    ++found->count;
  }
}

DefaultModel::Group& DefaultModel::group_of(const ParameterOrigin& parameter) {
  const auto found = std::ranges::find(groups_, parameter.seeding, &Group::seeding);
  return found == groups_.end() ? groups_.at(0) : *found;
}

bool DefaultModel::has(const ParameterOrigin& parameter) const {
  const auto found = std::ranges::find(groups_, parameter.seeding, &Group::seeding);
  if (found == groups_.end()) return !parameter.trainable;
  return !parameter.trainable || !parameter.seeding || parameter.number < found->end;
}

DefaultModel::Start DefaultModel::start(const ParameterOrigin& parameter, Device device) {
  const std::lock_guard lock(mutex_);
  Group& group = group_of(parameter);
  if (group.start) return *group.start;
  const std::shared_ptr<Seeding> now = state_of(device, "initialize").random()->seeding();
  const auto& at = group.seeding;
  const bool by_runtime = now->by() == Seeding::By::runtime && at && at->by() != Seeding::By::thread;
  const bool own = at && (at->source() == now->source() || !by_runtime);
  Seeding& seeding = own ? *at : *now;
  constexpr std::uint64_t kLone = std::uint64_t{1} << 32U;  // more parameters than there are
  const std::uint64_t number = own ? group.first : seeding.count(group.count);
  const Start start{seeding.seed(), (lone_ ? kLone : 0) + number};
  group.start = start;
  shared_ = shared_ || (own && at->becomes_shared(parameter.thread));
  return start;
}

void DefaultModel::warn_of_threads() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(shared_, false)) return;
  }
  warn(
      "initial values of threads",
      "initial values: models that several threads make follow from one seed. Each thread counts its own, so models of "
      "two threads may begin with equal values, and in a pool of threads the values follow from the tasks that a "
      "thread "
      "had before: expected manual_seed() in the thread before it makes a model");
}

void Parameter::place_alone(const std::vector<Device>& devices) const {
  auto model = std::make_shared<DefaultModel>(std::span(&origin(), 1), true);
  ParameterChange::place(*this, "parameter", devices, std::move(model)).commit();
}

void Parameter::initialize(std::string name, const std::vector<Device>& devices, const Initializer& fallback,
                           std::uint64_t seed) const {
  ParameterChange::initialize(*this, std::move(name), devices, fallback, seed).commit();
}

ParameterChange::ParameterChange(const Parameter& parameter, const std::vector<Device>& devices)
    : state_(parameter.state_.get()), devices_(devices), dtype_(parameter.dtype()) {}

ParameterChange ParameterChange::initialize(const Parameter& parameter, std::string name,
                                            const std::vector<Device>& devices, const Initializer& fallback,
                                            std::uint64_t seed) {
  check(!devices.empty(), "initialize: no devices");
  const Parameter::State& s = *parameter.state_;
  if (parameter.initialized() && devices != s.devices) parameter.check_unclaimed("initialize");
  ParameterChange change(parameter, devices);
  change.name_ = std::move(name);
  change.fallback_ = fallback;
  change.key_ = random_key(seed, {hash_name(*change.name_)});
  const std::string label = "parameter " + *change.name_;
  if (parameter.shape_known()) {
    change.replicas_ = s.make_replicas(s.options.shape, s.options.dtype, devices,
                                       {.initializer = s.initializer(fallback), .key = change.key_, .label = label});
  }
  return change;
}

namespace {

// Throws for host memory, because layers compute only on devices.
void check_devices(const std::vector<Device>& devices) {
  check(!devices.empty(), "to: no devices");
  check(std::ranges::none_of(devices, &Device::is_host),
        "to: host memory, expected a device for the model, such as devices()[0] or device(\"cpu:0\")");
}

}  // namespace

ParameterChange ParameterChange::place(const Parameter& parameter, std::string name, const std::vector<Device>& devices,
                                       std::shared_ptr<DefaultModel> model) {
  check_devices(devices);
  ParameterChange change(parameter, devices);
  change.name_ = std::move(name);
  change.model_ = std::move(model);
  return change;
}

ParameterChange ParameterChange::move(const Parameter& parameter, const std::vector<Device>& devices) {
  check_devices(devices);
  ParameterChange change(parameter, devices);
  if (devices == parameter.devices()) {
    change.state_ = nullptr;
    return change;
  }
  parameter.check_movable();
  change.model_ = parameter.state_->model;
  change.take_values();
  change.take_gradient();
  return change;
}

ParameterChange ParameterChange::move(const Parameter& parameter, DType dtype) {
  check(dtype == DType::f32 || dtype == DType::f64, "to: {} parameters, expected f32 or f64", name(dtype));
  ParameterChange change(parameter, parameter.devices());
  if (!is_floating(change.dtype_) || (change.dtype_ == dtype && parameter.initialized())) {
    change.state_ = nullptr;
    return change;
  }
  parameter.check_movable();
  change.model_ = parameter.state_->model;
  change.dtype_ = dtype;
  change.take_values();
  change.take_gradient();
  return change;
}

ParameterChange ParameterChange::load(const Parameter& parameter, const Tensor& value) {
  ParameterChange change(parameter, parameter.devices());
  change.replicas_ = parameter.state_->make_replicas(value.shape(), change.dtype_, change.devices_,
                                                     {.value = value->array(), .label = parameter.state_->label});
  change.shape_ = value.shape();
  return change;
}

Parameter ParameterChange::successor(const Parameter& buffer, const Tensor& value) {
  Parameter::State& old = *buffer.state_;
  check(value.defined(), "{}: set to an undefined tensor", old.label);
  check(is_known(value.shape()), "{}: set to {}, expected at least one element (an extent of 0 means unknown)",
        old.label, value);
  const NoGradGuard no_grad;
  const std::lock_guard lock(old.mutex);
  for (const Array& replica : old.replicas) replica.storage()->check_writable();
  const Parameter made(old.options);
  Parameter::State& s = *made.state_;
  s.options.dtype = value.dtype();
  s.origin = old.origin;
  s.owner = old.owner;
  s.name = old.name;
  s.label = old.label;
  s.fallback = old.fallback;
  s.key = old.key;
  s.began = old.began;
  s.reset_by = old.reset_by;
  s.reset_start = old.reset_start;
  s.devices = old.devices;
  if (!s.devices.empty()) {
    s.settle(value.shape(), {.value = value->array()});
    StepRecorder::memory_replaced();
    return made;
  }
  s.options.shape = value.shape();
  s.shape_known.store(true, std::memory_order_release);
  if (!s.options.default_initializer) s.options.default_initializer = s.options.initializer;  // for reset()
  s.chosen = s.options.initializer = [copy = value.detach().to_host().clone()](const Array& to, RandomKey) {
    const NoGradGuard writing;
    Tensor(to).copy_from(copy);
  };
  return made;
}

void ParameterChange::take_values() {
  const Parameter::State& s = *state_;
  if (s.replicas.empty()) return;
  for (Device device : devices_) {
    const auto at = std::ranges::find(s.devices, device);
    replicas_.push_back(at != s.devices.end() && dtype_ == s.options.dtype
                            ? s.replicas[static_cast<std::size_t>(at - s.devices.begin())]
                            : s.make_replicas(s.options.shape, dtype_, {device}, {.value = s.replicas[0]})[0]);
  }
}

void ParameterChange::take_gradient() {
  ParameterGradient& gradient = state_->gradient;
  if (!gradient.present()) return;
  check(!gradient.waits(),
        "to: {} has a gradient of backward({{.sync = false}}) that is not summed yet: expected step(), zero_grad(), or "
        "a backward() with sync before",
        state_->label);
  const Array found = gradient.peek(state_->devices.at(0));
  if (!found.defined()) return;
  gradient_ = ops::empty(found.shape(), dtype_, devices_[0]).with_shard(-1);
  Parameter::State::assign(gradient_, found);
  passes_ = gradient.passes();
}

void ParameterChange::commit() {
  if (!state_) return;
  Parameter::State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (!model_ && (name_ || shape_)) s.forget_initial();  // initialize() or load()
  if (name_) {
    s.label = "parameter " + *name_;
    s.name = *std::move(name_);
    s.fallback = std::move(fallback_);
    s.key = key_;
    s.began = model_;
    if (!s.began) s.reset_start.reset();
  }
  s.model = std::move(model_);
  s.devices = std::move(devices_);
  s.options.dtype = dtype_;
  if (shape_) {
    s.options.shape = *shape_;
    s.shape_known.store(is_known(*shape_), std::memory_order_release);
  }
  s.replicas = std::move(replicas_);
  s.tensor = {};
  s.latest_step = {};
  s.gradient.clear();
  if (gradient_.defined()) s.gradient.set(std::move(gradient_), std::move(passes_));
  s.connect();
  s.ready.store(!s.replicas.empty(), std::memory_order_release);
}

std::optional<DefaultModel::Start> ParameterChange::default_start(const Parameter& parameter) {
  const std::shared_ptr<DefaultModel> model = default_model(parameter);
  if (!model) return {};
  {
    const std::lock_guard lock(parameter.state_->mutex);
    if (parameter.state_->reset_start) return parameter.state_->reset_start;
  }
  const DefaultModel::Start start = model->start(parameter.origin(), parameter.devices().at(0));
  model->warn_of_threads();
  return start;
}

std::shared_ptr<DefaultModel> ParameterChange::default_model(const Parameter& parameter) {
  const std::lock_guard lock(parameter.state_->mutex);
  return parameter.state_->model;
}

void ParameterChange::set_default_model(const Parameter& parameter, std::shared_ptr<DefaultModel> model) {
  const std::lock_guard lock(parameter.state_->mutex);
  parameter.state_->model = std::move(model);
}

SameRunGuard::SameRunGuard(const Module& module) {
  auto all = module.named_parameters();
  const auto buffers = module.named_buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  for (const auto& [name, p] : all) {
    p.place();
    models_.emplace_back(p, ParameterChange::default_model(p));
  }
}

SameRunGuard::~SameRunGuard() {
  for (auto& [p, model] : models_) ParameterChange::set_default_model(p, std::move(model));
}

void Parameter::check_movable() const {
  const State& s = *state_;
  check(initialized(), "to: {} is not initialized: initialize() makes it on the devices", s.label);
  check_unclaimed("to");
}

void Parameter::check_unclaimed(std::string_view what) const {
  const State& s = *state_;
  // Without values there are no gradients, so an optimizer has no state yet.
  check(s.replicas.empty() || !optimized(), "{}: an optimizer has {}, and keeps its state on {}: move the module first",
        what, s.label, str(s.devices));
  check(s.gradient.reducer() == nullptr, "{}: DistributedDataParallel has {} on {}: move the module first", what,
        s.label, str(s.devices));
}

void Parameter::to(const std::vector<Device>& devices) const { ParameterChange::move(*this, devices).commit(); }
void Parameter::to(DType dtype) const { ParameterChange::move(*this, dtype).commit(); }

Tensor Parameter::gradient(Device device) const { return state_->own_gradient(device); }
ReducedGradient Parameter::reduced_gradient(Device device) const { return state_->gradient.sum(device); }
std::shared_ptr<void> Parameter::claim() const { return state_->claim; }
bool Parameter::optimized() const { return state_->claim.use_count() > 1; }
ParameterGradient& Parameter::gradient_state() const { return state_->gradient; }
void Parameter::set_latest_step(Resource done) const { state_->latest_step = std::move(done); }
Resource Parameter::latest_step() const { return state_->latest_step; }
void Parameter::zero_grad() const { state_->gradient.clear(); }

void Parameter::set_gradient(const Tensor& value) const {
  State& s = *state_;
  check(s.options.trainable, "set_gradient: {} is frozen, expected a trainable one", s.label);
  s.make_ready();
  s.check_replicas(devices());
  s.check_settable("set_gradient");
  const bool near = value.defined() && std::ranges::find(s.devices, value.device()) != s.devices.end();
  s.gradient.set(s.taken("set_gradient", value, near ? value.device() : s.devices[0]));
}

void Parameter::map_gradient(const GradientMap& f) const {
  State& s = *state_;
  if (!s.gradient.present() && s.gradient.reducer() == nullptr) return;
  s.check_settable("map_gradient");
  const Array found = s.gradient.peek(s.devices.at(0));
  if (!found.defined()) return;
  Passes passes = s.gradient.passes();
  s.gradient.set(s.mapped("map_gradient", found, f), std::move(passes));
}

Array Parameter::mapped(std::string_view what, const Array& gradient, const GradientMap& f) const {
  return state_->mapped(what, gradient, f);
}

HookHandle Parameter::register_hook(GradientMap f) const {
  State& s = *state_;
  check(f != nullptr, "register_hook: {}: no function", s.label);
  check(s.options.trainable, "register_hook: {} is frozen, so it has no gradient: expected a trainable one", s.label);
  HookHandle handle;
  handle.parameter_ = state_.get();
  // The state owns the gradient and its hooks, so the hook may keep a raw pointer to the state.
  handle.number_ = s.gradient.add_hook(
      [state = &s, f = std::move(f)](const Array& sum) { return state->mapped("register_hook", sum, f); });
  return handle;
}

void HookHandle::remove() {
  if (const auto state = parameter_.lock()) state->gradient.remove_hook(number_);
  parameter_.reset();
}

}  // namespace lockstep
