#include "lockstep/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <typeinfo>

#include "lockstep/autograd/checkpoint_scope.h"
#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/base/warning.h"
#include "lockstep/nn/layer_error.h"
#include "lockstep/nn/module_link.h"
#include "lockstep/nn/output_observer.h"
#include "lockstep/nn/parameter_change.h"
#include "lockstep/runtime/default_runtime.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/runtime.h"

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

// The module whose forward() this thread computes, and its link.
thread_local const Module* computing = nullptr;
thread_local const ModuleLink* computing_link = nullptr;
// A module in training mode that this thread computes, and the module in evaluation mode whose eval() did not reach it.
thread_local const Module *stray_training = nullptr, *evaluated = nullptr;

struct Root {
  const Module* module;
  std::uint64_t number;
};

Root root_of(const ModuleLink& link) {
  Root top{link.module, link.number};
  for (auto parent = link.parent.lock(); parent; parent = parent->parent.lock()) top = {parent->module, parent->number};
  return top;
}

// Returns the root above a layer that was made inside a module, as a member of its class or of a vector, but is not its
// child; else null. A layer that was made before the module belongs to somebody else.
const Module* stray_root(const ModuleLink& link, const ModuleLink& inside) {
  // Nearly always: the module's own parameter, or its child.
  if (&link == &inside || link.parent.lock().get() == &inside) return nullptr;
  const auto [root, number] = root_of(link);
  return number <= inside.number || root_of(inside).module == root ? nullptr : root;
}

// A stray layer would get gradients that no optimizer takes. A layer that is trained, initialized, or loaded elsewhere
// is intended.
void check_stray(const ModuleLink& link) {
  const Module* const root = stray_root(link, *computing_link);
  if (root == nullptr) return;
  const Module& module = *root;
  const std::vector<Parameter> mine = root_of(*computing_link).module->parameters();
  bool trains = false, known = false;
  for (const Parameter& p : module.parameters()) {
    trains = trains || p.trainable();
    known = known || std::ranges::find(mine, p) != mine.end();  // shared, or a child of both
    known = known || p.optimized() || (p.initialized() && !p.by_default());
    known = known || p.gradient_state().reducer() != nullptr;
  }
  check(!trains || known,
        "module: {0} is called in forward() of {1}, but is no child of {1}, whose parameters() lack its own: expected "
        "a reference that {1} makes, make<{0}>(\"name\", ...), or add(); for a model that is trained elsewhere, its "
        "optimizer before the first call, and for one that is not trained, freeze() or a NoGradGuard",
        module.kind(), computing->kind());
}

bool in_host_memory(const Tensor& x) { return x.defined() && x->kind == Kind::whole && x.device().is_host(); }

// Parameters and buffers, each once and under the last of its names.
Named each_once(Named all, const Named& more) {
  all.insert(all.end(), more.begin(), more.end());
  Named once;
  for (auto& [name, p] : all) {
    const auto found = std::ranges::find(once, p, &Named::value_type::second);
    if (found == once.end()) {
      once.emplace_back(name, p);
    } else {
      found->first = name;
    }
  }
  return once;
}

}  // namespace

Module::Module() : link_(std::make_shared<ModuleLink>()) {
  static std::atomic<std::uint64_t> modules = 0;
  link_->module = this;
  link_->number = modules++;
}
Module::~Module() = default;

Module::Module(Module&& other) : Module() {
  check(other.eval_guards_ == 0, "module: moved while an EvalGuard holds it, expected after the guard's end");
  for (const Child& child : other.children_) {
    if (child.owner || child.name.empty()) continue;
    fail(
        "module: child '{}' is a member, which cannot move: make the module where it stays, as in append<M>(...), or "
        "its "
        "children with make<M>()",
        child.name);
  }
  // Move the link, too, because children and parameters refer to it.
  link_.swap(other.link_);
  link_->module = this;
  other.link_->module = &other;
  parameters_ = std::move(other.parameters_);
  buffers_ = std::move(other.buffers_);
  children_ = std::move(other.children_);
  training_ = other.training_;
}

