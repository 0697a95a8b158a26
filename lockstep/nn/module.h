// Modules, which models are made of. Parameters have the same names as in PyTorch, so each library can load the other's
// weights.
//
//   struct Net : Module {
//     Linear& hidden = make<Linear>("hidden", 784, 256);
//     Linear& out = make<Linear>("out", 256, 10);
//     Tensor forward(const Tensor& x) override { return out(relu(hidden(x))); }
//   };
//   Net net;         // its first use places it and gives it PyTorch's initial values
//   Tensor y = net(x);
//
//   net.to(devices(2));             // optional, before the first use
//   net.initialize(Normal{0.01});   // optional, too
#pragma once

#include <atomic>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lockstep/autograd/function.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/nn/module_slot.h"
#include "lockstep/nn/parameter.h"

namespace LOCKSTEP_API lockstep {

struct InitializeOptions {
  // Not set: RuntimeOptions::seed of the devices' Runtime.
  std::optional<std::uint64_t> seed = {};
  // Initializes parameters again. If false, a parameter that is already initialized is an error.
  bool force_reinit = false;
};

struct ModuleLink;  // nn/module_link.h

class Module {
 public:
  virtual ~Module();
  Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // forward(placed(x)).
  Tensor operator()(const Tensor& x);
  // Computes one tensor from one, for any number of devices and processes. A module with several inputs or outputs
  // derives from ModuleOf (nn/module_of.h), and declares its own forward().
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"  // g++ 13 would warn of each such module
  virtual Tensor forward(const Tensor& x);
#pragma GCC diagnostic pop

  // Returns the model's devices. Places the model if nobody did: with the parameters that have devices, otherwise on
  // the program's devices(). The first use of a parameter calls it. Parameters that it places begin with the default
  // values of their layers, which are PyTorch's. These follow from the seed when the model was made, the names, and the
  // number of parameters that the thread had made since manual_seed(), so that two models of one class differ, and each
  // is the same in every run. A Runtime that is made later with RuntimeOptions::seed replaces that seed. Throws if the
  // parameters are on different devices. A module of a model places the whole model.
  std::vector<Device> devices() const;
  // Places the module on these devices if nobody did. Throws if it is not on all of them; `what` begins the error.
  void expect_on(const std::vector<Device>& devices, std::string_view what);
  // Returns a tensor that the module can take: x, or a copy on the module's first device if x is a whole tensor in host
  // memory and the module has parameters. While gradients are recorded, such a tensor is an error if the module is on
  // several devices, because the batch must be cut, or if DistributedDataParallel has the module.
  virtual Tensor placed(const Tensor& x) const;

  // Gives all parameters and buffers their initial values, the same on all devices. Parameters of unknown shape are
  // initialized in the first forward pass. An error names the parameter and changes nothing. Without devices: where the
  // model is, otherwise on the program's devices().
  void initialize(const Initializer& initializer, InitializeOptions options = {});
  // A template, so that braces are a list of devices or options.
  template <std::same_as<std::vector<Device>> Devices>
  void initialize(const Initializer& initializer, const Devices& devices) {
    initialize_on(devices, initializer, {});
  }
  void initialize(const Initializer& initializer, const std::vector<Device>& devices, InitializeOptions options) {
    initialize_on(devices, initializer, options);
  }
  void initialize(const Initializer& initializer, std::initializer_list<Device> devices,
                  InitializeOptions options = {}) {
    initialize_on(devices, initializer, options);
  }
  // Moves all parameters and buffers, with values and gradients, to these devices. Does nothing for those that are
  // there. Call it before an optimizer's first step: its state lies on the parameters' devices, so a later move is an
  // error, which changes nothing.
  void to(const std::vector<Device>& devices);
  void to(Device device) { to(std::vector{device}); }
  // A device of the default Runtime, such as "cpu:0".
  void to(std::string_view device);
  // Casts all floating parameters, their gradients, and buffers to f32 or f64, under the same conditions. f64 is for
  // checks, such as gradients against central differences.
  void to(DType dtype);

