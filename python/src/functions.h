// Binds functions of tensors once: as lockstep.f(x, ...), and as x.f(...) if PyTorch has the method.
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
  // Binds a function and a method, which are the same object. The first argument is the tensor, "input"_a.
  template <typename F, typename... Extra>
  void both(const char* name, F&& f, const Extra&... extra) const {
    function(name, std::forward<F>(f), extra...);
    also_method(name);
  }
  // Binds x.name(...) to a function that is bound already, under this or another name.
  void also_method(const char* name, const char* function = nullptr) const {
    const py::object bound = m.attr(function == nullptr ? name : function);
    tensor.attr(name) = py::reinterpret_steal<py::object>(PyInstanceMethod_New(bound.ptr()));
  }
};

// The parts of functions.cc.
void add_elementwise(const FunctionsOf& f);
void add_reductions(const FunctionsOf& f);
void add_shapes(const FunctionsOf& f);
void add_indexed(const FunctionsOf& f);  // gather, scatter, sort, unique
void add_network(const FunctionsOf& f);  // activations, convolutions, pools, norms, attention
void add_losses(const FunctionsOf& f);

// Returns a result over all axes as PyTorch does: without axes.
inline Tensor scalar(const Tensor& x) { return x.dim() == 1 && x.numel() == 1 ? x.reshape({}) : x; }

// Returns a named tuple of two tensors, such as (values, indices) of max. Call it with the interpreter lock.
py::object named_pair(const char* name, const char* first, const char* second, const Tensor& a, const Tensor& b);

}  // namespace lockstep::python