Tensor Module::operator()(const Tensor& x) try {
  const TracedModule traced(this);
  const auto& call = link_->call;
  const ForwardScope scope(*this);
  if (call) return OutputObserver::reported(*this, call(placed(x)));
  return OutputObserver::reported(*this, in_host_memory(x) ? forward(placed(x)) : forward(x));
} catch (const Error&) {
  rethrow_in(*this);
}

ForwardScope::ForwardScope(const Module& module) : outer_(computing), stray_(stray_training), inside_(evaluated) {
  const ModuleLink& link = *module.link_;
  if (outer_ && outer_ != &module) {
    if (grad_enabled()) check_stray(link);
    if (module.is_stray_in(*outer_)) stray_training = &module, evaluated = outer_;
  }
  // A class of another language finds its layers itself.
  computing = link.call ? nullptr : &module;
  computing_link = computing ? &link : nullptr;
}
ForwardScope::~ForwardScope() {
  computing = outer_;
  computing_link = outer_ ? outer_->link_.get() : nullptr;
  stray_training = stray_;
  evaluated = inside_;
}

// eval() of a model does not reach a stray layer, such as a Dropout that is a plain member.
bool Module::is_stray_in(const Module& outer) const {
  const auto trains = [](const Module& m) { return m.training_ && m.eval_guards_ == 0; };
  return trains(*this) && !trains(outer) && stray_root(*link_, *outer.link_) != nullptr;
}

// Layers ask for the mode where it matters.
bool Module::training() const {
  return CheckpointScope::mode(this, [this] { return in_training(); });
}

bool Module::in_training() const {
  if (!training_ || eval_guards_ > 0) return false;
  // The second case: the layer's forward() is called directly, without operator().
  const Module* const stray = stray_training != nullptr ? stray_training : this;
  const Module* const inside = stray_training != nullptr ? evaluated : computing;
  check(stray_training == nullptr && (inside == nullptr || inside == this || !is_stray_in(*inside)),
        "module: {0} computes in training mode in {1}, which is in evaluation mode, but {0} is no child of {1}, whose "
        "eval() does not reach it: expected a reference that {1} makes, make<{0}>(\"name\", ...), or add()",
        stray->kind(), inside == nullptr ? "" : inside->kind());
  return true;
}

// Also checks layers whose forward() is called directly, without operator().
void check_registered(const ModuleLink& owner) {
  if (computing != nullptr && grad_enabled()) check_stray(owner);
}

Tensor Module::placed(const Tensor& x) const {
  if (!in_host_memory(x)) return x;
  const Named all = each_once(named_parameters(), named_buffers());
  if (all.empty()) return x;
  const std::vector<Device> places = devices();
  if (grad_enabled()) {
    const bool joined =
        std::ranges::any_of(all, [](const auto& p) { return p.second.gradient_state().reducer() != nullptr; });
    // A wrapper, such as DataParallel, cuts its inputs itself.
    const auto has_wrapper = [](const auto& self, const Module& m) -> bool {
      return std::ranges::any_of(m.children_, [&](const Child& c) { return c.name.empty() || self(self, *c.module); });
    };
    if ((places.size() != 1 || joined) && has_wrapper(has_wrapper, *this)) return x;
    check(places.size() == 1,
          "module: {}'s input is {}, a whole tensor, and the model is on {}: cut batches with loader.on(net) or "
          "split_and_load(), or turn gradients off (NoGradGuard) to compute on the first device",
          kind(), x.describe(), lockstep::str(places));
    check(
        !joined,
        "module: {}'s input is {}, but DistributedDataParallel has the model: call that with this rank's rows, or with "
        "batches of loader.on(ddp)",
        kind(), x.describe());
  }
  return x.to(places[0]);
}

