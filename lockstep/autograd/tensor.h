// A tensor: one logical array, wherever its parts lie. It is whole (on one device or in host memory), cut over the
// samples of a batch (each shard on its device), or replicated (equal on several devices: parameters, losses).
// Operations treat all alike: net(x), cross_entropy(net(x), y).backward(), and loss.item() mean the same on one device
// and on eight.
//
// A whole tensor that meets a batch must be equal in all processes, because its contribution to a parameter's gradient
// counts once.
//
// Copies are handles to the same tensor. Operations never wait; reading on the host does.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tensor/array.h"

namespace LOCKSTEP_API lockstep {

struct GradMeta;  // autograd/node.h
class Placement;  // autograd/placement.h

enum class Kind : std::uint8_t { whole, cut, replicated };

// The batch axis of a tensor. Its extent is outer * samples * inner, so [B, T, C] can become [B * T, C] and back
// without moving an element.
struct Cut {
  int axis = 0;
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  bool operator==(const Cut&) const = default;
};

// Options of a new tensor.
struct TensorOptions {
  // Default: that of the values in Tensor::from(), i64 for arange() of integers, f32 for all else.
  std::optional<DType> dtype = {};
  Device device = kHost;
};

// Options of a backward pass.
struct BackwardOptions {
  // With several micro-batches per step: the fraction of the step's samples that this loss covers.
  double share = 1;
  // Empty, or for each device an f32 [1] that multiplies the loss (loss scaling).
  std::span<const Array> scales = {};
  // False: gradients are accumulated shard by shard; the next pass with `sync` sums them over shards and processes.
  // PyTorch's no_sync().
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
  // The same with the elements of an array in host memory.
  static Tensor from(Array values, const TensorOptions& options);
  // Zeroed host memory.
  static Tensor host(Shape shape, DType dtype = DType::f32) { return Array::host(shape, dtype); }
  // Makes a whole tensor from one shard, as per_shard() does. `at` must describe that shard only.
  static Tensor of_shard(std::shared_ptr<const Placement> at, Array array);
  // parts[i] belongs to slot i. `cut` tells which axis has the samples.
  static Tensor cut(std::shared_ptr<const Placement> at, Cut cut, std::vector<Array> parts);
  // `at` is the batch that the values were computed from, or null for parameters. The batch's other devices get a copy
  // of the first part when they need it.
  static Tensor replicated(std::vector<Array> parts, std::shared_ptr<const Placement> at = nullptr);

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }
  Kind kind() const { return impl_ ? impl_->kind : Kind::whole; }
  // The shape of the whole logical array: axis 0 of a cut batch has the samples of all shards of all processes.
  const Shape& shape() const { return impl_ ? impl_->shape : kNoShape; }
  std::int64_t size(int axis) const { return shape()[axis]; }
  std::int64_t numel() const { return shape().numel(); }
  DType dtype() const { return impl_ ? impl_->parts[0].dtype() : DType::f32; }
  Layout layout() const { return impl_ ? impl_->parts[0].layout() : Layout::plain; }
  // The first device if there are several; kHost for host memory.
  Device device() const { return impl_ ? impl_->parts[0].device() : Device(); }
  std::vector<Device> devices() const;

  // A cut tensor has one part per slot. A replicated tensor has one part per device that already holds a copy.
  const std::vector<Array>& parts() const;
  // Each part as a whole tensor, without a history.
  std::vector<Tensor> shards() const { return {parts().begin(), parts().end()}; }
  // Null for parameters and whole tensors. Inside per_shard(), whole tensors also have a placement.
  const std::shared_ptr<const Placement>& placement() const;
  Cut cut() const { return impl_ ? impl_->cut : Cut(); }
  // The elements of an uncut tensor on `device`. Throws if they are not there.
  Array on(Device device) const;
  // The elements of an uncut tensor, from its first part.
  const Array& array() const;
  const View& view() const { return array().view(); }
  const std::shared_ptr<Storage>& storage() const { return array().storage(); }
  const Resource& resource() const { return array().resource(); }

