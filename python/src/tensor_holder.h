// Internal: a Python tensor and what it knows of other tensors' memory: see views.h.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "lockstep/autograd/tensor.h"

namespace lockstep::python {

struct Views;  // views.h

// The same for the classes that derive from Tensor, such as parameters.
struct TensorMemory {
  std::shared_ptr<Views> views;
  // Held by all Python tensors of the same memory.
  std::shared_ptr<int> memory;
  // PyTorch would have copied the elements: a write must not reach the others of this memory.
  bool independent = false;
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

}  // namespace lockstep::python

PYBIND11_DECLARE_HOLDER_TYPE(T, lockstep::python::TensorHolder<T>)