const Module& Module::root() const {
  const Module* top = this;
  while (const auto parent = top->link_->parent.lock()) top = parent->module;
  return *top;
}

// Takes a lock, because two threads may both make the first pass.
void Module::place() const {
  const Module& whole = root();
  const std::lock_guard lock(whole.link_->placing);
  const Named all = each_once(whole.named_parameters(), whole.named_buffers());
  std::vector<Device> where;
  Named unplaced;
  for (const auto& [name, p] : all) {
    if (!p.initialized()) {
      unplaced.emplace_back(name, p);
    } else if (where.empty()) {
      where = p.devices();
    }
  }
  if (unplaced.empty()) return;
  for (const auto& [name, p] : all) {
    check(!p.initialized() || p.devices() == where,
          "module: {} has no devices, and the others are on {} and on {}: expected to() or initialize() with its "
          "devices",
          unplaced[0].first, lockstep::str(where), lockstep::str(p.devices()));
  }
  if (where.empty()) where = lockstep::devices();
  const auto model = whole.default_model();
  for (const auto& [name, p] : unplaced) ParameterChange::place(p, name, where, model).commit();
}

// Returns the DefaultModel of the parameters that have no devices yet. Call it for the root, with the lock.
std::shared_ptr<DefaultModel> Module::default_model() const {
  std::vector<ParameterOrigin> unplaced;
  for (const auto& [name, p] : each_once(named_parameters(), named_buffers())) {
    if (!p.initialized()) unplaced.push_back(p.origin());
  }
  auto& model = link_->model;
  const bool all = model && std::ranges::all_of(unplaced, [&](const auto& origin) { return model->has(origin); });
  if (!all) model = std::make_shared<DefaultModel>(unplaced);
  return model;
}

std::vector<Device> Module::devices() const {
  place();
  const Named all = each_once(named_parameters(), named_buffers());
  for (const auto& [name, p] : all) {
    check(p.devices() == all[0].second.devices(), "module: {} is on {}, but {} is on {}: expected all on the same",
          all[0].first, lockstep::str(all[0].second.devices()), name, lockstep::str(p.devices()));
  }
  return all.empty() ? lockstep::devices() : all[0].second.devices();
}

void Module::expect_on(const std::vector<Device>& where, std::string_view what) {
  const Named all = each_once(named_parameters(), named_buffers());
  if (std::ranges::none_of(all, [](const auto& p) { return p.second.initialized(); })) return to(where);
  const std::vector<Device> mine = devices();
  for (Device device : where) {
    check(std::ranges::find(mine, device) != mine.end(), "{}: the model is on {}, expected {}", what,
          lockstep::str(mine), lockstep::str(where));
  }
}

std::string Module::path_of(const Parameter& parameter) const {
  const Module& whole = root();
  const Named all = each_once(whole.named_parameters(), whole.named_buffers());
  const auto found = std::ranges::find(all, parameter, &Named::value_type::second);
  return found == all.end() ? "" : found->first;
}

Tensor Module::forward(const Tensor& x) {
  if (link_->call) return link_->call(x);
  fail("module: {} has no forward() of one tensor: call its own forward()", kind());
}

template <typename Visit>
void Module::visit(const std::string& prefix, const Visit& each) const {
  each(prefix, *this);
  for (const Child& child : children_)
    child.module->visit(child.name.empty() ? prefix : prefix + child.name + ".", each);
}

void Module::initialize(const Initializer& initializer, InitializeOptions options) {
  for (const auto& [name, p] : each_once(named_parameters(), named_buffers())) {
    if (p.initialized()) return initialize_on(devices(), initializer, options);
  }
  initialize_on(lockstep::devices(), initializer, options);
}

