// PyTorch's views. Where PyTorch's result is a view that a program may write through, the library's shares the memory,
// or is a copy. Python tensors know which: a write to a copy also goes to the tensor that it was copied from.
//
//   col = x[:, 0]; col += 1      # a copy: col is written back to x
//   row = x[0]; row += 1         # shares x's memory
//
// A copy does not follow what is written to x later.
#pragma once

#include "bindings.h"

namespace lockstep::python {

// How a Python tensor's elements get to the tensor that PyTorch would have written.
struct Views {
  std::shared_ptr<Views> parent;     // of the tensor that was copied
  std::function<void()> write_back;  // without the interpreter lock
  std::weak_ptr<int> original;       // lives as long as a Python tensor of the memory that was copied
  bool shows() const { return !original.expired() || (parent && parent->shows()); }
  void written() const {
    write_back();
    if (parent) parent->written();
  }
};

TensorMemory& holder_of(py::handle self);
// The Python tensor of y, a view of `self` where PyTorch has one. `back` takes self's elements and y's, both without a
// history, and writes the second to the first; it is called if y is a copy that has been written.
using WriteBack = std::function<void(const Tensor& original, const Tensor& elements)>;
py::object view_of(py::handle self, const Tensor& y, WriteBack back);
// For views that only have another shape.
py::object reshaped_view(py::handle self, const Tensor& y);
// The Python tensor of y, which PyTorch would have copied from `self` if self's elements lie as here: y shares memory,
// but a write to it is not one to self.
py::object independent_of(py::handle self, const Tensor& y);
// The views x[0], x[1], ...
py::tuple rows_of(py::handle self);
// Before a write to self's memory, and after it.
void before_write(py::handle self);
void after_write(py::handle self);
// Whether another Python tensor shares self's memory.
bool is_shared(py::handle self);
// Whether another Python tensor shares self's memory or, in PyTorch, would.
bool has_views(py::handle self);

// view_of(self, f(x), back) for x, the tensor of `self`.
template <typename F>
py::object viewed(py::handle self, const F& f, WriteBack back) {
  const Tensor x = self.cast<const Tensor&>();
  Tensor y;
  {
    const WithoutLock describing;
    y = f(x);
  }
  return view_of(self, y, std::move(back));
}

}  // namespace lockstep::python