  // These list the entries in the order of registration, a module's own before its children's. Names are paths:
  // "fc.1.weight". With recurse = false, they list only the module's own.
  std::vector<std::pair<std::string, Parameter>> named_parameters(bool recurse = true) const;
  std::vector<std::pair<std::string, Parameter>> named_buffers(bool recurse = true) const;
  std::vector<std::pair<std::string, Module*>> named_modules();
  // Lists each parameter once, even if modules share it.
  std::vector<Parameter> parameters() const;
  std::int64_t parameter_count() const;
  // Finds a parameter or buffer by its path. An unknown name is an Error that lists the existing names.
  Parameter parameter(std::string_view name) const;
  Parameter buffer(std::string_view name) const;
  // net["0.weight"] is net.parameter("0.weight").
  Parameter operator[](std::string_view name) const { return parameter(name); }
  // Finds a module below this one by its path: net.module("layer1.0"). Throws as parameter() does, and if M is given
  // and the module has another class.
  template <typename M = Module>
  M& module(std::string_view path) {
    Module& found = child_at(path);
    auto* const as = dynamic_cast<M*>(&found);
    if (!as) fail_class(path, found);
    return *as;
  }
  // Replaces a module below this one, such as the last layer before fine-tuning, and returns the new one:
  //
  //   net.replace("fc", Linear(512, 5));
  //
  // A module of the same class takes the old one's place in memory, so references to it stay valid. A module of another
  // class may replace only a child of a Sequential or of a ModuleSlot (nn/module_slot.h), because other parents name
  // the class of their children. New parameters are placed with the model's other parameters. Throws if an optimizer or
  // DistributedDataParallel has parameters of the old module: replace the module first.
  template <std::derived_from<Module> M>
  M& replace(std::string_view path, M with) {
    const Child& child = replaceable(path);
    auto fresh = std::make_shared<M>(std::move(with));
    if (typeid(*child.module) != typeid(M)) {
      put(path, fresh);
      return *fresh;
    }
    auto& old = static_cast<M&>(*child.module);
    const std::shared_ptr<ModuleLink> parent = parent_link(old);
    std::destroy_at(&old);
    M& now = *std::construct_at(&old, std::move(*fresh));
    adopt(now, parent);
    return now;
  }

  // Calls f on every module below this one, children first, and then on this one.
  //
  //   net.apply([](Module& m) { if (auto* dropout = dynamic_cast<Dropout*>(&m)) dropout->eval(); });
  void apply(const std::function<void(Module&)>& f);
  // lockstep::apply() of autograd/function.h, which the member above hides in forward().
  template <std::derived_from<Function> F, typename... Args>
  static auto apply(const Args&... arguments) {
    return lockstep::apply<F>(arguments...);
  }

  // The classes of this module and its children, as PyTorch prints them:
  //
  //   Net(
  //     (hidden): Linear(in_features=784, out_features=256, bias=True)
  //     (out): Linear(in_features=256, out_features=10, bias=True)
  //   )
  //
  // A layer whose shape is not known before the first pass is a LazyLinear(in_features=0, ...).
  std::string str() const;
  // The name of the class: "Linear".
  std::string kind() const;

  // Names that programs for libtorch use: a compile error says what to write.
  template <typename M = Module>
  M* operator->() const {
    static_assert(!std::derived_from<M, Module>, "a module is a value: write net(x), which calls forward()");
    return nullptr;
  }
  template <typename... Args>
  void register_module(const Args&...) const {
    static_assert(sizeof...(Args) == 0, "write Linear& fc = make<Linear>(\"fc\", 784, 256); or add(name, module)");
  }
  template <typename... Args>
  void register_parameter(const Args&...) const {
    static_assert(sizeof...(Args) == 0,
                  "write Parameter w = add_parameter(\"w\", {.shape = {2, 3}, .initializer = Normal{}});");
  }
  template <typename... Args>
  void register_buffer(const Args&...) const {
    static_assert(sizeof...(Args) == 0,
                  "write Parameter b = add_buffer(\"b\", {.shape = {2, 3}, .initializer = Constant{0}});");
  }

