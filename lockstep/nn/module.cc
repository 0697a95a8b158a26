#include "lockstep/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <typeinfo>

#include "lockstep/nn/output_observer.h"
#include "lockstep/nn/parameter_change.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {
namespace {

std::string indented(const std::string& text) {
  std::string result;
  for (char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

using Named = std::vector<std::pair<std::string, Parameter>>;

Parameter find(const Named& all, std::string_view kind, std::string_view name) {
  const auto found = std::ranges::find(all, name, &Named::value_type::first);
  if (found != all.end()) return found->second;
  std::string names;
  for (const auto& [known, parameter] : all) names += (names.empty() ? "" : ", ") + known;
  fail("module: no {} '{}', expected one of: {}", kind, name, names.empty() ? "(none)" : names);
}

}  // namespace

Module::Module(Module&& other)
    : parameters_(std::move(other.parameters_)), buffers_(std::move(other.buffers_)),
      children_(std::move(other.children_)), training_(other.training_) {
  check(other.eval_guards_ == 0, "module: moved while an EvalGuard holds it, expected after the guard's end");
  for (const Child& child : children_) {
    if (child.owner || child.name.empty()) continue;
    fail(
        "module: child '{}' is a member, which cannot move: make the module where it stays, as in append<M>(...), or "
        "its "
        "children with make<M>()",
        child.name);
  }
}

Tensor Module::operator()(const Tensor& x) {
  Tensor y = forward(x);
  OutputObserver::report(*this, y);
  return y;
}

Tensor Module::forward(const Tensor& /*x*/) {
  fail("module: {} has no forward() of one tensor: call its own forward()", kind());
}

template <typename Visit>
void Module::visit(const std::string& prefix, const Visit& each) const {
  each(prefix, *this);
  for (const Child& child : children_)
    child.module->visit(child.name.empty() ? prefix : prefix + child.name + ".", each);
}

void Module::initialize(const Initializer& initializer, const std::vector<Device>& devices, InitializeOptions options) {
  auto all = named_parameters();
  auto buffers = named_buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  for (auto& [name, parameter] : all) {
    check(options.force_reinit || !parameter.initialized(),
          "initialize: parameter {} is initialized already; set force_reinit to initialize it again", name);
  }
  std::uint64_t seed = options.seed.value_or(0);
  // parameter.initialize() refuses host memory and an empty list.
  if (!options.seed && !devices.empty() && !devices[0].is_host()) {
    seed = state_of(devices[0], "initialize").random->seed();
  }
  std::vector<ParameterChange> changes;
  for (auto& [name, parameter] : all)
    changes.push_back(ParameterChange::initialize(parameter, name, devices, initializer, seed));
  for (ParameterChange& change : changes) change.commit();
}

std::vector<std::pair<std::string, Parameter>> Module::named_parameters(bool recurse) const {
  if (!recurse) return parameters_;
  std::vector<std::pair<std::string, Parameter>> all;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& [name, p] : m.parameters_) all.emplace_back(prefix + name, p);
  });
  return all;
}

std::vector<std::pair<std::string, Parameter>> Module::named_buffers(bool recurse) const {
  if (!recurse) return buffers_;
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

Parameter Module::parameter(std::string_view name) const { return find(named_parameters(), "parameter", name); }
Parameter Module::buffer(std::string_view name) const { return find(named_buffers(), "buffer", name); }

template <typename To>
void Module::move(const To& to) {
  std::vector<Parameter> all = parameters();
  for (auto& [name, buffer] : named_buffers()) {
    if (std::ranges::find(all, buffer) == all.end()) all.push_back(buffer);
  }
  std::vector<ParameterChange> changes;
  for (const Parameter& p : all) changes.push_back(ParameterChange::move(p, to));
  for (ParameterChange& change : changes) change.commit();
}

void Module::to(const std::vector<Device>& devices) { move(devices); }
void Module::to(DType dtype) { move(dtype); }

void Module::apply(const std::function<void(Module&)>& f) {
  for (const Child& child : children_) child.module->apply(f);
  f(*this);
}

// "ModuleList" for lockstep::ModuleList<M>.
std::string Module::kind() const {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? demangled.get() : typeid(*this).name();
  if (name.ends_with('>')) {
    int depth = 0;
    std::size_t i = name.size();
    do {
      --i;
      depth += name[i] == '>' ? 1 : name[i] == '<' ? -1 : 0;
    } while (depth > 0 && i > 0);
    name.resize(i);
  }
  const std::size_t colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

std::string Module::str() const {
  // As PyTorch names a layer whose first input decides a shape: LazyLinear(in_features=0, ...).
  const bool lazy = std::ranges::any_of(parameters_, [](const auto& p) { return !p.second.shape_known(); });
  std::string text = (lazy ? "Lazy" : "") + kind() + "(" + extra_repr();
  for (const Child& child : children_) {
    text += fmt::format("\n  ({}): {}", child.name.empty() ? "module" : child.name, indented(child.module->str()));
  }
  return text + (children_.empty() ? ")" : "\n)");
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << module.str(); }

void Module::set_trainable(bool trainable) const {
  for (const Parameter& p : parameters()) p.set_trainable(trainable);
}

void Module::train(bool on) {
  const auto all = named_modules();
  for (const auto& [name, m] : all) {
    check(m->eval_guards_ == 0,
          "module: {}() of {} while an EvalGuard holds it in evaluation mode: expected before or after the guard",
          on ? "train" : "eval", m->kind());
  }
  for (const auto& [name, m] : all) m->training_ = on;
}

// Counted, because guards of several threads need not end in the reverse order.
EvalGuard::EvalGuard(Module& module) {
  for (const auto& [name, m] : module.named_modules()) held_.push_back(m);
  for (Module* m : held_) ++m->eval_guards_;
}

EvalGuard::~EvalGuard() {
  for (Module* m : held_) --m->eval_guards_;
}

void Module::check_name(const std::string& name) const {
  auto same = [&](const auto& item) { return item.first == name; };
  bool taken = std::ranges::any_of(parameters_, same) || std::ranges::any_of(buffers_, same) ||
               std::ranges::any_of(children_, [&](const Child& c) { return c.name == name; });
  check(!name.empty() && name.find('.') == std::string::npos, "module: name '{}', expected a name without dots", name);
  check(!taken, "module: name '{}' is taken, expected another one for each parameter, buffer, and child", name);
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
  // In a module that contains itself, paths such as "a.a.a.weight" would have no end.
  child.visit("", [&](const std::string& path, const Module& m) {
    if (&m != this) return;
    fail("module: child '{}' {}, expected a module that does not contain its parent", name,
         path.empty() ? "is the module itself"
                      : fmt::format("contains the module, as '{}'", path.substr(0, path.size() - 1)));
  });
  children_.push_back({std::move(name), &child, nullptr});
}

void Module::add(std::string name, std::shared_ptr<Module> child) {
  check(child != nullptr, "module: child '{}' is null", name);
  add(std::move(name), *child);
  children_.back().owner = std::move(child);
}

}  // namespace lockstep
