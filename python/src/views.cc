#include "views.h"

#include "lockstep/autograd/tensor_impl.h"

namespace lockstep::python {
namespace {

bool shares_memory(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a->parts[0].storage() == b->parts[0].storage();
}

std::shared_ptr<int>& memory_of(py::handle self) {
  std::shared_ptr<int>& memory = holder_of(self).memory;
  if (!memory) memory = std::make_shared<int>(0);
  return memory;
}

}  // namespace

TensorMemory& holder_of(py::handle self) {
  auto* const instance = reinterpret_cast<py::detail::instance*>(self.ptr());
  return instance->get_value_and_holder().holder<TensorMemory>();
}

py::object view_of(py::handle self, const Tensor& y, WriteBack back) {
  const Tensor& x = self.cast<const Tensor&>();
  if (x.operator->() == y.operator->()) return py::reinterpret_borrow<py::object>(self);
  py::object result = py::cast(y);
  TensorMemory& holder = holder_of(result);
  if (shares_memory(x, y)) {
    holder.memory = memory_of(self);
    holder.views = holder_of(self).views;
    holder.independent = holder_of(self).independent;
  } else {
    holder.views = std::make_shared<Views>(Views{.parent = holder_of(self).views,
                                                 .write_back = [original = x.detach(), elements = y.detach(),
                                                                back = std::move(back)] { back(original, elements); },
                                                 .original = memory_of(self)});
  }
  return result;
}

py::object reshaped_view(py::handle self, const Tensor& y) {
  const Tensor& x = self.cast<const Tensor&>();
  if (holder_of(self).views && shares_memory(x, y)) return independent_of(self, y);
  return view_of(self, y, [](const Tensor& original, const Tensor& elements) {
    original.copy_from(elements.reshape(original.shape()));
  });
}

py::object independent_of(py::handle self, const Tensor& y) {
  if (!holder_of(self).views) {
    return view_of(self, y, [](const Tensor&, const Tensor&) {});
  }
  py::object result = py::cast(y);
  if (shares_memory(self.cast<const Tensor&>(), y)) {
    holder_of(result).memory = memory_of(self);
    holder_of(result).independent = true;
  }
  return result;
}

bool is_shared(py::handle self) { return holder_of(self).memory.use_count() > 1; }

bool has_views(py::handle self) {
  const std::shared_ptr<Views>& views = holder_of(self).views;
  return is_shared(self) || (views && views->shows());
}

void before_write(py::handle self) {
  TensorMemory& holder = holder_of(self);
  if (!holder.independent || !is_shared(self)) return;
  auto& x = self.cast<Tensor&>();
  Tensor copy;
  {
    const WithoutLock describing;
    copy = clone(x.detach());
  }
  x = copy;
  holder.independent = false;
  holder.memory = nullptr;
}

void after_write(py::handle self) {
  const std::shared_ptr<Views> views = holder_of(self).views;
  if (!views) return;
  const WithoutLock describing;
  const NoGradGuard no_grad;
  views->written();
}

}  // namespace lockstep::python