  // Freeze or unfreeze all parameters (Parameter::set_trainable). In training mode, a frozen batch norm still updates
  // its running statistics.
  void freeze() { set_trainable(false); }
  void unfreeze() { set_trainable(true); }
  // Drops the gradients of all parameters. No loop needs it: the optimizer's step() clears them.
  void zero_grad() const;

  // Switches to training mode (the default) or to evaluation mode. Batch norm and dropout depend on it. Throws while an
  // EvalGuard holds the module, or one below it, in evaluation mode.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const;

 protected:
  // For Sequential::append(Linear({...})). Throws if a child is a member of `other`; children made with make<M>() move
  // along.
  Module(Module&& other);

  // The text between the parentheses of str(): "in_features=784, out_features=256, bias=True".
  virtual std::string extra_repr() const { return ""; }

  Parameter add_parameter(std::string name, ParameterOptions options);
  Parameter add_buffer(std::string name, ParameterOptions options);
  // Registers a child, which must not contain this module. The second form owns it; the first is for members.
  void add(std::string name, Module& child);
  void add(std::string name, std::shared_ptr<Module> child);
  // Makes a child, from its options or from other arguments. This module owns it.
  //
  //   Linear& fc = make<Linear>("fc", {.out_features = 10});
  //   Conv2d& conv = make<Conv2d>("conv", 3, 64, 3, {.padding = 1});
  //
  // If braces contain a wrong option, compilers do not name it; if the class is written, as in
  // make<Linear>("fc", LinearOptions{.out_featurs = 10}), they do.
  template <typename M>
  M& make(std::string name, const typename M::Options& options) {
    return make<M, const typename M::Options&>(std::move(name), options);
  }
  template <typename M, typename A>
  M& make(std::string name, const A& a, const typename M::Options& options) {
    return make<M, const A&, const typename M::Options&>(std::move(name), a, options);
  }
  template <typename M, typename A, typename B>
  M& make(std::string name, const A& a, const B& b, const typename M::Options& options) {
    return make<M, const A&, const B&, const typename M::Options&>(std::move(name), a, b, options);
  }
  template <typename M, typename A, typename B, typename C>
  M& make(std::string name, const A& a, const B& b, const C& c, const typename M::Options& options) {
    return make<M, const A&, const B&, const C&, const typename M::Options&>(std::move(name), a, b, c, options);
  }
  template <typename M, typename... Args>
  M& make(std::string name, Args&&... args) {
    auto child = std::make_shared<M>(std::forward<Args>(args)...);
    add(std::move(name), child);
    return *child;
  }

  // Registers a child that replace() may replace by a module of another class.
  ModuleSlot add_slot(std::string name, std::shared_ptr<Module> child);
  template <typename M, typename... Args>
  ModuleSlot make_slot(std::string name, Args&&... args) {
    return add_slot(std::move(name), std::make_shared<M>(std::forward<Args>(args)...));
  }

  // Registers another module's parameter in this module, too, and returns it. Both names are in the state_dict, as in
  // PyTorch; parameters() lists the parameter once, so an optimizer updates it once.
  Parameter share(std::string name, const Parameter& other);

  // Makes the parameters and children of `inner` also those of this module, under the same names.
  void pass_on(Module& inner) { children_.push_back({"", &inner, nullptr}); }

  struct Child {
    std::string name;
    Module* module;
    std::shared_ptr<Module> owner;
    std::shared_ptr<std::shared_ptr<Module>> slot = {};  // of a ModuleSlot: the same module
  };
  const std::vector<Child>& children() const { return children_; }
  // Returns whether forward() finds its children in children(), so that they may be of any class.
  virtual bool takes_any_child() const { return false; }

