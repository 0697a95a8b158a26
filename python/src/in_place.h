// Functions that write to a tensor: x += y, x.add_(y), x[i] = y.
#pragma once

#include "bindings.h"

namespace lockstep::python {

// Gives the Python tensor `self` the elements of `result`, in self's type and memory, so that its views see them, too.
// If a gradient is recorded, self becomes the result, with its history, in memory of its own. Throws where PyTorch
// does: for a leaf that requires a gradient, and where whole numbers would have to hold others.
py::object assign_in_place(const char* what, py::handle self, const Tensor& result);

// Whether a write to x records a gradient.
bool records_write(const Tensor& x, bool value_requires_grad);
// Throws if a write to self would be refused whatever is written: before random numbers are drawn for it.
void check_write(const char* what, py::handle self);
// `elements`, of which none is x's, with x's history as well: x's gradient is 0, as in PyTorch.
Tensor written_over(const Tensor& x, const Tensor& elements);
// self is the result, which has memory of its own, from now on, with its history. Throws for a leaf, and if views would
// not see it.
void become(const char* what, py::handle self, const Tensor& result);

// Before self.data = with, which copies the elements: throws where PyTorch, which shares the other memory, would go on
// otherwise: if another tensor, which would keep its elements, shares self's memory, or if `with` is of another
// parameter.
void check_not_shared(py::handle self, py::handle with);

// The same for f(x, ...).
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
