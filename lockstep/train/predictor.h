// A model for inference: made once, then called from any number of threads.
//
//   const Predictor predict(torchvision::resnet18(), "resnet18.safetensors");
//   // In each thread of a server:
//   std::vector<float> scores = predict(image).to_vector<float>();
//   // In any thread, while others predict:
//   predict.load("new.safetensors");
//
// The model is in evaluation mode, keeps no history, and draws no random numbers for weights that are loaded. On a CPU
// device, the calling thread computes, and cores that no other call needs help it. On a GPU, and for inputs on a
// device, calls at the same time are computed on different lanes and devices.
#pragma once

#include <concepts>
#include <filesystem>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Calls f on each tensor in a value: a Tensor, or a pair, tuple, array, or vector of such values. Other values stay.
template <typename T, typename F>
T map_tensors(const T& value, const F& f) {
  if constexpr (std::same_as<T, Tensor>) {
    return f(value);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return std::apply([&](const auto&... x) { return T{map_tensors(x, f)...}; }, value);
  } else if constexpr (
      requires(T t) { t.push_back(*t.begin()); } && !requires { value.c_str(); }) {
    T mapped;
    for (const auto& x : value) mapped.push_back(map_tensors(x, f));
    return mapped;
  } else {
    return value;
  }
}

// The part of a Predictor that does not depend on the class of its model.
class PredictorState {
 public:
  PredictorState(Module& model, const std::filesystem::path* weights);
  ~PredictorState();
  PredictorState(const PredictorState&) = delete;
  PredictorState& operator=(const PredictorState&) = delete;

  void load(const std::filesystem::path& weights);

  // One prediction, on the thread that describes it.
  class Call {
   public:
    explicit Call(PredictorState& state);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    // Looks at an input, before begin().
    void see(const Tensor& x);
    // Chooses where to compute. Until end(), weights do not change.
    void begin();
    Tensor place(const Tensor& x) const;
    void end();
    Tensor result(const Tensor& y) const;

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// All functions may be called from several threads at once. While a Predictor exists, its model is not trained:
// train(), a step of an optimizer, load_weights(), and everything else that would change the weights in place throw.
// Only one Predictor may have a model.
template <std::derived_from<Module> Net>
class Predictor {
 public:
  // Takes the model, with its weights or with those of a file, a checkpoint, or a folder of checkpoints, as
  // load_weights() does. A file decides all shapes, also those that the model does not know yet.
  explicit Predictor(std::shared_ptr<Net> net) : net_(std::move(net)), state_(model(), nullptr) {}
  Predictor(std::shared_ptr<Net> net, const std::filesystem::path& weights)
      : net_(std::move(net)), state_(model(), &weights) {}
  explicit Predictor(Net&& net) : Predictor(std::make_shared<Net>(std::move(net))) {}
  Predictor(Net&& net, const std::filesystem::path& weights)
      : Predictor(std::make_shared<Net>(std::move(net)), weights) {}
  // The model must outlive the Predictor. Then it may be trained again.
  explicit Predictor(Net& net) : Predictor(std::shared_ptr<Net>(std::shared_ptr<void>(), &net)) {}
  Predictor(Net& net, const std::filesystem::path& weights)
      : Predictor(std::shared_ptr<Net>(std::shared_ptr<void>(), &net), weights) {}

  // What the model's forward() computes from these inputs, which have a batch as axis 0 if the model expects one. If
  // all tensors are in host memory, the results are, too: the call copies the inputs to a device of the model and
  // waits. Inputs on a device of the model give results there, and the call does not wait. Throws what forward()
  // throws; an error of the computation comes out in this call or where its results are read, and does not affect other
  // calls.
  //
  // The first calls also prepare the weights for products and convolutions (torch has no such step), so make two before
  // you measure or serve.
  template <typename... Xs>
  auto operator()(const Xs&... xs) const {
    PredictorState::Call call(state_);
    const auto see = [&](const Tensor& x) {
      call.see(x);
      return x;
    };
    (static_cast<void>(map_tensors(xs, see)), ...);
    call.begin();
    const auto y = call_model(*net_, map_tensors(xs, [&](const Tensor& x) { return call.place(x); })...);
    call.end();
    return map_tensors(y, [&](const Tensor& t) { return call.result(t); });
  }

  // Replaces the weights. A call at the same time uses either the old or the new ones, never some of each, and does not
  // wait for the file. If it throws, as load_weights() does, the old weights stay. Const, because any thread may call
  // it.
  void load(const std::filesystem::path& weights) const { state_.load(weights); }

 private:
  Module& model() const {
    check(net_ != nullptr, "predictor: no model");
    return *net_;
  }

  const std::shared_ptr<Net> net_;
  mutable PredictorState state_;
};

template <typename Net>
Predictor(std::unique_ptr<Net>) -> Predictor<Net>;
template <typename Net>
Predictor(std::unique_ptr<Net>, std::filesystem::path) -> Predictor<Net>;

}  // namespace lockstep
