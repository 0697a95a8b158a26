// Internal: a Python tensor and what it knows of other tensors' memory: see views.h.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "lockstep/autograd/tensor.h"

namespace lockstep::python {

struct ViewLink;  // views.h

// The memory of a tensor, as Python's tensors see it: who holds one sees a write to it.
struct Memory {
  bool of_module = false;  // of a parameter or a buffer
};

// The same for the classes that derive from Tensor, such as parameters.
struct TensorMemory {
  // Of a tensor whose elements were copied from another one's; null for others.
  std::shared_ptr<ViewLink> view;
  // Held by all Python tensors of the same memory, and by the ViewLinks of those that were read from it.
  std::shared_ptr<Memory> memory;
};

// What pybind11 keeps beside a Tensor.
template <typename T>
class TensorHolder : public TensorMemory {
 public:
  explicit TensorHolder(T* tensor) : tensor_(tensor) {}
  T* get() const { return tensor_.get(); }

 private:
  std::unique_ptr<T> tensor_;
};

// A Python tensor's.
inline TensorMemory& memory_beside(pybind11::handle self) {
  auto* const instance = reinterpret_cast<pybind11::detail::instance*>(self.ptr());
  return instance->get_value_and_holder().holder<TensorMemory>();
}

// Before a use of x, the tensor of `view`: reads its elements anew if the tensor that they come from has been written.
// Call it with the interpreter lock, which it may release, and hold the view.
void follow(Tensor& x, ViewLink& view);

}  // namespace lockstep::python

PYBIND11_DECLARE_HOLDER_TYPE(T, lockstep::python::TensorHolder<T>)
