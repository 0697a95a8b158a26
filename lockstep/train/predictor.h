// A model for inference: made once, then called from any number of threads.
//
//   const Predictor predict(torchvision::resnet18(), "resnet18.safetensors");
//   // In each thread of a server:
//   std::vector<float> scores = predict(image).to_vector<float>();
//   // In any thread, while others predict:
//   predict.load("new.safetensors");
//   // Computes up to 32 images of calls at the same time in one pass:
//   const Predictor joining(torchvision::resnet18(), "resnet18.safetensors", {.max_batch = 32, .wait = 2ms});
//
// The model is in evaluation mode, keeps no history, and draws no random values for weights that it loads. On a CPU
// device, the calling thread computes, and cores that no other call needs help it. On a GPU, and for inputs on a
// device, concurrent calls are computed on different lanes and devices.
#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct PredictorOptions {
  // Largest number of samples in one pass. Above 1, concurrent calls whose inputs are in host memory and have equal
  // shapes and types are joined along axis 0 into one pass, and its results are split again. A call with more samples
  // is a pass of its own.
  std::int64_t max_batch = 1;
  // A call is computed at once if no pass is in progress. Otherwise it waits for more calls to join it, until no pass
  // is in progress, but at most this long. Set it only with max_batch above 1.
  std::chrono::nanoseconds wait = std::chrono::milliseconds(1);
};

// Whether a value consists of tensors: a Tensor, or a pair, tuple, array, or vector of such values.
template <typename T>
struct ConsistsOfTensors : std::is_same<T, Tensor> {};
template <typename... Ts>
struct ConsistsOfTensors<std::tuple<Ts...>> : std::conjunction<ConsistsOfTensors<Ts>...> {};
template <typename A, typename B>
struct ConsistsOfTensors<std::pair<A, B>> : std::conjunction<ConsistsOfTensors<A>, ConsistsOfTensors<B>> {};
template <typename T, std::size_t N>
struct ConsistsOfTensors<std::array<T, N>> : ConsistsOfTensors<T> {};
template <typename T>
struct ConsistsOfTensors<std::vector<T>> : ConsistsOfTensors<T> {};

