// A parameter: one object with a replica on each of its devices and a gradient for each shard. Use it as a tensor:
// matmul(x, weight), sum(square(weight)). Parameters replicate themselves, so wrappers never clone a model.
//
// A model needs neither initialize() nor devices: the first use of a parameter places its whole model, as
// Module::devices() does, and gives it the initial values of its layers, which follow from manual_seed() before the
// model was made.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/nn/initializers.h"

namespace LOCKSTEP_API lockstep {

class HookHandle;
class DefaultModel;       // nn/module_link.h
struct ModuleLink;        // nn/module_link.h
struct ParameterOrigin;   // nn/module_link.h
class ParameterGradient;  // autograd/parameter_gradient.h
class Resource;           // engine/resource.h
struct ReducedGradient;   // autograd/reducer.h

// Maps a gradient to a new one of the same shape and type.
using GradientMap = std::function<Tensor(const Tensor& gradient)>;

struct ParameterOptions {
  // An extent of 0 is unknown; the first forward pass sets it (deferred initialization).
  Shape shape{};
  DType dtype = DType::f32;
  // Replaces the model's initializer: initialize(Xavier{}) leaves the biases of layers at 0, for example.
  Initializer initializer{};
  // The initial values of a model that nobody initializes: those of PyTorch's layers. Empty: `initializer`. With
  // neither, using the parameter before initialize() or load_weights() is an error.
  Initializer default_initializer{};
  // Called after the initializer, for example to set a row to zero. Loaded values do not pass through it.
  std::function<void(const Array& parameter)> after_initializer{};
  // False for buffers, such as running statistics: they have no gradient.
  bool trainable = true;
  // True for a buffer that training computes, such as running statistics. Saving infinities in such a buffer is an
  // error; other buffers, such as masks, may hold them.
  bool computed = false;
};

// A handle: copies refer to the same parameter. Declare it `const` in a module: an assignment would change the handle
// alone, not what the module's parameters() are. To let two modules share one parameter, see Module::share().
class Parameter {
 public:
  Parameter() = default;
  explicit Parameter(ParameterOptions options);

  // False for the handle of a parameter that a layer does not have, such as the bias of Linear({.bias = false}).
  bool defined() const { return state_.get() != nullptr; }
  // The path in the model, such as "resnet_block2.0.conv3.bias", once the model has been placed or initialized.
  const std::string& name() const;
  // Extents that are not known yet are 0.
  const Shape& shape() const;
  DType dtype() const;
  bool trainable() const;
  // PyTorch's requires_grad_(). Freezing (false) drops the gradient and keeps optimizers from changing the parameter.
  // backward() skips operations that used only frozen parameters and data. Unfreezing a parameter of integers throws.
  void set_trainable(bool trainable) const;
  // See ParameterOptions::computed.
  bool computed() const;
  bool shape_known() const;
  // Whether all extents that are known agree with this shape.
  bool fits(const Shape& shape) const;
  // The devices that hold a replica, or will hold one once the shape is known.
  const std::vector<Device>& devices() const;

  // The replicated tensor. This parameter collects the gradients of everything computed from it. Places the model if
  // nobody did. Throws if the parameter has no initial values or its shape is not known yet.
  Tensor tensor() const;
  operator Tensor() const { return tensor(); }  // NOLINT(google-explicit-constructor)
  // The replica on `device`, without a history. Throws if `device` has no replica; the message lists the devices that
  // have one.
  Tensor data(Device device) const;
  // The first device's replica, copied to the host. Waits.
  Tensor host_data() const;
  // Overwrites all replicas with `value`, from the host or any device. Settles the shape. A parameter without values
  // does not make initial values first.
  void set_data(const Tensor& value) const;

  // Sets the extents that were not known; the others must agree. Makes the replicas after initialize(); default values
  // wait for their first use. Several threads may call it; the first one makes the replicas. An error changes nothing.
  void settle_shape(const Shape& shape) const;
  // Sets the name, the devices, and the initial values. Makes the replicas now if the shape is known; otherwise
  // settle_shape makes them. Uses `fallback` if the options name no initializer. Throws if an optimizer or
  // DistributedDataParallel has the parameter on other devices. An error changes nothing.
  void initialize(std::string name, const std::vector<Device>& devices, const Initializer& fallback,
                  std::uint64_t seed) const;
  // Whether it has devices: it was initialized, or its model was placed.
  bool initialized() const { return !devices().empty(); }
  // Places its model, as Module::devices() does, if nobody did. Does nothing for a parameter of no module.
  void place() const;
  // Gives a parameter of no module these devices. Its initial values are those of ParameterOptions or reset(), drawn
  // from the seed when it was made and the number of the thread's parameters before it.
  void place_alone(const std::vector<Device>& devices) const;
  // Returns whether its values began, or will begin, as the default initial values, because nobody initialized it or
  // loaded weights. A checkpoint that continues a run does not change this.
  bool by_default() const;
  // Replaces ParameterOptions::default_initializer, for the constructors of layers. Throws if the values exist already.
  void set_default_initializer(Initializer initializer) const;
  // Sets new initial values, instead of those of the layer or of an earlier initialize(); a later initialize() replaces
  // them. They are made at once if the parameter has values, otherwise at its first use, with the same bits. `text`
  // names the initializer in recipes. nn/init.h has PyTorch's names for it.
  void reset(Initializer initializer, std::string text) const;
  // Restores the layer's initial values, those of ParameterOptions, with the same bits unless manual_seed() was called.
  void reset() const;
  // Returns the text of reset() while its initial values are in use; otherwise "".
  std::string reset_text() const;
  // Moves the replicas, with the values of the first, and the gradient, as if set_gradient() had set it, to these
  // devices. Does nothing if they are there already. Throws if the parameter is not initialized, or if an optimizer or
  // DistributedDataParallel has it: they keep state on its devices. An error changes nothing.
  void to(const std::vector<Device>& devices) const;
  // Casts the replicas to f32 or f64, under the same conditions. A parameter of integers keeps its type.
  void to(DType dtype) const;
  void check_movable() const;
  // Throws if an optimizer or DistributedDataParallel has it.
  void check_unclaimed(std::string_view what) const;

