// Modules: what models are made of. Their parameters' names are those of the same model in PyTorch, so that weights
// travel both ways.
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

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/functions.h"
#include "lockstep/nn/parameter.h"

namespace LOCKSTEP_API lockstep {

struct InitializeOptions {
  std::uint64_t seed = 0;
  // Start anew where parameters are initialized already; without it that is an error.
  bool force_reinit = false;
};

class Module {
 public:
  virtual ~Module() = default;
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Tensor operator()(const Tensor& x);
  // Computes one tensor from one, for any number of devices and processes. A module of several tensors declares a forward() of
  // its own, `std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& mask)`, and is called by it.
  virtual Tensor forward(const Tensor& x);

  // The same start values on all devices, from (seed, name). Parameters whose shape is not known are made when data
  // first passes through.
  void initialize(const Initializer& initializer, const std::vector<Device>& devices, InitializeOptions options = {});
  // Moves all parameters and buffers, with their values, to these devices. Gradients are dropped. An error after an
  // optimizer has been made of the parameters, whose state is on their devices.
  void to(const std::vector<Device>& devices);

  // In the order of registration, children after a module's own. Names are paths: "fc.1.weight". Without `recurse`, the
  // module's own alone.
  std::vector<std::pair<std::string, Parameter>> named_parameters(bool recurse = true) const;
  std::vector<std::pair<std::string, Parameter>> named_buffers(bool recurse = true) const;
  std::vector<std::pair<std::string, Module*>> named_modules();
  // Each once, even if modules share it.
  std::vector<Parameter> parameters() const;
  std::int64_t parameter_count() const;
  // By its path; an unknown name is an Error that lists those there are.
  Parameter parameter(std::string_view name) const;
  Parameter buffer(std::string_view name) const;
  // net["0.weight"] is net.parameter("0.weight").
  Parameter operator[](std::string_view name) const { return parameter(name); }

  // Calls f on every module in this one, children first, and then on this one.
  //
  //   net.apply([](Module& m) { if (auto* dropout = dynamic_cast<Dropout*>(&m)) dropout->eval(); });
  void apply(const std::function<void(Module&)>& f);

  // The classes of this module and its children, as PyTorch prints them:
  //
  //   Net(
  //     (hidden): Linear(in_features=784, out_features=256, bias=True)
  //     (out): Linear(in_features=256, out_features=10, bias=True)
  //   )
  std::string str() const;
  // The name of the class: "Linear".
  std::string kind() const;

  // All parameters: see Parameter::set_trainable. Batch norm is another matter: what it does depends on train() and eval().
  void freeze() { set_trainable(false); }
  void unfreeze() { set_trainable(true); }

  // Training mode (the default) or not: batch norm and dropout differ.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

 protected:
  // For Sequential::append(Linear({..})). An error for a module with a child that is a member, which cannot move along.
  Module(Module&& other);

  // The text between the parentheses of str(): "in_features=784, out_features=256, bias=True".
  virtual std::string extra_repr() const { return ""; }

  Parameter add_parameter(std::string name, ParameterOptions options);
  Parameter add_buffer(std::string name, ParameterOptions options);
  // A member of this module, or owned by it.
  void add(std::string name, Module& child);
  void add(std::string name, std::shared_ptr<Module> child);
  // Makes a child, which this module owns, from its options or from other arguments:
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

  // The parameters and children of `inner` are this module's, under their own names.
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
  template <typename Visit>
  void visit(const std::string& prefix, const Visit& each) const;
  void check_name(const std::string& name) const;

  std::vector<std::pair<std::string, Parameter>> parameters_;
  std::vector<std::pair<std::string, Parameter>> buffers_;
  std::vector<Child> children_;
  bool training_ = true;
};

inline std::string str(const Module& module) { return module.str(); }
std::ostream& operator<<(std::ostream& out, const Module& module);

// Puts a module into evaluation mode, and each module in it back into its own mode at the end: one that was frozen in evaluation
// mode stays there.
class EvalGuard {
 public:
  explicit EvalGuard(Module& module);
  ~EvalGuard();
  EvalGuard(const EvalGuard&) = delete;
  EvalGuard& operator=(const EvalGuard&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> modes_;
};

// The state of a model as named host tensors: all parameters, then all buffers, under PyTorch's names.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

// Waits for the values. Throws for parameters whose shape no forward pass has settled yet.
StateDict state_dict(const Module& module);

// Overwrites all replicas. Strict: a name that is missing or not known, or a shape or type that differs, is an error
// that names it, and nothing is changed. The model has to be initialized; unknown shapes are settled.
void load_state_dict(Module& module, const StateDict& state);

// Entries that were not loaded, as texts for people: "fc.weight", or "fc.weight [10, 512], expected [5, 512]".
struct UnmatchedEntries {
  std::vector<std::string> missing;     // in the model alone: they keep their start values
  std::vector<std::string> unexpected;  // in the state alone
  std::vector<std::string> different;   // in both, but of another shape or type: they keep their start values
};

// Overwrites what the state has under the same name, in the same shape and type: for fine-tuning. Throws if nothing fits.
UnmatchedEntries load_matching_state(Module& module, const StateDict& state);

}  // namespace lockstep
