#include "in_place.h"

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor_impl.h"
#include "views.h"

namespace lockstep::python {

bool records_write(const Tensor& x, bool value_requires_grad) {
  return grad_enabled() && (x.requires_grad() || value_requires_grad);
}

void become(const char* what, py::handle self, const Tensor& result) {
  auto& x = self.cast<Tensor&>();
  check(!x.requires_grad() || x->grad->node != nullptr,
        "{}: {} is a leaf that requires a gradient, and a write in place has none: write under no_grad()", what, x);
  check(!has_views(self),
        "{}: {} is a view, or has views, and a write in place that a gradient flows through would not reach all of "
        "them: compute a new tensor",
        what, x);
  x = result;
  forget_views(self);
}

py::object assign_in_place(const char* what, py::handle self, const Tensor& result) {
  const Tensor x = self.cast<const Tensor&>();
  check(result.shape() == x.shape(), "{}: the result has shape {}, but {} cannot hold it", what, result.shape(), x);
  Tensor kept;
  {
    const WithoutLock describing;
    kept = kept_type(x, result);
  }
  if (records_write(x, kept.requires_grad())) {
    become(what, self, kept);
  } else {
    {
      const WithoutLock describing;
      x.copy_(kept);
    }
    after_write(self);
  }
  return py::reinterpret_borrow<py::object>(self);
}

}  // namespace lockstep::python
