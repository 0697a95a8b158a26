// Models that run one module after the other.
#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/nn/functional.h"
#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// A part of a Sequential: a module, or a function of a tensor.
template <typename T>
concept SequentialPart = std::derived_from<T, Module> || TensorFunction<T>;

// Runs modules one after the other. They are named "0", "1", ..., or as the caller says. A batch norm and the ReLU
// after it run as one operation. A ReLU runs after the max pooling that follows it, with the same bits.
//
//   Sequential net(Conv2d(3, 64, 3), BatchNorm2d(64), ReLU());
//   net.append(Conv2d(64, 64, 3), relu, [](const Tensor& x) { return x * 2; });  // functions become Functional
//   net.at<Conv2d>(0).weight.set_trainable(false);
class Sequential : public Module {
 public:
  Sequential() = default;
  Sequential(Sequential&&) = default;
  // Takes these modules in order. Sequential(Sequential(...)) alone is a move; to nest a Sequential, use append().
  template <SequentialPart M, SequentialPart... More>
  requires(!std::same_as<M, Sequential> || sizeof...(More) > 0) explicit Sequential(M first, More... more) {
    append(std::move(first));
    (append(std::move(more)), ...);
  }
  // An element of the same in braces: Sequential net({Linear(4, 8), ReLU()}).
  class Part {
   public:
    template <SequentialPart M>
    Part(M part) {  // NOLINT(google-explicit-constructor)
      if constexpr (std::derived_from<M, Module>) {
        module_ = std::make_shared<M>(std::move(part));
      } else {
        module_ = std::make_shared<Functional>(std::move(part));
      }
    }

   private:
    friend class Sequential;
    std::shared_ptr<Module> module_;
  };
  Sequential(std::initializer_list<Part> parts) {
    for (const Part& part : parts) append(part.module_);
  }

  // Makes the module in place, from its options or from other arguments: append<Conv2d>({.out_channels = 64}).
  template <typename M>
  Sequential& append(const typename M::Options& options) {
    return append(std::make_shared<M>(options));
  }
  template <typename M, typename A>
  Sequential& append(const A& a, const typename M::Options& options) {
    return append(std::make_shared<M>(a, options));
  }
  template <typename M, typename A, typename B>
  Sequential& append(const A& a, const B& b, const typename M::Options& options) {
    return append(std::make_shared<M>(a, b, options));
  }
  template <typename M, typename A, typename B, typename C>
  Sequential& append(const A& a, const B& b, const C& c, const typename M::Options& options) {
    return append(std::make_shared<M>(a, b, c, options));
  }
  template <typename M, typename... Args>
  Sequential& append(Args&&... args) {
    return append(std::make_shared<M>(std::forward<Args>(args)...));
  }
  template <typename M>
  requires std::is_base_of_v<Module, M> Sequential& append(M&& module) {
    return append(std::make_shared<M>(std::move(module)));
  }
  template <TensorFunction F>
  Sequential& append(F f) {
    return append(std::make_shared<Functional>(std::move(f)));
  }
  template <SequentialPart M, SequentialPart N, SequentialPart... More>
  Sequential& append(M first, N second, More... more) {
    append(std::move(first));
    return append(std::move(second), std::move(more)...);
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

 protected:
  bool takes_any_child() const override { return true; }
};

}  // namespace lockstep
