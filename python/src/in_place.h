// Functions that write to a tensor: x += y, x.add_(y), x[i] = y.
#pragma once

#include "bindings.h"

namespace lockstep::python {

// Gives the Python tensor `self` the elements of `result`, in self's type and memory, so that its views see them, too.
// If a gradient is recorded, self becomes the result, with its history, in memory of its own. Throws where PyTorch
// does: for a leaf that requires a gradient, and if an integer tensor would have to hold fractions.
py::object assign_in_place(const char* what, py::handle self, const Tensor& result);

// Returns whether a write to x records a gradient.
bool records_write(const Tensor& x, bool value_requires_grad);
// Throws if any write to self would be an error. Call it before random numbers are drawn for the write.
void check_write(const char* what, py::handle self);
// Returns `elements`, which do not depend on x, with x's history as well: x's gradient is 0, as in PyTorch.
Tensor written_over(const Tensor& x, const Tensor& elements);
// Makes self the result, which has memory of its own, with the result's history. Throws for a leaf, and if views would
// not see the change.
void become(const char* what, py::handle self, const Tensor& result);

// Checks self.data = with, which copies the elements, while PyTorch shares the memory of `with`. Throws if the results
// would differ: if another tensor, which would keep its elements in PyTorch, shares self's memory, or if `with` is of
// another parameter.
void check_not_shared(py::handle self, py::handle with);

// assign_in_place() of f(x, ...).
template <typename F>
py::object write_in_place(const char* what, py::handle self, const F& f) {
  const Tensor x = self.cast<Tensor>();
  Tensor result;
  {
    const WithoutLock describing;
    result = f(x);
  }
  if (result.is_same(x)) return py::reinterpret_borrow<py::object>(self);
  return assign_in_place(what, self, result);
}

}  // namespace lockstep::python
