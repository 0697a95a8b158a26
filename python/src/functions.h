// How functions of tensors are bound: once, as lockstep.f(x, …), and as x.f(…) where PyTorch has the method.
//
//   const FunctionsOf f{m, tensor};
//   f.both("softmax", [](const Tensor& input, int dim) { return softmax(input, dim); }, "input"_a, "dim"_a = -1);
//   f.function("linear", ...);   // lockstep.linear alone
//   f.method("view", ...);       // x.view alone
#pragma once

#include <utility>

#include "bindings.h"

namespace lockstep::python {

struct FunctionsOf {
  py::module_& m;
  TensorClass& tensor;

  template <typename F, typename... Extra>
  void function(const char* name, F&& f, const Extra&... extra) const {
    m.def(name, std::forward<F>(f), extra..., released());
  }
  template <typename F, typename... Extra>
  void method(const char* name, F&& f, const Extra&... extra) const {
    tensor.def(name, std::forward<F>(f), extra..., released());
  }
  // The first argument is the tensor, "input"_a.
  template <typename F, typename... Extra>
  void both(const char* name, F&& f, const py::arg& input, const Extra&... extra) const {
    function(name, f, input, extra...);
    method(name, f, extra...);
  }
};

}  // namespace lockstep::python
