#include "in_place.h"

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor_impl.h"

namespace lockstep::python {

py::object assign_in_place(const char* what, py::handle self, const Tensor& result) {
  auto& x = self.cast<Tensor&>();
  const WithoutLock describing;
  check(result.shape() == x.shape(), "{}: the result has shape {}, but {} cannot hold it", what, result.shape(), x);
  const Tensor kept = kept_type(x, result);
  if (grad_enabled() && (x.requires_grad() || kept.requires_grad())) {
    check(!x.requires_grad() || x->grad->node != nullptr,
          "{}: {} is a leaf that requires a gradient, and a write in place has none: write under no_grad()", what, x);
    x = kept;
  } else {
    x.copy_(kept);
  }
  return py::reinterpret_borrow<py::object>(self);
}

}  // namespace lockstep::python
