#include "lockstep/nn/module.h"

#include <algorithm>

namespace lockstep {

Tensor Module::forward(const Tensor& x) {
  fail("module: it does not compute one tensor from one ({}): call its own forward()", x.describe());
}

template <typename Visit>
void Module::visit(const std::string& prefix, const Visit& each) const {
  each(prefix, *this);
  for (const Child& child : children_) child.module->visit(child.name.empty() ? prefix : prefix + child.name + ".", each);
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
