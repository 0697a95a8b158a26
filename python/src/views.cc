#include "views.h"

#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/tensor/storage.h"

namespace lockstep::python {
namespace {

std::shared_ptr<Memory>& memory_of(py::handle self) {
  std::shared_ptr<Memory>& memory = memory_beside(self).memory;
  if (!memory) {
    memory = std::make_shared<Memory>();
    memory->of_module = PyObject_TypeCheck(self.ptr(), live_tensor_type) != 0;
  }
  return memory;
}

// Returns another handle of the same elements and history.
Tensor alias(const Tensor& x) { return TensorImpl::tensor(std::make_shared<TensorImpl>(*x.operator->())); }

bool has_history(const Tensor& x) { return x.requires_grad() && x->grad->node != nullptr; }

// Returns whether another handle, or a NumPy array, can write the memory.
bool is_used_elsewhere(const Tensor& x) {
  const std::shared_ptr<Storage>& storage = x->parts[0].storage();
  return TensorImpl::handles(x) > 1 || storage.use_count() > 1 || storage->host != nullptr;
}

class GradMode {
 public:
  explicit GradMode(bool enabled) : before_(grad_enabled()) { set_grad_enabled(enabled); }
  ~GradMode() { set_grad_enabled(before_); }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  const bool before_;
};

// Returns a new tensor with self's elements, if self is a copy. Takes the copy's memory, unless self has a gradient,
// because self must not change then.
Tensor own_elements(py::handle self) {
  const Tensor& x = self.cast<Tensor>();
  if (!x.requires_grad() && memory_beside(self).view->give_memory()) return alias(x);
  const WithoutLock describing;
  return clone(x);
}

}  // namespace

std::uint64_t writes_to(const Tensor& x) {
  std::uint64_t writes = 0;
  for (const Array& part : x->parts) writes += part.storage()->written();
  return writes;
}

ViewLink::ViewLink(std::shared_ptr<ViewLink> of, Tensor from, std::optional<Parameter> of_parameter, Tensor now,
                   ViewKind how, const std::shared_ptr<Memory>& seen)
    : strides(std::move(how.strides)), elements(std::move(now)), shares(of && shares_memory(of->elements, elements)),
      parent_(std::move(of)), parameter_(std::move(of_parameter)), original_(std::move(from)),
      read_(std::move(how.read)), back_(std::move(how.back)), shown_(seen) {
  const Tensor from_now = base();
  note(from_now, how.writes.value_or(writes_to(from_now)));
}

ViewLink::~ViewLink() = default;

bool ViewLink::shows(const std::shared_ptr<Memory>& own) const {
  // Besides this tensor and the links that its elements come from, each holder of one of these memories sees the write,
  // even another view of a tensor that no longer exists.
  const auto others = [&](const std::shared_ptr<Memory>& memory) {
    if (!memory) return false;
    long known = memory == own;
    for (const ViewLink* link = this; link != nullptr; link = link->parent_.get()) known += link->shown_ == memory;
    return memory.use_count() > known;
  };
  if (others(own)) return true;
  for (const ViewLink* link = this; link != nullptr; link = link->parent_.get()) {
    if (others(link->shown_)) return true;
  }
  return false;
}

bool ViewLink::reads_module(const std::shared_ptr<Memory>& but) const {
  for (const ViewLink* link = this; link != nullptr; link = link->parent_.get()) {
    if (link->shown_ && link->shown_->of_module && link->shown_ != but) return true;
  }
  return false;
}

Tensor ViewLink::base() const { return parent_ ? parent_->elements : parameter_ ? parameter_->tensor() : original_; }

bool ViewLink::stale(const Tensor& base) const {
  if (shares) return !shares_memory(elements, base);
  return source_.lock() != base->parts[0].storage() || version_ != writes_to(base);
}

void ViewLink::note(const Tensor& base, std::uint64_t writes) {
  source_ = base->parts[0].storage();
  version_ = writes;
}

void ViewLink::refresh() {
  // Copies the pointer, because another thread may refresh or cut this link while the lock is released.
  if (const std::shared_ptr<ViewLink> parent = parent_) parent->refresh();
  const Tensor from = base();
  if (!from.defined() || !stale(from)) return;
  // A write from now on is for the next use.
  const std::uint64_t writes = writes_to(from);
  const Tensor before = elements;
  Tensor now;
  {
    const WithoutLock describing;
    const GradMode mode(has_history(before));
    now = read_(has_history(before) ? from : from.detach());
    if (before.requires_grad() && !has_history(before)) {
      now = now.detach();
      TensorImpl::of(now).grad = before->grad;  // stays the same leaf
    }
  }
  elements = now;
  note(from, writes);
}

void ViewLink::written() {
  const std::shared_ptr<ViewLink> parent = parent_;
  const Tensor to = base();
  if (!to.defined()) return;
  try {
    if (!shares) {
      {
        const Tensor from = elements;
        const WithoutLock describing;
        const NoGradGuard no_grad;
        back_(to.detach(), from.detach());
      }
      note(to, writes_to(to));
    }
    if (parent) parent->written();
  } catch (...) {
    source_.reset();
    throw;
  }
}

bool ViewLink::give_memory() {
  ViewLink* owner = this;
  while (owner->shares && owner->has_base()) owner = owner->parent_.get();
  // Links that share the memory and were cut from the owner would not follow it.
  owner->cut_if_unreachable();
  if (!owner->has_base()) return false;
  owner->source_.reset();
  return true;
}

bool ViewLink::is_reachable() const {
  if (!has_base()) return false;
  if (parameter_) return true;
  if (!parent_) return is_used_elsewhere(original_);
  // Other views of the parent see a write, even if the parent itself no longer exists.
  const bool is_shared = parent_.use_count() > 1 || is_used_elsewhere(parent_->elements);
  return parent_->is_reachable() || (!shares && is_shared);
}

void ViewLink::cut_if_unreachable() {
  if (is_reachable()) return;
  // Keeps the link if elements repeat, because a write to one of them must be rejected, also through a part of them.
  for (const ViewLink* link = this; link != nullptr; link = link->parent_.get()) {
    if (repeats_elements(link->elements.shape(), link->strides)) return;
  }
  parent_ = nullptr;
  original_ = Tensor();
}

void follow(Tensor& x, ViewLink& view) {
  view.refresh();
  if (!x.is_same(view.elements)) x = view.elements;
}

py::object unlinked_view(py::handle self, const Tensor& y, bool& is_linked) {
  const Tensor& x = self.cast<Tensor>();
  is_linked = true;
  if (x.is_same(y)) return py::reinterpret_borrow<py::object>(self);
  py::object view = py::cast(y);
  const bool shares = shares_memory(x, y);
  if (shares) memory_beside(view).memory = memory_of(self);
  is_linked = shares && !memory_beside(self).view;
  return view;
}

Strides strides_of(py::handle self) {
  const std::shared_ptr<ViewLink>& link = memory_beside(self).view;
  return link ? link->strides : plain_strides(self.cast<Tensor>().shape());
}

void link(py::handle self, py::handle view, ViewKind kind) {
  const Tensor& x = self.cast<Tensor>();
  const Tensor& y = view.cast<Tensor>();
  const std::shared_ptr<ViewLink>& parent = memory_beside(self).view;
  std::optional<Parameter> parameter;
  Tensor original;
  if (parent) {
    parent->cut_if_unreachable();
  } else if (PyObject_TypeCheck(self.ptr(), live_tensor_type)) {
    parameter = self.cast<const LiveTensor&>().parameter;
  } else {
    original = y.requires_grad() ? x : x.detach();
  }
  memory_beside(view).view =
      std::make_shared<ViewLink>(parent, original, parameter, y, std::move(kind), memory_of(self));
}

py::object reshaped_view(py::handle self, const Tensor& y) {
  const Shape shape = y.shape();
  const Shape before = self.cast<Tensor>().shape();
  bool is_linked = false;
  py::object view = unlinked_view(self, y, is_linked);
  if (is_linked) return view;
  const auto strides = reshaped_strides(before, strides_of(self), shape);
  if (!strides) {
    Tensor own = own_elements(self);
    {
      const WithoutLock describing;
      own = own.reshape(shape);
    }
    return py::cast(own);
  }
  link(self, view,
       {.read = [shape](const Tensor& x) { return x.reshape(shape); },
        .back = [](const Tensor& x, const Tensor& elements) { x.copy_from(elements.reshape(x.shape())); },
        .strides = *strides});
  return view;
}

py::object contiguous_of(py::handle self) {
  const Tensor x = self.cast<Tensor>();
  const std::shared_ptr<ViewLink>& view = memory_beside(self).view;
  if (x.layout() == Layout::plain && (!view || is_plain(x.shape(), view->strides))) {
    return py::reinterpret_borrow<py::object>(self);
  }
  if (view) return py::cast(own_elements(self).contiguous());
  return view_of(self, x.contiguous(), [](const Strides& strides) {
    return ViewKind{.read = [](const Tensor& t) { return t.contiguous(); },
                    .back = [](const Tensor& t, const Tensor& elements) { t.copy_from(elements); },
                    .strides = strides};
  });
}

py::object clone_of(py::handle self) {
  const Tensor x = self.cast<Tensor>();
  Tensor y;
  {
    const WithoutLock describing;
    y = clone(x);
  }
  py::object own = py::cast(y);
  const Strides strides = dense_strides(x.shape(), strides_of(self));
  if (!is_plain(x.shape(), strides)) memory_beside(own).view = std::make_shared<ViewLink>(strides, y);
  return own;
}

bool has_views(py::handle self) {
  const TensorMemory& holder = memory_beside(self);
  if (holder.view) return holder.view->shows(holder.memory);
  return holder.memory && holder.memory.use_count() > 1;
}

bool is_of_other_parameter(py::handle x, py::handle self) {
  const std::shared_ptr<Memory>& own = memory_beside(self).memory;
  const TensorMemory& holder = memory_beside(x);
  if (x.is(self) || (own && holder.memory == own)) return false;
  if (PyObject_TypeCheck(x.ptr(), live_tensor_type) || (holder.memory && holder.memory->of_module)) return true;
  return holder.view && holder.view->reads_module(own);
}

void forget_views(py::handle self) { memory_beside(self) = {}; }

bool is_copy(py::handle self) {
  const std::shared_ptr<ViewLink>& view = memory_beside(self).view;
  if (!view) return false;
  view->cut_if_unreachable();
  return view->has_base();
}

void after_write(py::handle self) {
  if (const std::shared_ptr<ViewLink> view = memory_beside(self).view) view->written();
}

}  // namespace lockstep::python