 private:
  friend class EvalGuard;
  friend class ForwardScope;
  friend class ModuleTree;
  friend class Parameter;
  void set_trainable(bool trainable) const;
  const Module& root() const;
  void place() const;
  std::shared_ptr<DefaultModel> default_model() const;
  void set_mode(bool on);
  bool in_training() const;
  // Whether this module is in training mode, `outer` is not, and `outer`, made earlier, lacks it among its children.
  bool is_stray_in(const Module& outer) const;
  void initialize_on(const std::vector<Device>& devices, const Initializer& initializer, InitializeOptions options);
  std::string path_of(const Parameter& parameter) const;
  Module& child_at(std::string_view path);
  [[noreturn]] static void fail_class(std::string_view path, const Module& found);
  // Returns the child with this path. Throws if it must not be replaced.
  const Child& replaceable(std::string_view path);
  void put(std::string_view path, std::shared_ptr<Module> with);
  Module& parent_of(std::string_view path);
  static std::shared_ptr<ModuleLink> parent_link(const Module& module);
  static void adopt(Module& module, const std::shared_ptr<ModuleLink>& parent);
  template <typename Visit>
  void visit(const std::string& prefix, const Visit& each) const;
  void check_name(const std::string& name) const;

  std::shared_ptr<ModuleLink> link_;
  std::vector<std::pair<std::string, Parameter>> parameters_;
  std::vector<std::pair<std::string, Parameter>> buffers_;
  std::vector<Child> children_;
  bool training_ = true;
  std::atomic<int> eval_guards_{0};
};

// Held during a call of a module's forward(). Throws if another module's forward() calls a module that was made later,
// belongs to no other module, and has trainable parameters with default values that no optimizer has: a layer that is a
// plain member, instead of a child that make<M>() made, would never be trained.
class ForwardScope {
 public:
  explicit ForwardScope(const Module& module);
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  const Module* outer_;
  const Module *stray_, *inside_;
};

// For wrappers: calls the model's forward() for these inputs, tensors placed(). It uses Module::operator() where
// possible, so that summary() sees the output. Otherwise it calls the model's own forward().
template <typename M, typename... Xs>
auto call_model(M& model, const Xs&... xs) {
  if constexpr (sizeof...(xs) == 1 && requires { static_cast<Tensor (M::*)(const Tensor&)>(&M::forward); }) {
    return static_cast<Module&>(model)(xs...);
  } else {
    const auto placed = [&]<typename X>(const X& x) -> decltype(auto) {
      if constexpr (std::same_as<X, Tensor>) {
        return static_cast<const Module&>(model).placed(x);
      } else {
        return (x);
      }
    };
    const ForwardScope scope(model);
    return model.forward(placed(xs)...);
  }
}

inline std::string str(const Module& module) { return module.str(); }
std::ostream& operator<<(std::ostream& out, const Module& module);

// Threads. Several threads may call one model at the same time, in evaluation mode and each with a NoGradGuard of its
// own; the first pass may settle shapes. Predictor (train/predictor.h) does both. Passes with backward() are for one
// thread at a time: a second backward() that reaches the same parameters is an error. Nobody may change the weights
// during a pass, except with Predictor::load().

// Holds a module and all modules below it in evaluation mode for the lifetime of the guard. After that, each has its
// own mode again. Several guards, also of several threads, may hold one module: it is in evaluation mode until the last
// guard ends.
class EvalGuard {
 public:
  explicit EvalGuard(Module& module);
  ~EvalGuard();
  EvalGuard(const EvalGuard&) = delete;
  EvalGuard& operator=(const EvalGuard&) = delete;

 private:
  void hold(Module& module);
  void release() noexcept;
  std::vector<Module*> held_, switched_;  // switched: by a train() of its class
};

}  // namespace lockstep
