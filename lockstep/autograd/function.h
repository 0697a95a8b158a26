// Your own differentiable functions. Lockstep calls forward() and backward() once, for any number of shards.
//
//   struct Clip : Function {  // its gradient passes where the input is at most twice the limit
//     SavedTensor x;
//     double limit = 0;
//     Tensor forward(const Tensor& in, double at) { x = in; limit = at; return clamp(in, -at, at); }
//     Tensor backward(const Tensor& dy) { return dy * le(abs(x.get()), 2 * limit).to(DType::f32); }
//   };
//   Tensor y = apply<Clip>(x, 1.0);
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// A tensor that backward() needs. It shares the memory of the forward pass, so a change in place between forward and
// backward would make the gradient wrong: get() reports it as an error.
class SavedTensor {
 public:
  SavedTensor() = default;
  // Saves t without its history, as it is now.
  SavedTensor(const Tensor& t);  // NOLINT(google-explicit-constructor)
  // Returns the tensor. Throws an Error that names the function if one of its parts has been modified since.
  const Tensor& get() const;

 private:
  Tensor tensor_;
  std::vector<std::uint64_t> versions_;  // of the parts when they were saved
  std::string function_;
};

// The base of your own functions, which have two members:
//
// forward(arguments of apply...) computes the result without gradient recording: a Tensor, a std::tuple, pair, or array
// of tensors, or a std::vector<Tensor>. It gets tensors as const Tensor&, lists of tensors as std::span<const Tensor>
// or std::vector<Tensor>, and all other arguments as they are.
//
// backward(gradients of the results...) returns the gradients of all tensors among the arguments, in order, in one of
// the same forms. It gets a const Tensor& for each result, or all of them as std::span<const Tensor>, which a list of
// several results needs; a result that the loss does not depend on has an undefined gradient. Each returned gradient
// has the shape, type, and placement of its input, or is undefined if there is none. The gradient of an uncut input,
// such as a parameter, must be summed over all samples, for example with sum_to().
//
// One object serves one call, so members keep what backward() needs. Keep tensors as SavedTensor, which detects changes
// in place.
struct Function {};

// A function of any number of tensors. apply() makes one from a Function.
class ErasedFunction {
 public:
  virtual ~ErasedFunction() = default;
  virtual std::vector<Tensor> forward(std::span<const Tensor> inputs) = 0;
  virtual std::vector<Tensor> backward(std::span<const Tensor> output_grads) = 0;
  // Type of the Function, for messages.
  virtual const std::type_info& type() const = 0;
};

// Called by apply(), which has the typed form.
std::vector<Tensor> apply_function(std::shared_ptr<ErasedFunction> function, std::span<const Tensor> inputs);

template <typename T>
concept TensorArgument = std::convertible_to<const T&, Tensor> && !std::is_arithmetic_v<T>;
template <typename T>
concept TensorListArgument = !TensorArgument<T> && std::convertible_to<const T&, std::span<const Tensor>>;

// A Function with the arguments of one call.
template <typename F, typename... Args>
class FunctionCall : public ErasedFunction {
 public:
  // What forward() gets for an argument, without its history.
  template <typename T>
  using Given =
      std::conditional_t<TensorArgument<T>, Tensor, std::conditional_t<TensorListArgument<T>, std::vector<Tensor>, T>>;
  using Result = decltype(std::declval<F&>().forward(std::declval<const Given<Args>&>()...));

  // Keeps all arguments except tensors.
  template <typename... From>
  explicit FunctionCall(const From&... arguments) : arguments_{kept(arguments)...} {}

  std::vector<Tensor> forward(std::span<const Tensor> inputs) override {
    fill(inputs, std::index_sequence_for<Args...>());
    const auto given = std::move(arguments_);
    return listed(std::apply([&](const auto&... argument) { return function_.forward(argument...); }, given));
  }
  std::vector<Tensor> backward(std::span<const Tensor> output_grads) override {
    if constexpr (requires { function_.backward(output_grads); }) {
      return listed(function_.backward(output_grads));
    } else {
      return backward(output_grads, std::make_index_sequence<results<Result>()>());
    }
  }
  const std::type_info& type() const override { return typeid(F); }

  // Returns the results in the form that forward() returns.
  static Result formed(std::vector<Tensor> outputs) {
    if constexpr (std::convertible_to<std::vector<Tensor>, Result>) {
      return outputs;
    } else {
      return formed(outputs, std::make_index_sequence<results<Result>()>());
    }
  }

 private:
  template <typename T>
  static constexpr std::size_t results() {
    if constexpr (requires { std::tuple_size<T>::value; }) {
      return std::tuple_size_v<T>;
    } else {
      return 1;
    }
  }

  template <typename T>
  static Given<T> kept(const T& argument) {
    if constexpr (TensorArgument<T>) {
      return {};
    } else if constexpr (TensorListArgument<T>) {
      return std::vector<Tensor>(std::span<const Tensor>(argument).size());
    } else {
      return argument;
    }
  }

  template <std::size_t... I>
  void fill(std::span<const Tensor> inputs, std::index_sequence<I...>) {
    (fill_one<std::tuple_element_t<I, std::tuple<Args...>>>(std::get<I>(arguments_), inputs), ...);
  }
  template <typename T>
  static void fill_one(Given<T>& argument, std::span<const Tensor>& inputs) {
    if constexpr (TensorArgument<T>) {
      argument = inputs[0];
      inputs = inputs.subspan(1);
    } else if constexpr (TensorListArgument<T>) {
      for (Tensor& t : argument) {
        t = inputs[0];
        inputs = inputs.subspan(1);
      }
    }
  }

  template <std::size_t... I>
  std::vector<Tensor> backward(std::span<const Tensor> output_grads, std::index_sequence<I...>) {
    check(output_grads.size() == sizeof...(I),
          "apply: forward() returned {} tensors, and backward() takes the gradient of {}: expected backward() of a "
          "std::span<const Tensor>",
          output_grads.size(), sizeof...(I));
    return listed(function_.backward(output_grads[I]...));
  }
  template <std::size_t... I>
  static Result formed(std::vector<Tensor>& outputs, std::index_sequence<I...>) {
    return Result{std::move(outputs[I])...};
  }

  template <typename T>
  static std::vector<Tensor> listed(T result) {
    if constexpr (std::convertible_to<T, Tensor>) {
      return {std::move(result)};
    } else if constexpr (std::convertible_to<T, std::vector<Tensor>>) {
      return result;
    } else {
      return std::apply([](auto&... tensors) { return std::vector<Tensor>{std::move(tensors)...}; }, result);
    }
  }

  F function_;
  std::tuple<Given<Args>...> arguments_;
};

// Calls F().forward(arguments...). The result has a history if a tensor among the arguments has one.
template <std::derived_from<Function> F, typename... Args>
auto apply(const Args&... arguments) {
  using Call = FunctionCall<F, Args...>;
  std::vector<Tensor> inputs;
  const auto add = [&]<typename T>(const T& argument) {
    if constexpr (TensorArgument<T>) {
      inputs.push_back(argument);
    } else if constexpr (TensorListArgument<T>) {
      const std::span<const Tensor> all = argument;
      inputs.insert(inputs.end(), all.begin(), all.end());
    }
  };
  (add(arguments), ...);
  return Call::formed(apply_function(std::make_shared<Call>(arguments...), inputs));
}

}  // namespace lockstep
