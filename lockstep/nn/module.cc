#include "lockstep/nn/module.h"

#include <algorithm>

#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

using Actions = std::vector<std::function<void()>>;
// Of the outermost call on this thread; null outside of any.
thread_local Actions* batch_actions = nullptr;
thread_local std::shared_ptr<ShardExchange> batch_exchange;
thread_local std::uint64_t batches_begun = 0;

class BatchScope {
 public:
  explicit BatchScope(const std::shared_ptr<ShardExchange>& exchange = nullptr) {
    if (!batch_actions) {
      batch_actions = &actions_;
      batch_exchange = exchange;
      ++batches_begun;
      outermost_ = true;
    }
  }
  ~BatchScope() {
    if (!outermost_) return;
    batch_actions = nullptr;
    batch_exchange = nullptr;
  }
  // Not in the destructor: actions may throw, and are not wanted when the forward pass did.
  void finish() {
    if (!outermost_) return;
    for (auto& action : actions_) action();
    actions_.clear();
  }

 private:
  Actions actions_;
  bool outermost_ = false;
};

}  // namespace

Tensor Module::operator()(const Tensor& x) {
  BatchScope scope;
  Tensor y = mixes_shards() ? forward_shards({&x, 1})[0] : forward(x);
  scope.finish();
  return y;
}

Batch Module::operator()(const Batch& batch) {
  BatchScope scope(batch.exchange);
  std::vector<Tensor> outputs;
  if (mixes_shards()) {
    outputs = forward_shards(batch.shards);
  } else {
    for (const Tensor& x : batch) {
      ops::ShardScope shard(x.shard());
      outputs.push_back(forward(x));
    }
  }
  scope.finish();
  return batch.with(std::move(outputs));
}

std::vector<Tensor> Module::forward_shards(std::span<const Tensor> xs) {
  check(!mixes_shards(), "module: a module inside computes one shard from several (synchronized batch norm), so this "
                         "one has to define forward_shards");
  std::vector<Tensor> ys;
  for (const Tensor& x : xs) {
    ops::ShardScope shard(x.shard());  // what forward() computes from parameters alone belongs to this shard
    ys.push_back(forward(x));
  }
  return ys;
}

bool Module::mixes_shards() const {
  return std::ranges::any_of(children_, [](const Child& c) { return c.module->mixes_shards(); });
}

void Module::after_batch(std::function<void()> action) {
  if (batch_actions) {
    batch_actions->push_back(std::move(action));
  } else {
    action();
  }
}

std::shared_ptr<ShardExchange> Module::shard_exchange() { return batch_exchange; }

std::uint64_t Module::batch_number() { return batch_actions ? batches_begun : 0; }

template <typename Visit>
void Module::visit(const std::string& prefix, const Visit& each) const {
  each(prefix, *this);
  for (const Child& child : children_) child.module->visit(prefix + child.name + ".", each);
}

void Module::initialize(const Initializer& initializer, const std::vector<Device>& devices,
                        InitializeOptions options) {
  auto all = named_parameters();
  auto buffers = named_buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  for (auto& [name, parameter] : all) {
    check(options.force_reinit || !parameter.initialized(),
          "initialize: parameter {} is initialized already; force_reinit starts it anew", name);
  }
  for (auto& [name, parameter] : all) parameter.initialize(name, devices, initializer, options.seed);
}

std::vector<std::pair<std::string, Parameter>> Module::named_parameters() const {
  std::vector<std::pair<std::string, Parameter>> all;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& [name, p] : m.parameters_) all.emplace_back(prefix + name, p);
  });
  return all;
}

std::vector<std::pair<std::string, Parameter>> Module::named_buffers() const {
  std::vector<std::pair<std::string, Parameter>> all;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& [name, p] : m.buffers_) all.emplace_back(prefix + name, p);
  });
  return all;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all;
  visit("", [&](const std::string& prefix, const Module& m) {
    all.emplace_back(prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1), const_cast<Module*>(&m));
  });
  return all;
}

std::vector<Parameter> Module::parameters() const {
  std::vector<Parameter> all;
  for (auto& [name, p] : named_parameters()) {
    if (std::ranges::find(all, p) == all.end()) all.push_back(p);
  }
  return all;
}

std::int64_t Module::parameter_count() const {
  std::int64_t n = 0;
  for (const Parameter& p : parameters()) n += p.shape().numel();
  return n;
}

void Module::set_trainable(bool trainable) const {
  for (const Parameter& p : parameters()) p.set_trainable(trainable);
}

void Module::train(bool on) {
  training_ = on;
  for (const Child& child : children_) child.module->train(on);
}

EvalGuard::EvalGuard(Module& module) {
  for (const auto& [name, m] : module.named_modules()) modes_.emplace_back(m, m->training_);
  module.eval();
}

EvalGuard::~EvalGuard() {
  for (const auto& [m, training] : modes_) m->training_ = training;
}

void Module::check_name(const std::string& name) const {
  auto same = [&](const auto& item) { return item.first == name; };
  bool taken = std::ranges::any_of(parameters_, same) || std::ranges::any_of(buffers_, same) ||
               std::ranges::any_of(children_, [&](const Child& c) { return c.name == name; });
  check(!name.empty() && name.find('.') == std::string::npos && !taken,
        "module: name '{}' is empty, has a dot or is taken", name);
}

Parameter Module::add_parameter(std::string name, ParameterOptions options) {
  check_name(name);
  return parameters_.emplace_back(std::move(name), Parameter(std::move(options))).second;
}

Parameter Module::add_buffer(std::string name, ParameterOptions options) {
  check_name(name);
  options.trainable = false;
  return buffers_.emplace_back(std::move(name), Parameter(std::move(options))).second;
}

void Module::add(std::string name, Module& child) {
  check_name(name);
  children_.push_back({std::move(name), &child, nullptr});
}

void Module::add(std::string name, std::shared_ptr<Module> child) {
  check_name(name);
  check(child != nullptr, "module: child '{}' is null", name);
  children_.push_back({std::move(name), child.get(), child});
}

}  // namespace lockstep
