// Modules, which models are made of. Parameters have the same names as in PyTorch, so each library can load the other's
// weights.
//
//   struct Net : Module {
//     Linear& hidden = make<Linear>("hidden", {.out_features = 256});
//     Linear& out = make<Linear>("out", {.out_features = 10});
//     Tensor forward(const Tensor& x) override { return out(relu(hidden(x))); }
//   };
//   Net net;
//   net.initialize(Normal{0.01}, runtime.devices());
//   Tensor y = net(split_and_load(x, runtime.devices()));
#pragma once

#include <atomic>
#include <concepts>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/function.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/nn/parameter.h"

namespace LOCKSTEP_API lockstep {

struct InitializeOptions {
  // Not set: RuntimeOptions::seed of the devices' Runtime.
  std::optional<std::uint64_t> seed = {};
  // Initializes parameters again. If false, a parameter that is already initialized is an error.
  bool force_reinit = false;
};

class Module {
 public:
  virtual ~Module() = default;
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Tensor operator()(const Tensor& x);
  // Computes one tensor from one, for any number of devices and processes. A module with several inputs or outputs
  // declares its own forward() instead, such as `Tensor forward(const Tensor& x, const Tensor& mask)`; call
  // net.forward(x, mask), since net(x) calls this one. If it has one input but several outputs, it must take the input
  // by value, as in `std::pair<Tensor, Tensor> forward(Tensor x)`, because C++ does not allow an override with another
  // return type.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"  // g++ 13 would warn of each such module
  virtual Tensor forward(const Tensor& x);
#pragma GCC diagnostic pop

  // Gives all parameters and buffers their initial values, the same on all devices. Parameters of unknown shape are
  // initialized in the first forward pass. An error names the parameter and changes nothing.
  void initialize(const Initializer& initializer, const std::vector<Device>& devices, InitializeOptions options = {});
  // Moves all parameters and buffers, with their values, to these devices. Drops gradients. Call it before you make an
  // optimizer: an optimizer's state lies on the parameters' devices, so a later move is an error. An error changes
  // nothing.
  void to(const std::vector<Device>& devices);
  // Casts all floating parameters and buffers to f32 or f64. Drops gradients; call it before you make an optimizer. f64
  // is for checks, such as gradients against central differences.
  void to(DType dtype);

  // These list the entries in the order of registration, a module's own before its children's. Names are paths:
  // "fc.1.weight". With recurse = false, they list only the module's own.
  std::vector<std::pair<std::string, Parameter>> named_parameters(bool recurse = true) const;
  std::vector<std::pair<std::string, Parameter>> named_buffers(bool recurse = true) const;
  std::vector<std::pair<std::string, Module*>> named_modules();
  // Lists each parameter once, even if modules share it.
  std::vector<Parameter> parameters() const;
  std::int64_t parameter_count() const;
  // Finds one by its path. An unknown name is an Error that lists the existing ones.
  Parameter parameter(std::string_view name) const;
  Parameter buffer(std::string_view name) const;
  // net["0.weight"] is net.parameter("0.weight").
  Parameter operator[](std::string_view name) const { return parameter(name); }

  // Calls f on every module below this one, children first, and then on this one.
  //
  //   net.apply([](Module& m) { if (auto* dropout = dynamic_cast<Dropout*>(&m)) dropout->eval(); });
  void apply(const std::function<void(Module&)>& f);
  // The function of autograd/function.h, whose name the member above hides in forward().
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

  // Freeze or unfreeze all parameters (Parameter::set_trainable). In training mode, a frozen batch norm still updates
  // its running statistics.
  void freeze() { set_trainable(false); }
  void unfreeze() { set_trainable(true); }

  // Switches to training mode (the default) or to evaluation mode. Batch norm and dropout depend on it. Throws while an
  // EvalGuard holds the module, or one below it, in evaluation mode.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_ && eval_guards_ == 0; }

 protected:
  // For Sequential::append(Linear({...})). Throws if a child is a member of this module; children made with make<M>()
  // move along.
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
  template <typename M>
  M& make(std::string name, const typename M::Options& options) {
    return make<M, const typename M::Options&>(std::move(name), options);
  }
  template <typename M, typename... Args>
  M& make(std::string name, Args&&... args) {
    auto child = std::make_shared<M>(std::forward<Args>(args)...);
    add(std::move(name), child);
    return *child;
  }

  // Makes the parameters and children of `inner` also those of this module, under the same names.
  void pass_on(Module& inner) { children_.push_back({"", &inner, nullptr}); }

  struct Child {
    std::string name;
    Module* module;
    std::shared_ptr<Module> owner;
  };
  const std::vector<Child>& children() const { return children_; }

 private:
  friend class EvalGuard;
  void set_trainable(bool trainable) const;
  template <typename To>
  void move(const To& to);
  template <typename Visit>
  void visit(const std::string& prefix, const Visit& each) const;
  void check_name(const std::string& name) const;

  std::vector<std::pair<std::string, Parameter>> parameters_;
  std::vector<std::pair<std::string, Parameter>> buffers_;
  std::vector<Child> children_;
  bool training_ = true;
  std::atomic<int> eval_guards_{0};
};

// For wrappers: calls the model's forward() for these inputs. It uses Module::operator() where possible, so that
// summary() sees the output. Otherwise it calls the model's own forward().
template <typename M, typename... Xs>
auto call_model(M& model, const Xs&... xs) {
  if constexpr (sizeof...(xs) == 1 && requires { static_cast<Tensor (M::*)(const Tensor&)>(&M::forward); }) {
    return static_cast<Module&>(model)(xs...);
  } else {
    return model.forward(xs...);
  }
}

inline std::string str(const Module& module) { return module.str(); }
std::ostream& operator<<(std::ostream& out, const Module& module);

// Threads. Several threads may call one model at the same time, in evaluation mode and each with a NoGradGuard of its
// own; the first pass may settle shapes. Predictor (train/predictor.h) does both. Passes with backward() are for one
// thread at a time: a second backward() that reaches the same parameters is an error. Nobody may change the weights
// beside a pass, except with Predictor::load().

// Holds a module and all modules below it in evaluation mode for the lifetime of the guard. Then each has its own mode
// again. Several guards, also of several threads, may hold one module: it is in evaluation mode until the last one
// ends.
class EvalGuard {
 public:
  explicit EvalGuard(Module& module);
  ~EvalGuard();
  EvalGuard(const EvalGuard&) = delete;
  EvalGuard& operator=(const EvalGuard&) = delete;

 private:
  std::vector<Module*> held_;
};

}  // namespace lockstep
