#include "lockstep/nn/module_tree.h"

#include <algorithm>
#include <typeinfo>

#include "lockstep/autograd/forward_trace.h"
#include "lockstep/nn/module_link.h"
#include "lockstep/nn/output_observer.h"
#include "lockstep/nn/parameter_change.h"

namespace lockstep {
namespace {

auto named(auto& entries, std::string_view name) {
  return std::ranges::find_if(entries, [&](const auto& entry) { return entry.first == name; });
}

}  // namespace

void ModuleTree::set_kind(std::string kind) const { module_.link_->kind = std::move(kind); }
void ModuleTree::set_call(std::function<Tensor(const Tensor&)> call) const { module_.link_->call = std::move(call); }
void ModuleTree::set_mode(std::function<void(bool)> mode) const { module_.link_->mode = std::move(mode); }
void ModuleTree::set_own_state(std::string method) const { module_.link_->own_state = std::move(method); }
void ModuleTree::check_no_own_state(Module& module, std::string_view what) {
  for (const auto& [path, m] : module.named_modules()) {
    check(m->link_->own_state.empty(),
          "{}: {} has a part of the state that only its {}() knows, which files of weights and checkpoints lack: "
          "expected "
          "state_dict() and load_state_dict() of the module, and save() of that state",
          what, m->kind(), m->link_->own_state);
  }
}
bool ModuleTree::has_call(const Module& module) { return module.link_->call != nullptr; }

Parameter ModuleTree::own_handle(const Parameter& parameter) {
  Parameter own;
  own.state_ = Parameter::Reference(parameter.state_.get());
  return own;
}

Parameter ModuleTree::successor(const Parameter& buffer, const Tensor& value) {
  Parameter next = ParameterChange::successor(buffer, value);
  if (ForwardTrace* const trace = ForwardTrace::current()) trace->same(value, next.tensor());
  return next;
}

Module* ModuleTree::parent() const {
  const auto parent = module_.link_->parent.lock();
  return parent ? parent->module : nullptr;
}

// Returns whether no C++ class computes with the module's parts.
bool ModuleTree::is_open() const { return typeid(module_) == typeid(Module) || module_.takes_any_child(); }

ModuleTree::Entry ModuleTree::find(std::string_view name) const {
  if (named(module_.parameters_, name) != module_.parameters_.end()) return Entry::parameter;
  if (named(module_.buffers_, name) != module_.buffers_.end()) return Entry::buffer;
  const bool child = std::ranges::any_of(module_.children_, [&](const auto& c) { return c.name == name; });
  return child && !name.empty() ? Entry::child : Entry::none;
}

void ModuleTree::set_parameter(const std::string& name, const Parameter& parameter) const {
  check(parameter.defined(), "module: parameter '{}' is undefined", name);
  const auto found = named(module_.parameters_, name);
  if (found == module_.parameters_.end()) {
    module_.share(name, own_handle(parameter));
  } else if (found->second == parameter) {
    return;
  } else {
    check(is_open() || found->second.fits(parameter.shape()), "module: {} of {} becomes {}, expected {} (0: any)", name,
          module_.kind(), parameter.shape(), found->second.shape());
    found->second.state_.refer_to(parameter.state_.get());
  }
  if (!parameter.initialized()) parameter.set_owner(module_.link_);
}

void ModuleTree::set_buffer(const std::string& name, const Parameter& buffer) const {
  check(buffer.defined() && !buffer.trainable(), "module: buffer '{}' is trainable, expected one that is not", name);
  const auto found = named(module_.buffers_, name);
  if (found == module_.buffers_.end()) {
    module_.check_name(name);
    module_.buffers_.emplace_back(name, own_handle(buffer));
  } else {
    check(is_open() || found->second.fits(buffer.shape()), "module: {} of {} becomes {}, expected {} (0: any)", name,
          module_.kind(), buffer.shape(), found->second.shape());
    found->second.state_.refer_to(buffer.state_.get());
  }
  if (!buffer.initialized()) buffer.set_owner(module_.link_);
}

void ModuleTree::set_child(const std::string& name, const std::shared_ptr<Module>& child) const {
  check(child != nullptr, "module: child '{}' is null", name);
  const auto old = std::ranges::find_if(module_.children_, [&](const auto& c) { return c.name == name; });
  if (old == module_.children_.end()) {
    module_.add(name, child);
    return;
  }
  if (old->module == child.get()) return;
  check(is_open() || old->slot, "module: '{}' is {}, which {} keeps by its class, so {} cannot take its place", name,
        old->module->kind(), module_.kind(), child->kind());
  for (const auto& [path, m] : child->named_modules()) {
    check(m != &module_, "module: child '{}' contains the module, expected one that does not contain its parent", name);
  }
  if (old->module->link_->parent.lock() == module_.link_) old->module->link_->parent.reset();
  if (child->link_->parent.expired()) child->link_->parent = module_.link_;
  if (old->slot) *old->slot = child;
  old->module = child.get();
  old->owner = child;
}

void ModuleTree::pass_on(const std::shared_ptr<Module>& inner) const {
  module_.children_.push_back({"", inner.get(), inner});
  if (inner->link_->parent.expired()) inner->link_->parent = module_.link_;
}

void ModuleTree::erase(const std::string& name) const {
  const Entry kind = find(name);
  check(kind != Entry::none, "module: {} has no '{}'", module_.kind(), name);
  check(is_open(), "module: {} computes with its '{}', which stays", module_.kind(), name);
  std::erase_if(module_.parameters_, [&](const auto& p) { return p.first == name; });
  std::erase_if(module_.buffers_, [&](const auto& p) { return p.first == name; });
  std::erase_if(module_.children_, [&](const auto& c) {
    if (c.name != name) return false;
    if (c.module->link_->parent.lock() == module_.link_) c.module->link_->parent.reset();
    return true;
  });
}

std::vector<ModuleTree::Child> ModuleTree::children() const {
  std::vector<Child> all;
  for (const auto& c : module_.children_) all.push_back({c.name, c.module, c.owner});
  return all;
}

void ModuleTree::set_training(bool on) const {
  check(module_.eval_guards_ == 0,
        "module: {}() of {} while an EvalGuard holds it in evaluation mode: expected before or after the guard",
        on ? "train" : "eval", module_.kind());
  module_.training_ = on;
}

struct ModuleCall::Trace {
  explicit Trace(const Module* module) : traced(module) {}
  TracedModule traced;
};

ModuleCall::ModuleCall(Module& module) : module_(module), trace_(std::make_unique<Trace>(&module)) {}
ModuleCall::~ModuleCall() = default;
void ModuleCall::report(const Tensor& output) const { OutputObserver::report(module_, output); }

}  // namespace lockstep