  // A copy of the gradient since it was last cleared, summed over all shards of all ranks and mapped by the hooks, on
  // `device`. Undefined if there is none; with several processes, waits for the sum, which tells whether any process
  // has one. The copy is read-only: an operation in place on it throws, because the optimizer would not see the change.
  Tensor gradient(Device device) const;
  Tensor gradient() const { return devices().empty() ? Tensor() : gradient(devices()[0]); }
  // torch.Tensor's names.
  Tensor grad() const { return gradient(); }
  Tensor norm(double p = 2) const { return tensor().norm(p); }
  template <typename T>
  void operator-=(const T&) const {
    static_assert(!sizeof(T), "let an optimizer update parameters, or write p.set_data(p.tensor() - step)");
  }
  template <typename T>
  void operator+=(const T&) const {
    static_assert(!sizeof(T), "let an optimizer update parameters, or write p.set_data(p.tensor() + step)");
  }
  // Sets the gradient to a copy of `value`, from the host or any device, even if there was none: PyTorch's
  // p.grad = value. A later backward() adds to it. Under DistributedDataParallel, every rank must give the same value.
  // Throws for another shape or type, for a frozen parameter, while gradients of backward({.sync = false}) wait, and
  // after clip_grad_norm() or unscale() of an optimizer, whose next step would multiply the new gradient, too. With
  // loss scaling, the value has the loss scale, as in PyTorch; Optimizer::map_gradients() does not need to know it.
  void set_gradient(const Tensor& value) const;
  // set_gradient(f(gradient())), under the same conditions. Does nothing if there is no gradient.
  //
  //   for (const Parameter& p : net.parameters()) p.map_gradient([](const Tensor& g) { return clamp(g, -1, 1); });
  void map_gradient(const GradientMap& f) const;
  // From now on, f maps each gradient that backward() leaves, before set_gradient(), clipping, or the optimizer see it:
  // PyTorch's Tensor.register_hook, except that f gets the sum over all shards, ranks, and micro-batches of a step, so
  // that the bits are those of one device. f runs when the gradient is read, once for each sum, without recording. It
  // must be a pure function of the gradient, whose copy it must not change in place, and return a tensor of the same
  // shape and type. It must not own the parameter. Several hooks run in the order of registration. With loss scaling,
  // f sees the scaled gradient, as in PyTorch. With several processes, the reader waits for the sum. Hooks decide the
  // bits, so name them in the recipe. Throws for a frozen parameter.
  //
  //   HookHandle hook = net["0.weight"].register_hook([](const Tensor& g) { return g * 0.1; });
  //   hook.remove();
  HookHandle register_hook(GradientMap f) const;
  // For optimizers: returns the gradient without a copy. Do not change it. With several processes, it also says whether
  // any shard had a gradient.
  ReducedGradient reduced_gradient(Device device) const;
  void zero_grad() const;
  // An optimizer holds this for as long as it has the parameter.
  std::shared_ptr<void> claim() const;
  // Whether any optimizer holds it.
  bool optimized() const;
  // This process's part of the gradient; see parallel/bucket_reducer.h.
  ParameterGradient& gradient_state() const;
  // For optimizers and averages: a resource that the parameter's latest optimizer step writes. It fails if the step is
  // left out. None before the first step, after a move, and in a recorded step.
  void set_latest_step(Resource done) const;
  Resource latest_step() const;
  // For optimizers: f(gradient), checked, in memory of its own on the gradient's device.
  Array mapped(std::string_view what, const Array& gradient, const GradientMap& f) const;

  bool operator==(const Parameter&) const = default;

 private:
  friend class HookHandle;
  friend class Module;
  friend class ModuleTree;
  friend class ParameterChange;
  struct State;
  // What the copies of a handle share. ModuleTree makes it refer to another parameter, so that the members of a layer's
  // class follow.
  class Reference {
   public:
    Reference() = default;
    explicit Reference(std::shared_ptr<State> state)
        : place_(std::make_shared<std::shared_ptr<State>>(std::move(state))) {}
    std::shared_ptr<State> get() const { return place_ ? *place_ : nullptr; }
    State* operator->() const { return place_->get(); }
    State& operator*() const { return **place_; }
    void refer_to(std::shared_ptr<State> state) const { *place_ = std::move(state); }
    bool operator==(const Reference& other) const { return get() == other.get(); }

   private:
    std::shared_ptr<std::shared_ptr<State>> place_;
  };
  // Whether the replicas exist.
  bool made() const;
  void set_owner(const std::shared_ptr<ModuleLink>& owner) const;
  const ParameterOrigin& origin() const;
  Reference state_;
};

// A hook that Parameter::register_hook() registered. It stays registered when its handle is destroyed.
class HookHandle {
 public:
  HookHandle() = default;
  // Does nothing if it was removed before.
  void remove();

 private:
  friend class Parameter;
  std::weak_ptr<Parameter::State> parameter_;
  int number_ = 0;
};

}  // namespace lockstep
