// A tensor: a handle to memory on one device, with a shape, an element type and a layout. Copies are handles to the
// same memory. Every tensor is dense. Operations never wait; reading to the host does.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

// What autograd keeps of a tensor; see autograd/node.h.
struct GradMeta;

struct CopyOptions {
  // Return before the copy is done. What reads the result later waits for it; in host memory that means to_vector(),
  // item() and wait(). Host memory that is copied from must not be changed until then. Copies between devices never
  // make the caller wait, who could not tell.
  bool non_blocking = false;
};

class Tensor {
 public:
  Tensor() = default;
  // `view.data` lies within `storage`.
  Tensor(std::shared_ptr<Storage> storage, View view) : storage_(std::move(storage)), view_(view) {}

  // A tensor in host memory with these elements in plain order.
  template <typename T>
  static Tensor from(std::span<const T> values, Shape shape);
  template <typename T>
  static Tensor from(const std::vector<T>& values, Shape shape) {
    return from(std::span<const T>(values), shape);
  }
  // Zeroed host memory.
  static Tensor host(Shape shape, DType dtype = DType::f32);

  bool defined() const { return storage_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const { return view_.shape; }
  std::int64_t size(int axis) const { return view_.shape[axis]; }
  std::int64_t numel() const { return view_.numel(); }
  DType dtype() const { return view_.dtype; }
  Layout layout() const { return view_.layout; }
  // Device() for host memory.
  Device device() const { return storage_ ? storage_->device : Device(); }

  // The shard of the batch that the tensor belongs to, -1 for none (parameters, say). What is computed from a
  // tensor belongs to its shard, too.
  int shard() const { return shard_; }
  Tensor with_shard(int shard) const {
    Tensor t = *this;
    t.shard_ = shard;
    return t;
  }

  // Defined in autograd/tensor_functions.cc, differentiable. The same elements under another shape; plain layout. One
  // extent may be -1: inferred.
  Tensor reshape(Shape shape) const;
  // Defined in autograd/tensor_functions.cc, differentiable. Elements [start, start + count) of axis 0: a handle to the
  // same memory.
  Tensor narrow(std::int64_t start, std::int64_t count) const;

  // Waits until the elements are there. Throws TaskError if what should have made them failed.
  void wait() const;
  // The elements in plain order, converted from T's dtype exactly: T must be the tensor's type (f32 also reads
  // bf16 and f16). Waits.
  template <typename T>
  std::vector<T> to_vector() const;
  // The only element. Waits.
  template <typename T>
  T item() const;
  // "tensor([[1, 2], [3, 4]], f32, cpu:0)", shortened in the middle if long. Waits.
  std::string str() const;

  // Defined in autograd/tensor_functions.cc, differentiable. A copy on another device (Device(): the host); the same
  // handle if it is there already. Gradients go back to where the elements came from.
  Tensor to(Device device, CopyOptions options = {}) const;
  // Defined in autograd/tensor_functions.cc. Overwrites the elements with x's, of the same shape, from any device, type
  // and layout; one of the two has to be on a device. Not differentiable: an error where either was computed from what
  // needs a gradient, unless a NoGradGuard says that this is meant.
  void copy_from(const Tensor& x, CopyOptions options = {}) const;
  // Defined in autograd/tensor_functions.cc, differentiable. Of host memory, a copy in host memory that `device` reads
  // and writes by itself, so that non-blocking copies do not hold anybody up: page-locked for a GPU. The same handle for a
  // CPU device.
  Tensor pin(Device device) const;
  // Defined in autograd/tensor_functions.cc, differentiable. The same handle if nothing changes.
  Tensor to(DType dtype) const;
  Tensor to(Layout layout) const;

  // Defined in autograd/. A leaf whose gradient backward() leaves in grad().
  Tensor& set_requires_grad(bool value);
  bool requires_grad() const;
  // Undefined before backward() reached this leaf; summed over calls until zero_grad().
  Tensor grad() const;
  void zero_grad();
  // Of a scalar: gradients of everything it was computed from.
  void backward() const;
  // The same elements without a history.
  Tensor detach() const {
    Tensor t = *this;
    t.grad_meta_ = nullptr;
    return t;
  }

  const View& view() const { return view_; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  const Resource& resource() const { return storage_->resource; }
  // "[64, 1, 28, 28] f32 on cpu:0", for messages.
  std::string describe() const;

  const std::shared_ptr<GradMeta>& grad_meta() const { return grad_meta_; }
  void set_grad_meta(std::shared_ptr<GradMeta> meta) { grad_meta_ = std::move(meta); }

 private:
  std::shared_ptr<Storage> storage_;
  View view_;
  int shard_ = -1;
  std::shared_ptr<GradMeta> grad_meta_;
};

template <typename T>
Tensor Tensor::from(std::span<const T> values, Shape shape) {
  check(static_cast<std::int64_t>(values.size()) == shape.numel(), "tensor: {} values for shape {}", values.size(),
        shape.str());
  Tensor t = host(shape, dtype_of<T>);
  std::copy(values.begin(), values.end(), t.view().as<T>());
  return t;
}

template <typename T>
T Tensor::item() const {
  check(numel() == 1, "item: the tensor has {} elements, expected 1", numel());
  return to_vector<T>()[0];
}

}  // namespace lockstep
