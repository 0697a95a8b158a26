// Internal: a Python tensor, and what it knows about the memory of other tensors: see views.h.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "lockstep/autograd/tensor.h"

namespace lockstep::python {

struct ViewLink;  // views.h

// Identifies the memory that Python tensors share: each tensor that has a reference to it sees a write.
struct Memory {
  bool of_module = false;  // the memory of a parameter or a buffer
};

// What TensorHolder adds, the same for Tensor and classes that derive from it, such as parameters.
struct TensorMemory {
  // How the elements come from another tensor's; null if they need no ViewLink.
  std::shared_ptr<ViewLink> view;
  // Shared by all Python tensors of the same memory, and by the ViewLinks of tensors that were read from it.
  std::shared_ptr<Memory> memory;
};

// The holder that pybind11 keeps for a Tensor.
template <typename T>
class TensorHolder : public TensorMemory {
 public:
  explicit TensorHolder(T* tensor) : tensor_(tensor) {}
  T* get() const { return tensor_.get(); }

 private:
  std::unique_ptr<T> tensor_;
};

// Returns the TensorMemory of a Python tensor.
inline TensorMemory& memory_beside(pybind11::handle self) {
  auto* const instance = reinterpret_cast<pybind11::detail::instance*>(self.ptr());
  return instance->get_value_and_holder().holder<TensorMemory>();
}

// Call it before each use of x, the tensor of `view`: reads its elements again if their source has been written. Call
// it with the interpreter lock, which it may release, and keep the view alive.
void follow(Tensor& x, ViewLink& view);

}  // namespace lockstep::python

PYBIND11_DECLARE_HOLDER_TYPE(T, lockstep::python::TensorHolder<T>)
