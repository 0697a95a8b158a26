// Activation checkpointing, as torch.utils.checkpoint: forward keeps the inputs of a function in place of what its
// operations save, and backward() calls the function again. So a deep model takes the memory of its blocks' inputs and
// of one block, for the time of a second forward pass.
//
//   Tensor y = x;
//   for (Block& block : blocks) y = checkpoint(block, y);
//   Tensor z = checkpoint([&](const Tensor& a, const Tensor& b) { return mlp(relu(a) * b); }, y, mask);
//
// Results, gradients, running statistics, and random numbers have the same bits as without it, on any number of
// devices. Random numbers are drawn once: the second call gets the same ones, and the random state does not advance.
// The second call has the autocast mode and the training modes of the first, and does not move running statistics
// again.
//
// The function must do the same in both calls. It may use parameters and other tensors, which get their gradients;
// checkpoints may contain checkpoints. What it changes outside, other than running statistics of layers, it changes
// twice, unless checkpoint_once() changes it. backward() throws an Error if
// - memory that the function read was changed in place, as by an optimizer's step, or a parameter was replaced;
// - results differ in number, shape, type, or place, or the function computes something else: other operations, or of
//   other operands that need a gradient, such as a captured tensor that an operation in place has replaced;
// - what the function draws differs in number.
// Not noticed: a number of the host that the function captures and that changed, a tensor without a gradient in whose
// place another one stands (a buffer of a module is noticed), and a seed that the function sets, which it sets twice.
// backward() in the function is an error, because it would add its gradients twice; grad() is not.
//
// Without recording (NoGradGuard), and in a trace, as of an export, a checkpoint is a plain call.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/base/random.h"

namespace LOCKSTEP_API lockstep {

// A function of a list of tensors.
using CheckpointFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

// Returns f(inputs), in f's form. Undefined inputs are passed on. backward() of what f returned calls f again, with
// inputs that have the same elements and other histories. f must not keep references to what ends before that.
std::vector<Tensor> checkpoint(const CheckpointFunction& f, std::span<const Tensor> inputs);

// For functions that checkpoints call. checkpoint_once() calls f, which changes what lasts, such as running statistics
// of a layer of your own, in the first call alone; what f reads may change later. checkpoint_key() returns draw() of a
// random state of your own, and in the second call what it returned in the first. Elsewhere, both just call.
void checkpoint_once(const std::function<void()>& f);
RandomKey checkpoint_key(const std::function<RandomKey()>& draw);

// Returns f(xs...). f returns a tensor, a std::vector of tensors, or several as a std::tuple, pair, or array; its
// arguments are const Tensor&. A module, or another f that cannot be copied, must live until backward(), unless it is
// moved here; other functions are copied.
template <typename F, typename... Xs>
requires(sizeof...(Xs) > 0 && (std::is_convertible_v<const Xs&, Tensor> && ...)) auto checkpoint(F&& f,
                                                                                                 const Xs&... xs) {
  using Given = std::remove_reference_t<F>;
  const auto keep = [](auto&& function) {
    if constexpr (std::is_lvalue_reference_v<F> && !std::copy_constructible<std::decay_t<F>>) {
      return std::shared_ptr<Given>(std::shared_ptr<void>(), &function);  // not owned
    } else {
      return std::make_shared<std::decay_t<F>>(std::forward<F>(function));
    }
  };
  const auto call = []<typename G, std::size_t... I>(G& g, std::span<const Tensor> in, std::index_sequence<I...>) {
    return g(in[I]...);
  };
  constexpr std::index_sequence_for<Xs...> each;
  const auto kept = keep(std::forward<F>(f));
  using Result = decltype(call(*kept, std::span<const Tensor>(), each));
  const CheckpointFunction erased = [kept, call](std::span<const Tensor> in) -> std::vector<Tensor> {
    Result result = call(*kept, in, std::index_sequence_for<Xs...>());
    if constexpr (std::is_convertible_v<Result, Tensor>) {
      return {Tensor(std::move(result))};
    } else if constexpr (std::is_convertible_v<Result, std::vector<Tensor>>) {
      return result;
    } else {
      return std::apply([](const auto&... t) { return std::vector<Tensor>{t...}; }, result);
    }
  };
  const Tensor inputs[] = {xs...};
  std::vector<Tensor> results = checkpoint(erased, std::span<const Tensor>(inputs));
  if constexpr (std::is_convertible_v<Result, Tensor>) {
    return results[0];
  } else if constexpr (std::is_convertible_v<Result, std::vector<Tensor>>) {
    return results;
  } else {
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return Result{results[I]...}; }
    (std::make_index_sequence<std::tuple_size_v<Result>>());
  }
}

}  // namespace lockstep