// Returns the value with f(t) for each tensor t in it. Tuples, pairs, arrays, and vectors are searched; the rest stays.
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
  PredictorState(Module& model, const std::filesystem::path* weights, const PredictorOptions& options);
  // Waits for the calls that have begun.
  ~PredictorState();
  PredictorState(const PredictorState&) = delete;
  PredictorState& operator=(const PredictorState&) = delete;

  void load(const std::filesystem::path& weights);

  // A call that may be joined with others of the same kind.
  struct Request {
    const std::type_info* kind;        // of its inputs
    std::vector<Tensor> inputs;        // in the order in which map_tensors() finds them
    std::vector<std::size_t> sizes;    // of vectors among the inputs
    void* result;                      // where compute() stores the result: std::optional<Y>
    std::vector<Tensor> outputs = {};  // the tensors of the result
    bool done = false, alone = false, refused = false;
  };
  using Requests = std::span<Request* const>;
  bool joins() const;
  // Returns whether all inputs are in host memory and not empty. Throws if their numbers of samples differ.
  static bool can_join(const Request& request);
  // Computes the request in this thread, maybe together with others, or waits until another thread has computed it. If
  // a joined pass fails, the thread of each call computes it again, so that each call gets only its own error.
  void join(Request& request, const std::function<void(Requests)>& compute);

  // One prediction, on the thread that describes it.
  class Call {
   public:
    explicit Call(PredictorState& state);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    // Looks at an input, before begin().
    void see(const Tensor& x);
    // Takes the inputs of these calls, before begin().
    void join(Requests calls);
    // Chooses where to compute. Until end(), weights do not change.
    void begin();
    Tensor place(const Tensor& x) const;
    // Input i of all joined calls.
    Tensor joined(std::size_t i) const;
    void end();
    Tensor result(const Tensor& y) const;
    // A result of one of the joined calls.
    Tensor result_of(const Tensor& y, std::size_t call) const;

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
// A model can have only one Predictor. The destructor waits for the calls of other threads that have begun.
template <std::derived_from<Module> Net>
class Predictor {
 public:
  // Takes the model, with its weights or with those of a file, a checkpoint, or a folder of checkpoints, as
  // load_weights() does. A file decides all shapes, also those that the model does not know yet.
  explicit Predictor(std::shared_ptr<Net> net, const PredictorOptions& options = {})
      : net_(std::move(net)), state_(model(), nullptr, options) {}
  Predictor(std::shared_ptr<Net> net, const std::filesystem::path& weights, const PredictorOptions& options = {})
      : net_(std::move(net)), state_(model(), &weights, options) {}
  explicit Predictor(Net&& net, const PredictorOptions& options = {})
      : Predictor(std::make_shared<Net>(std::move(net)), options) {}
  Predictor(Net&& net, const std::filesystem::path& weights, const PredictorOptions& options = {})
      : Predictor(std::make_shared<Net>(std::move(net)), weights, options) {}
  // The model must outlive the Predictor, and may be trained again after the Predictor has ended.
  explicit Predictor(Net& net, const PredictorOptions& options = {})
      : Predictor(std::shared_ptr<Net>(std::shared_ptr<void>(), &net), options) {}
  Predictor(Net& net, const std::filesystem::path& weights, const PredictorOptions& options = {})
      : Predictor(std::shared_ptr<Net>(std::shared_ptr<void>(), &net), weights, options) {}

  // Returns what the model's forward() computes from these inputs, which have a batch as axis 0 if the model expects
  // one. If all tensors are in host memory, the results are, too: the call copies the inputs to a device of the model
  // and waits. Inputs on a device of the model give results there, and the call does not wait. Throws what forward()
  // throws; an error of the computation is thrown in this call or where its results are read, and does not affect other
  // calls.
  //
  // The first calls also prepare the weights for products and convolutions (torch has no such step), so make two before
  // you measure or serve.
  //
  // With max_batch above 1, axis 0 of each input has the samples, and each result must have them on some axis. It is an
  // error if forward() cannot compute with a cut batch (split_and_load), or has inputs or results of other classes.
  // Models that may mix samples on the way (a sum over the batch, batch norm without running statistics, a Function of
  // your own) get a pass for each call. When a number of calls is joined for the first time, one of them is also
  // computed alone; different results are an error: the model computes with the number of rows, as x / x.size(0).
  // Results have the bits of separate calls in f32 and f64 on CPUs, except sums of more than 65536 elements over an
  // axis before that of the samples. In bf16, and on GPUs, the size of a batch may change the last bits. Calls with
  // inputs on a device are not joined.
  template <typename... Xs>
  auto operator()(const Xs&... xs) const {
    using Y = std::remove_cvref_t<decltype(call_model(*net_, xs...))>;
    if (state_.joins()) {
      if constexpr (ConsistsOfTensors<Y>::value && (ConsistsOfTensors<Xs>::value && ...)) {
        std::optional<Y> result;
        PredictorState::Request request{.kind = &typeid(std::tuple<Xs...>), .result = &result};
        (static_cast<void>(list(xs, request.inputs, request.sizes)), ...);
        if (PredictorState::can_join(request)) {
          state_.join(request, [&](PredictorState::Requests calls) { compute(calls, xs...); });
          return std::move(*result);
        }
      } else {
        fail(
            "predictor: max_batch joins calls whose inputs and results are tensors, or pairs, tuples, arrays, and "
            "vectors of tensors, expected only these, or max_batch = 1");
      }
    }
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

  // Replaces the weights. A concurrent call uses either all old or all new weights, and does not wait while the file is
  // read. If it throws, as load_weights() does, the old weights stay. Const, because any thread may call it.
  void load(const std::filesystem::path& weights) const { state_.load(weights); }

 private:
  template <typename T>
  static void list(const T& value, std::vector<Tensor>& tensors, std::vector<std::size_t>& sizes) {
    if constexpr (std::same_as<T, Tensor>) {
      tensors.push_back(value);
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      std::apply([&](const auto&... x) { (list(x, tensors, sizes), ...); }, value);
    } else {
      sizes.push_back(value.size());
      for (const auto& x : value) list(x, tensors, sizes);
    }
  }

  // Computes calls whose inputs have the types of xs in one pass.
  template <typename... Xs>
  void compute(PredictorState::Requests calls, const Xs&... xs) const {
    PredictorState::Call call(state_);
    call.join(calls);
    call.begin();
    std::size_t next = 0;
    // Braces evaluate their elements in order.
    const std::tuple<Xs...> joined{map_tensors(xs, [&](const Tensor&) { return call.joined(next++); })...};
    const auto y = std::apply([&](const auto&... x) { return call_model(*net_, x...); }, joined);
    call.end();
    using Y = std::remove_const_t<decltype(y)>;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      auto& result = *static_cast<std::optional<Y>*>(calls[i]->result);
      result = map_tensors(y, [&](const Tensor& t) { return call.result_of(t, i); });
      std::vector<std::size_t> sizes;
      calls[i]->outputs.clear();
      list(*result, calls[i]->outputs, sizes);
    }
  }

  Module& model() const {
    check(net_ != nullptr, "predictor: no model");
    return *net_;
  }

  const std::shared_ptr<Net> net_;
  mutable PredictorState state_;
};

template <typename Net>
Predictor(std::unique_ptr<Net>, PredictorOptions = {}) -> Predictor<Net>;
template <typename Net>
Predictor(std::unique_ptr<Net>, std::filesystem::path, PredictorOptions = {}) -> Predictor<Net>;

}  // namespace lockstep
