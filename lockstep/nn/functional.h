// A layer made of a function, as torch::nn::Functional.
//
//   Sequential net(Linear(4, 8), relu, [](const Tensor& x) { return x * 2; });
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// y = f(x). The function must have no parameters, because they would not belong to the model; derive from Module then.
class Functional : public Module {
 public:
  explicit Functional(std::function<Tensor(const Tensor&)> f) : f_(std::move(f)) {
    check(f_ != nullptr, "functional: no function");
  }
  Tensor forward(const Tensor& x) override { return f_(x); }

 private:
  std::function<Tensor(const Tensor&)> f_;
};

// What Functional takes: a function of one tensor that is not a module.
template <typename F>
concept TensorFunction =
    !std::derived_from<std::remove_cvref_t<F>, Module> && !std::convertible_to<F, std::shared_ptr<Module>> &&
    std::is_invocable_r_v<Tensor, std::decay_t<F>&, const Tensor&>;

}  // namespace lockstep
