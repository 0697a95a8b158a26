// An array: a handle to memory on one device, with a shape, an element type, and a layout. Copies are handles to the
// same memory. Every array is dense. Operations never wait; reading elements on the host waits. Tensors
// (autograd/tensor.h) are made of arrays.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/tensor/view.h"

namespace LOCKSTEP_API lockstep {

class Resource;  // engine/resource.h
struct Storage;  // tensor/storage.h

class Array {
 public:
  Array() = default;
  // `view.data` lies within `storage`.
  Array(std::shared_ptr<Storage> storage, View view) : storage_(std::move(storage)), view_(view) {}

  // Makes an array in host memory with these elements in plain order.
  template <typename T>
  static Array from(std::span<const T> values, Shape shape);
  template <typename T>
  static Array from(const std::vector<T>& values, Shape shape) {
    return from(std::span<const T>(values), shape);
  }
  static Array from(const std::vector<bool>& values, Shape shape);
  // Makes an array of zeros in host memory.
  static Array host(Shape shape, DType dtype = DType::f32);

  bool defined() const { return storage_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const { return view_.shape; }
  std::int64_t size(int axis) const { return view_.shape[axis]; }
  std::int64_t numel() const { return view_.numel(); }
  DType dtype() const { return view_.dtype; }
  Layout layout() const { return view_.layout; }
  // kHost for host memory.
  Device device() const;

  // Index of the array's shard, or -1 if it has none, as for a parameter. Results inherit the shard.
  int shard() const { return shard_; }
  Array with_shard(int shard) const {
    Array t = *this;
    t.shard_ = shard;
    return t;
  }

  // Waits until the elements are computed. Throws TaskError if the task that computes them failed.
  void wait() const;
  // Waits, then returns the elements in plain order. Throws for a GPU's memory, which the host cannot read: see
  // ops::host_readable(). T must be the element type, except that float also reads bf16 and f16, and std::uint8_t also
  // reads bools, as 0 and 1.
  template <typename T>
  std::vector<T> to_vector() const;
  // Waits, then returns the only element.
  template <typename T = float>
  T item() const;
  const View& view() const { return view_; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  const Resource& resource() const;
  // "[64, 1, 28, 28] f32 on cpu:0", for messages.
  std::string describe() const;

 private:
  std::shared_ptr<Storage> storage_;
  View view_;
  int shard_ = -1;
};

template <typename T>
Array Array::from(std::span<const T> values, Shape shape) {
  check(static_cast<std::int64_t>(values.size()) == shape.numel(),
        "array: {} values for shape {}, expected as many as it has elements", values.size(), shape);
  Array t = host(shape, dtype_of<T>);
  std::copy(values.begin(), values.end(), t.view().as<T>());
  return t;
}

template <typename T>
T Array::item() const {
  static_assert(sizeof(DTypeOf<T>::value) > 0);
  check(numel() == 1, "item: {} elements, expected 1", numel());
  return to_vector<T>()[0];
}

}  // namespace lockstep
