// Modules, which models are made of, and containers of modules. Parameters have the same names as in PyTorch, so each
// library can load the other's weights.
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

// The state of a model as named host tensors under PyTorch's names: all parameters, then all buffers.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

// Returns a model's state. Waits for the values. Throws if the shape of a parameter is not known yet.
StateDict state_dict(const Module& module);

// Overwrites all replicas of an initialized model, and settles unknown shapes. Strict: a missing or unknown name, or a
// different shape or type, is an error that names it and changes nothing. As in PyTorch, floating values are cast to
// the type of the parameter.
void load_state_dict(Module& module, const StateDict& state);

// Entries that were not loaded, as text: "fc.weight", or "fc.weight [10, 512], expected [5, 512]".
struct UnmatchedEntries {
  std::vector<std::string> missing;     // only in the model, which keeps its values
  std::vector<std::string> unexpected;  // only in the state
  std::vector<std::string> different;   // in both, with another shape or type; the model keeps its values
};

// For fine-tuning: loads every entry whose name and shape match and whose type matches or can be cast, and returns the
// others. Throws if none matches.
UnmatchedEntries load_matching_state(Module& module, const StateDict& state);

// Runs modules one after the other. They are named "0", "1", ..., or as the caller says. A batch norm and the ReLU
// after it run as one operation. A ReLU runs after the max pooling that follows it, with the same bits.
//
//   Sequential net;
//   net.append(Conv2d({.out_channels = 64, .kernel_size = 3})).append(BatchNorm2d()).append(ReLU());
//   net.at<Conv2d>(0).weight.set_trainable(false);
class Sequential : public Module {
 public:
  Sequential() = default;

  // Makes the module in place, from its options or from other arguments: append<Conv2d>({.out_channels = 64}).
  template <typename M>
  Sequential& append(const typename M::Options& options) {
    return append(std::make_shared<M>(options));
  }
  template <typename M, typename... Args>
  Sequential& append(Args&&... args) {
    return append(std::make_shared<M>(std::forward<Args>(args)...));
  }
  template <typename M>
  requires std::is_base_of_v<Module, M> Sequential& append(M&& module) {
    return append(std::make_shared<M>(std::move(module)));
  }
  Sequential& append(std::shared_ptr<Module> module) {
    return append(std::to_string(children().size()), std::move(module));
  }
  Sequential& append(std::string name, std::shared_ptr<Module> module) {
    add(std::move(name), std::move(module));
    return *this;
  }

  std::size_t size() const { return children().size(); }
  using Module::operator[];
  Module& operator[](std::size_t i) const {
    check(i < size(), "sequential: no module {}, there are {}", i, size());
    return *children()[i].module;
  }
  // Returns module i as an M. Throws if it has another class.
  template <typename M>
  M& at(std::size_t i) const {
    auto* const module = dynamic_cast<M*>(&(*this)[i]);
    if (!module) fail("sequential: module {} is {}, expected the class requested from at()", i, (*this)[i].str());
    return *module;
  }

  Tensor forward(const Tensor& x) override;
};

// Holds modules named "0", "1", .... The owner calls them. M is the modules' class; the default works for modules with
// one input.
//
//   ModuleList<TransformerEncoderLayer> layers;
//   Net() { for (int i = 0; i < 6; ++i) layers.append(options); add("layers", layers); }
//   Tensor forward(const Tensor& x) override { Tensor y = x; for (auto& layer : layers) y = layer(y); return y; }
template <typename M = Module>
class ModuleList : public Module {
 public:
  // Makes an M from the arguments, and returns it.
  template <typename... Args>
  M& append(Args&&... args) {
    return append(std::make_shared<M>(std::forward<Args>(args)...));
  }
  template <typename N>
  requires std::is_base_of_v<M, N> M& append(std::shared_ptr<N> module) {
    add(std::to_string(size()), module);
    modules_.push_back(module.get());
    return *modules_.back();
  }

  std::size_t size() const { return modules_.size(); }
  using Module::operator[];
  M& operator[](std::size_t i) const {
    check(i < size(), "module list: no module {}, there are {}", i, size());
    return *modules_[i];
  }

  class Iterator {
   public:
    explicit Iterator(M* const* place) : place_(place) {}
    M& operator*() const { return **place_; }
    Iterator& operator++() { return ++place_, *this; }
    bool operator!=(const Iterator& other) const { return place_ != other.place_; }

   private:
    M* const* place_;
  };
  Iterator begin() const { return Iterator(modules_.data()); }
  Iterator end() const { return Iterator(modules_.data() + modules_.size()); }

 private:
  std::vector<M*> modules_;  // children() own them
};

// A table of a model's layers, with their output shapes and numbers of parameters.
//
//   fmt::print("{}", summary(net, {32, 1, 28, 28}));
//
//   Layer  Kind        Output shape     Parameters
//   -----------------------------------------------------
//          Sequential  [32, 10]                  0
//   0      Conv2d      [32, 6, 28, 28]         156  trainable
//   1      ReLU        [32, 6, 28, 28]           0
//   ...
//   -----------------------------------------------------
//   61,706 parameters, 61,706 trainable, 0 frozen
//   246,824 bytes of parameters, 0 of buffers
//
// Each row counts a layer's own parameters, without those of the layers in it. Parameters that layers share count in
// the first one. A layer that is called several times shows its last output. Your own layers show an output only if the
// model calls them with operator().
//
// summary() calls the model once, on zeros of this shape on its first device, in evaluation mode and without a history.
// This sets unknown shapes, as a first batch does. It changes no modes, statistics, gradients, or later random numbers.
std::string summary(Module& module, const Shape& input, DType dtype = DType::f32);

// For models that are called in another way: `call` must run the model once.
std::string summary(Module& module, const std::function<void()>& call);

// Moves a tensor in host memory to the model's first device. Returns anything else unchanged.
Tensor input_for(const Module& module, const Tensor& x);
template <typename T>
requires(!std::convertible_to<T, Tensor>) const T& input_for(const Module&, const T& x) { return x; }

// The same for model(x, more...): several inputs, or inputs that are not f32.
template <std::derived_from<Module> M, typename... More>
std::string summary(M& module, const Tensor& x, const More&... more) {
  return summary(module, [&] { module(input_for(module, x), input_for(module, more)...); });
}

}  // namespace lockstep