void Module::initialize_on(const std::vector<Device>& devices, const Initializer& initializer,
                           InitializeOptions options) {
  const Named all = each_once(named_parameters(), named_buffers());
  for (const auto& [name, parameter] : all) {
    // A parameter may have devices, for example from to(), but no values yet.
    const bool has_values = parameter.initialized() && (parameter.made() || !parameter.by_default());
    check(
        options.force_reinit || !has_values, "initialize: parameter {} {}; set force_reinit to initialize it again",
        name,
        parameter.by_default() ? "has its default values already, which its first use made" : "is initialized already");
  }
  std::uint64_t seed = options.seed.value_or(0);
  // parameter.initialize() refuses host memory and an empty list.
  if (!options.seed && !devices.empty() && !devices[0].is_host()) {
    seed = state_of(devices[0], "initialize").random()->seed();
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

void Module::to(const std::vector<Device>& devices) {
  // A move reads gradients. Run their hooks before the lock is taken, because hooks may need the lock.
  for (const Parameter& p : parameters()) {
    if (p.gradient_state().present() && !p.gradient_state().waits()) p.gradient();
  }
  const Module& whole = root();
  const std::lock_guard lock(whole.link_->placing);
  const auto model = whole.default_model();
  std::vector<ParameterChange> changes;
  for (const auto& [name, p] : each_once(named_parameters(), named_buffers())) {
    changes.push_back(p.initialized() ? ParameterChange::move(p, devices)
                                      : ParameterChange::place(p, path_of(p), devices, model));
  }
  for (ParameterChange& change : changes) change.commit();
}

void Module::to(std::string_view name) { to(device(name)); }

void Module::to(DType dtype) {
  place();
  std::vector<ParameterChange> changes;
  for (const auto& [name, p] : each_once(named_parameters(), named_buffers()))
    changes.push_back(ParameterChange::move(p, dtype));
  for (ParameterChange& change : changes) change.commit();
}

// Returns the module above the last part of the path.
Module& Module::parent_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? *this : child_at(path.substr(0, dot));
}

Module& Module::child_at(std::string_view path) {
  std::string names;
  for (const auto& [name, m] : named_modules()) {
    if (name == path && m != this) return *m;
    if (!name.empty()) names += (names.empty() ? "" : ", ") + name;
  }
  fail("module: no module '{}', expected one of: {}", path, names.empty() ? "(none)" : names);
}

void Module::fail_class(std::string_view path, const Module& found) {
  fail("module: '{}' is {}, expected the class requested from module()", path, found.str());
}

const Module::Child& Module::replaceable(std::string_view path) {
  Module& old = child_at(path);
  check(old.eval_guards_ == 0, "replace: an EvalGuard holds '{}', expected after the guard's end", path);
  for (const auto& [name, p] : old.named_parameters()) {
    check(!p.optimized(), "replace: an optimizer has '{}.{}': replace the module before you make the optimizer", path,
          name);
    check(p.gradient_state().reducer() == nullptr,
          "replace: DistributedDataParallel has '{}.{}': replace the module before you wrap the model", path, name);
  }
  Module& parent = parent_of(path);
  for (const Child& child : parent.children_) {
    if (child.module == &old) return child;
  }
  fail("replace: '{}' belongs to a wrapped model, expected replace() of that model", path);
}

void Module::put(std::string_view path, std::shared_ptr<Module> with) {
  Module& parent = parent_of(path);
  const Child& old = replaceable(path);
  Child& child = parent.children_[static_cast<std::size_t>(&old - parent.children_.data())];
  check(child.slot || parent.takes_any_child(),
        "replace: '{}' is {}, which {} keeps by its class, so {} cannot take its place: expected a {}, or a child that "
        "{} holds in a ModuleSlot",
        path, child.module->str(), parent.kind(), with->str(), child.module->kind(), parent.kind());
  child.module->link_->parent.reset();
  with->link_->parent = parent.link_;
  child.module = with.get();
  if (child.slot) *child.slot = with;
  child.owner = std::move(with);
}

Tensor ModuleSlot::operator()(const Tensor& x) const { return (**module_)(x); }
Module& ModuleSlot::operator*() const { return **module_; }
Module* ModuleSlot::operator->() const { return module_->get(); }

std::shared_ptr<ModuleLink> Module::parent_link(const Module& module) { return module.link_->parent.lock(); }
void Module::adopt(Module& module, const std::shared_ptr<ModuleLink>& parent) { module.link_->parent = parent; }

void Module::apply(const std::function<void(Module&)>& f) {
  for (const Child& child : children_) child.module->apply(f);
  f(*this);
}

// Returns "ModuleList" for lockstep::ModuleList<M>.
std::string Module::kind() const {
  if (!link_->kind.empty()) return link_->kind;
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

void Module::zero_grad() const {
  for (const Parameter& p : parameters()) p.zero_grad();
}

void Module::set_trainable(bool trainable) const {
  for (const Parameter& p : parameters()) p.set_trainable(trainable);
}

void Module::train(bool on) {
  for (const auto& [name, m] : named_modules()) {
    check(m->eval_guards_ == 0 && m->link_->mode_guards == 0,
          "module: {}() of {} while an EvalGuard holds it in evaluation mode: expected before or after the guard",
          on ? "train" : "eval", m->kind());
  }
  set_mode(on);
}

// A class with a train() of its own decides for the modules below it, too.
void Module::set_mode(bool on) {
  if (link_->mode) return link_->mode(on);
  training_ = on;
  for (const Child& child : children_) child.module->set_mode(on);
}

// Counted, because guards of several threads need not end in the reverse order.
EvalGuard::EvalGuard(Module& module) {
  try {
    hold(module);
  } catch (...) {
    release();
    throw;
  }
}

void EvalGuard::hold(Module& module) {
  ModuleLink& link = *module.link_;
  if (!link.mode) {
    ++module.eval_guards_;
    held_.push_back(&module);
    for (const Module::Child& child : module.children_) hold(*child.module);
    return;
  }
  switched_.push_back(&module);
  if (link.mode_guards++ > 0) return;
  link.modes.clear();
  for (const auto& [name, m] : module.named_modules()) link.modes.emplace_back(m, m->training_);
  link.mode(false);
}

EvalGuard::~EvalGuard() { release(); }

void EvalGuard::release() noexcept {
  for (Module* m : held_) --m->eval_guards_;
  for (Module* m : switched_) {
    ModuleLink& link = *m->link_;
    if (--link.mode_guards > 0) continue;
    try {
      link.mode(link.modes.at(0).second);
    } catch (const std::exception& error) {
      warn("train after evaluation",
           fmt::format("module: train() of {} at the end of an evaluation: {}", m->kind(), error.what()));
    }
    for (const auto& [module, on] : link.modes) module->training_ = on;
  }
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
  const Parameter& made = parameters_.emplace_back(std::move(name), Parameter(std::move(options))).second;
  made.set_owner(link_);
  return made;
}

Parameter Module::share(std::string name, const Parameter& other) {
  check_name(name);
  check(other.defined(), "module: '{}' shares no parameter, expected a parameter of another module", name);
  return parameters_.emplace_back(std::move(name), other).second;
}

Parameter Module::add_buffer(std::string name, ParameterOptions options) {
  check_name(name);
  options.trainable = false;
  const Parameter& made = buffers_.emplace_back(std::move(name), Parameter(std::move(options))).second;
  made.set_owner(link_);
  return made;
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
  if (child.link_->parent.expired()) child.link_->parent = link_;
}

ModuleSlot Module::add_slot(std::string name, std::shared_ptr<Module> child) {
  auto place = std::make_shared<std::shared_ptr<Module>>(child);
  add(std::move(name), std::move(child));
  children_.back().slot = place;
  return ModuleSlot(std::move(place));
}

void Module::add(std::string name, std::shared_ptr<Module> child) {
  check(child != nullptr, "module: child '{}' is null", name);
  add(std::move(name), *child);
  children_.back().owner = std::move(child);
}

}  // namespace lockstep