  // Differentiable. Returns the same elements with another shape; plain layout. One extent may be -1, which is
  // inferred. It is an error to split the samples of a cut axis.
  Tensor reshape(Shape shape) const;
  // Differentiable; see functions.h. narrow() returns elements [start, start + length) of an axis; select() returns
  // element `index` and removes the axis. The axis must not be the batch axis.
  Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  Tensor select(int dim, std::int64_t index) const;
  // x[i] is select(0, i).
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  // A slice of axis 0 shares the memory.
  Tensor narrow(std::int64_t start, std::int64_t count) const;

  // Waits until the elements are there. Throws TaskError if the task that computes them failed.
  void wait() const;
  // Returns the elements in plain order. T must be the tensor's type; f32 also reads bf16 and f16. Waits. Reading rows
  // of other processes is an error that names gather().
  template <typename T>
  std::vector<T> to_vector() const {
    return readable("to_vector").to_vector<T>();
  }
  // Returns the only element: loss.item(). T is as in to_vector(). Waits.
  template <typename T = float>
  T item() const {
    return readable("item").item<T>();
  }
  // Returns "tensor([[1, 2], [3, 4]], f32, cpu:0)". Tensors of more than 1,000 elements show only the first and last
  // three of each axis. Waits.
  std::string str() const;

  // Differentiable. Returns a whole copy on `device` (kHost: host memory), or the same handle if the tensor is already
  // there. Gradients flow back to the original device. A cut tensor is an error; use gather().
  Tensor to(Device device, CopyOptions options = {}) const;
  // Returns a copy in host memory, without a history. Reads what to_vector() reads. Waits.
  Tensor to_host() const;
  // Copies x's elements into this tensor. Shapes must agree; device, type, and layout may differ. At least one of the
  // two tensors must be on a device. Not differentiable: outside a NoGradGuard, neither tensor may have a history.
  void copy_from(const Tensor& x, CopyOptions options = {}) const;
  // Differentiable. Copies host memory to host memory that `device` reads and writes by itself (page-locked for a GPU),
  // so that non-blocking copies block no thread. Returns the same handle for a CPU device.
  Tensor pin(Device device) const;
  // Differentiable. The same handle if nothing changes.
  Tensor to(DType dtype) const;
  Tensor to(Layout layout) const;

  // Makes a leaf whose gradient backward() leaves in grad().
  Tensor& set_requires_grad(bool value);
  bool requires_grad() const { return grad_meta() != nullptr; }
  // The gradient, summed over backward() calls since zero_grad(). Undefined before the first one.
  Tensor grad() const;
  void zero_grad();
  // Computes the gradients of everything that this scalar was computed from.
  void backward(const BackwardOptions& options = {}) const;
  // Returns the same elements without a history.
  Tensor detach() const;

  // "[64, 1, 28, 28] f32 on cpu:0", for messages.
  std::string describe() const;

  const std::shared_ptr<GradMeta>& grad_meta() const;
  void set_grad_meta(std::shared_ptr<GradMeta> meta);
  // Keeps arrays alive as long as this tensor. Otherwise a compute lane could reuse a block that an exchange with other
  // processes still reads, and would wait for them.
  void hold(std::vector<Array> arrays) { impl_->held = std::move(arrays); }
  // Names a parameter in errors.
  void set_label(std::string label) { impl_->label = std::move(label); }

 private:
  struct Impl {
    Kind kind = Kind::whole;
    Shape shape;
    Cut cut;
    std::shared_ptr<const Placement> at;
    std::vector<Array> parts;
    std::shared_ptr<GradMeta> grad;
    std::string label;
    std::vector<Array> held;
  };
  static const Shape kNoShape;

  // Returns all elements in one array that the host can wait for.
  Array readable(std::string_view what) const;

  std::shared_ptr<Impl> impl_;
};

// `out << x` prints the elements, as str() does; shapes print as "[64, 10]", devices as "cpu:0". fmt's "{}" prints
// describe() for a tensor.
std::ostream& operator<<(std::ostream& out, const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, Device device);

// Computes the gradients of all leaves of `roots` in one walk. seeds[i] is the gradient of roots[i], with its
// placement; undefined means 1, for a scalar. Consumes the graph.
void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, const BackwardOptions& options = {});

// Disables gradient recording on this thread for the lifetime of the object (torch.no_grad()).
class NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool previous_;
};
bool grad_enabled();

// "cpu:0", or "[cpu:0, cpu:1]"
std::string describe_devices(const std::vector<Device>& devices);

}  // namespace lockstep
