// A tensor: one logical array, wherever its parts lie. It is whole (on one device or in host memory), cut over the
// samples of a batch (each shard on its device), or replicated (equal on several devices: parameters, losses). The same
// operations work on all three: net(x), cross_entropy(net(x), y).backward(), and loss.item() mean the same on one
// device and on eight.
//
// A whole tensor that is combined with a batch must be equal in all processes, because its contribution to a
// parameter's gradient counts once.
//
// Copies are handles to the same tensor. Operations never wait: they describe work, which the devices do later. Reading
// elements on the host waits: in a loop, keep loss.detach() and read it after the epoch.
//
// creation.h has the functions that create tensors, functions.h all functions of tensors.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/tensor/array.h"
#include "lockstep/tensor/copy_options.h"

namespace LOCKSTEP_API lockstep {

struct TensorImpl;  // autograd/tensor_impl.h

// Options of a new tensor.
struct TensorOptions {
  // Default: the values' type in Tensor::from(), i64 for arange() of integers, otherwise f32.
  std::optional<DType> dtype = {};
  Device device = kHost;
};

// Options of a backward pass.
struct BackwardOptions {
  // With several micro-batches per step: the fraction of the step's samples that this loss covers.
  double share = 1;
  // Empty, or for each device an f32 [1] that multiplies the loss (loss scaling).
  std::span<const Array> scales = {};
  // False: accumulates gradients shard by shard, as in PyTorch's no_sync(). The next pass with `sync` sums them over
  // shards and processes.
  bool sync = true;
};

class Tensor {
 public:
  Tensor() = default;
  // Makes a whole tensor.
  Tensor(Array array);  // NOLINT(google-explicit-constructor)

  // Makes a tensor with these elements in plain order: torch.tensor(values).
  template <typename T>
  static Tensor from(std::span<const T> values, Shape shape, const TensorOptions& options = {}) {
    return from(Array::from(values, shape), options);
  }
  template <typename T>
  static Tensor from(const std::vector<T>& values, Shape shape, const TensorOptions& options = {}) {
    return from(Array::from(values, shape), options);
  }
  // Makes a tensor with the elements of an array in host memory.
  static Tensor from(Array values, const TensorOptions& options);
  // Zeroed host memory.
  static Tensor host(Shape shape, DType dtype = DType::f32) { return Array::host(shape, dtype); }

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }
  // The shape of the whole logical array: axis 0 of a cut batch has the samples of all shards of all processes.
  const Shape& shape() const;
  std::int64_t size(int axis) const { return shape()[axis]; }
  std::int64_t numel() const { return shape().numel(); }
  DType dtype() const;
  Layout layout() const;
  // The first device if there are several; kHost for host memory.
  Device device() const;
  std::vector<Device> devices() const;
  // The parts of a cut or replicated tensor as whole tensors, without a history.
  std::vector<Tensor> shards() const;

  // Differentiable. Returns the same elements with another shape; plain layout. One extent may be -1, which is
  // inferred. It is an error to split the samples of a cut axis.
  Tensor reshape(Shape shape) const;
  // Differentiable; see slice.h. narrow() returns elements [start, start + length) of an axis; select() returns
  // element `index` and removes the axis. The axis must not be the batch axis.
  Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  Tensor select(int dim, std::int64_t index) const;
  // x[i] is select(0, i).
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  // A slice of axis 0 shares the memory.
  Tensor narrow(std::int64_t start, std::int64_t count) const;

  // Waits until the elements are there. Throws TaskError if the task that computes them failed.
  void wait() const;
  // Returns the elements in plain order. T must be the tensor's type, except that float also reads bf16 and f16. Waits.
  // If other processes have some of the rows, throws an Error that suggests gather().
  template <typename T>
  std::vector<T> to_vector() const {
    static_assert(sizeof(DTypeOf<T>::value) > 0);
    return readable("to_vector").to_vector<T>();
  }
  // Returns the only element. T is as in to_vector(). Waits: in a loop, keep loss.detach() and read it later.
  template <typename T = float>
  T item() const {
    static_assert(sizeof(DTypeOf<T>::value) > 0);
    return readable("item").item<T>();
  }
  // The address of the elements, in plain order, of a tensor in host memory. T is the tensor's type, or that type
  // const, for elements that must not be written. Waits. The address is valid as long as a handle to the tensor.
  template <typename T>
  T* data_ptr() const {
    static_assert(sizeof(DTypeOf<std::remove_const_t<T>>::value) > 0);
    return static_cast<T*>(host_data(dtype_of<std::remove_const_t<T>>, !std::is_const_v<T>));
  }
  // Returns "tensor([[1, 2], [3, 4]], f32, cpu:0)". Tensors of more than 1,000 elements show only the first and last
  // three of each axis. Waits.
  std::string str() const;

  // Differentiable. Returns a whole copy on `device` (kHost: host memory), or the same handle if the tensor is already
  // there. Gradients flow back to the original device. A cut tensor is an error; use gather().
  Tensor to(Device device, CopyOptions options = {}) const;
  // Returns the elements in host memory, without a history: the same memory if they are there already, otherwise a
  // copy, as PyTorch's cpu(). Reads what to_vector() reads. Waits.
  Tensor to_host() const;
  // Copies x's elements into this tensor. Shapes must agree; device, type, and layout may differ. Memory must not
  // overlap. One of the two is on a device. Not differentiable: outside a NoGradGuard, neither may have a history.
  void copy_from(const Tensor& x, CopyOptions options = {}) const;
  // Differentiable. Returns a copy in host memory that `device` can access directly (page-locked for a GPU), so that
  // non-blocking copies block no thread. For a CPU device, returns the same handle.
  Tensor pin(Device device) const;
  // Differentiable. Return the same handle if nothing changes.
  Tensor to(DType dtype) const;
  Tensor to(Layout layout) const;

  // True makes this tensor a leaf: backward() adds its gradient to grad(). False drops the gradient. Throws for a
  // tensor that is not floating, for a parameter, and for a result with a history.
  Tensor& set_requires_grad(bool value);
  bool requires_grad() const;
  // The gradient, summed over backward() calls since zero_grad(). Undefined before the first one. Its memory belongs to
  // this tensor alone.
  Tensor grad() const;
  void zero_grad();
  // Computes the gradients of all leaves that this scalar was computed from. Consumes the graph: a second call throws.
  void backward(const BackwardOptions& options = {}) const;
  // Returns the same elements without a history.
  Tensor detach() const;

  // "[64, 1, 28, 28] f32 on cpu:0", for messages.
  std::string describe() const;

  // For the library's own code: autograd/tensor_impl.h.
  const TensorImpl* operator->() const;

 private:
  friend struct TensorImpl;
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}
  // Returns all elements in one array that the host can wait for.
  Array readable(std::string_view what) const;
  void* host_data(DType dtype, bool writes) const;

  std::shared_ptr<TensorImpl> impl_;
};

// `out << x` prints the elements, as str() does. Shapes print as "[64, 10]", devices as "cpu:0". With fmt, "{}" prints
// a tensor's describe().
std::ostream& operator<<(std::ostream& out, const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace lockstep
