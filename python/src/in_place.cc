#include "in_place.h"

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/tensor/storage.h"
#include "views.h"

namespace lockstep::python {

bool records_write(const Tensor& x, bool value_requires_grad) {
  return grad_enabled() && (x.requires_grad() || value_requires_grad);
}

namespace {

void check_becomes(const char* what, py::handle self) {
  const Tensor x = self.cast<Tensor>();
  check(!x.requires_grad() || x->grad->node != nullptr,
        "{}: {} is a leaf that requires a gradient, and a write in place has none: write under no_grad()", what, x);
  check(!has_views(self),
        "{}: {} is a view, or has views, and a write in place that a gradient flows through would not reach all of "
        "them: compute a new tensor",
        what, x);
}

}  // namespace

void check_write(const char* what, py::handle self) {
  const Tensor x = self.cast<Tensor>();
  if (records_write(x, false)) return check_becomes(what, self);
  for (const Array& part : x->parts) part.storage()->check_writable();
}

void become(const char* what, py::handle self, const Tensor& result) {
  check_becomes(what, self);
  py::detail::load_type<Tensor>(self).operator Tensor&() = result;
  forget_views(self);
}

Tensor written_over(const Tensor& x, const Tensor& elements) {
  if (!grad_enabled() || !x.requires_grad()) return elements;
  return where(full_like(x.detach(), 1).to(DType::boolean), elements, x);
}

py::object assign_in_place(const char* what, py::handle self, const Tensor& result) {
  const Tensor x = self.cast<Tensor>();
  check(result.shape() == x.shape(), "{}: the result has shape {}, but {} cannot hold it", what, result.shape(), x);
  Tensor kept;
  {
    const WithoutLock describing;
    kept = kept_type(x, result);
  }
  if (records_write(x, kept.requires_grad())) {
    if (!kept.requires_grad()) {
      const WithoutLock describing;
      kept = written_over(x, kept);
    }
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

void check_not_shared(py::handle self, py::handle with) {
  const Tensor x = self.cast<Tensor>(), value = with.cast<Tensor>();
  check(!is_of_other_parameter(with, self),
        "data: the value is the memory of another parameter or buffer, which {} would share from then on: expected a "
        "copy, x.data = other.data.clone() or x.data.copy_(other.data), or, to tie two layers, the parameter itself: "
        "b.weight = a.weight",
        x);
  check(!has_views(self) || value->parts[0].storage() == x->parts[0].storage(),
        "data: {} shares its memory with another tensor, which would change, too: use p.data.clone() for the other", x);
}

}  // namespace lockstep::python
