// A tensor: one logical array, wherever its parts lie. It is whole (on one device, or in host memory), cut over the samples
// of a batch (each shard on its device), or replicated (equal on several devices: parameters, losses). Operations treat all
// alike: net(x), cross_entropy(net(x), y).backward() and loss.item() mean on eight devices what they mean on one.
//
// Among several processes a whole tensor that meets a batch has to be the same in all of them: what it adds to a parameter's
// gradient counts once.
//
// Copies are handles to the same tensor. Operations never wait; reading to the host does.
#pragma once

#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/autograd/placement.h"
#include "lockstep/base/small_vector.h"
#include "lockstep/tensor/array.h"

namespace LOCKSTEP_API lockstep {

struct GradMeta;

using Arrays = SmallVector<Array, 4>;

enum class Kind : std::uint8_t { whole, cut, replicated };

// Options of a backward pass.
struct BackwardOptions {
  // This loss's share of the samples that the optimizer's step is over, if those are several micro-batches.
  double share = 1;
  // None, or for each device an f32 [1] that the loss is multiplied by (loss scaling).
  std::span<const Array> scales = {};
  // False: gradients are added up shard by shard, and summed over shards and processes by the first pass after this one
  // with `sync`. PyTorch's no_sync().
  bool sync = true;
};

class Tensor {
 public:
  Tensor() = default;
  // A whole one.
  Tensor(Array array);  // NOLINT(google-explicit-constructor)

  // A tensor in host memory with these elements in plain order.
  template <typename T>
  static Tensor from(std::span<const T> values, Shape shape) {
    return Array::from(values, shape);
  }
  template <typename T>
  static Tensor from(const std::vector<T>& values, Shape shape) {
    return Array::from(values, shape);
  }
  // Zeroed host memory.
  static Tensor host(Shape shape, DType dtype = DType::f32) { return Array::host(shape, dtype); }
  // The whole tensor of one shard, as per_shard() passes it; `at` has that shard alone.
  static Tensor of_shard(std::shared_ptr<const Placement> at, Array array);
  // parts[i] is slot i's. The cut tells which axis the samples are on.
  static Tensor cut(std::shared_ptr<const Placement> at, Cut cut, std::vector<Array> parts);
  // `at`: the batch that the values come from; null: parameters. Its devices get a copy of the first part on demand.
  static Tensor replicated(std::vector<Array> parts, std::shared_ptr<const Placement> at = nullptr);

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }
  Kind kind() const { return impl_ ? impl_->kind : Kind::whole; }
  // The shape of the whole logical array: axis 0 of a cut batch has the samples of all shards, of all processes.
  const Shape& shape() const { return impl_ ? impl_->shape : kNoShape; }
  std::int64_t size(int axis) const { return shape()[axis]; }
  std::int64_t numel() const { return shape().numel(); }
  DType dtype() const { return impl_ ? impl_->parts[0].dtype() : DType::f32; }
  Layout layout() const { return impl_ ? impl_->parts[0].layout() : Layout::plain; }
  // Device() for host memory; the first one, if there are several.
  Device device() const { return impl_ ? impl_->parts[0].device() : Device(); }
  std::vector<Device> devices() const;

  // A cut tensor has one for each slot, a replicated one for each device that has it by now.
  const std::vector<Array>& parts() const;
  // Each part as a whole tensor, without a history.
  std::vector<Tensor> shards() const { return {parts().begin(), parts().end()}; }
  // Null for parameters, and for whole tensors other than one shard's in per_shard().
  const std::shared_ptr<const Placement>& placement() const;
  Cut cut() const { return impl_ ? impl_->cut : Cut(); }
  // The elements on `device`, of a tensor that is not cut. Throws if they are not there.
  Array on(Device device) const;
  // The elements, of a tensor that is not cut: of the first part.
  const Array& array() const;
  const View& view() const { return array().view(); }
  const std::shared_ptr<Storage>& storage() const { return array().storage(); }
  const Resource& resource() const { return array().resource(); }

  // Differentiable. The same elements under another shape; plain layout. One extent may be -1: inferred. A cut axis stays
  // together with its samples, or that is an error.
  Tensor reshape(Shape shape) const;
  // Differentiable. Elements [start, start + length) of an axis that is not the batch's, or number `index` of it,
  // without that axis: see functions.h.
  Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  Tensor select(int dim, std::int64_t index) const;
  // x[i] is select(0, i).
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  // A slice of axis 0 shares the memory.
  Tensor narrow(std::int64_t start, std::int64_t count) const;

  // Waits until the elements are there. Throws TaskError if the task that computes them failed.
  void wait() const;
  // The elements in plain order, converted from T's dtype exactly: T must be the tensor's type (f32 also reads bf16 and
  // f16). Waits. Rows that other processes have are an error, which names gather().
  template <typename T>
  std::vector<T> to_vector() const {
    return readable("to_vector").to_vector<T>();
  }
  // The only element. Waits.
  template <typename T>
  T item() const {
    return readable("item").item<T>();
  }
  // "tensor([[1, 2], [3, 4]], f32, cpu:0)"; more than 1,000 elements are shortened to the first and last three of each
  // axis. Waits.
  std::string str() const;

  // Differentiable. A whole copy on another device (Device(): the host); the same handle if it is there already. Gradients go
  // back to where the elements came from. An error for a cut tensor: see gather().
  Tensor to(Device device, CopyOptions options = {}) const;
  // A copy in host memory without a history, of what to_vector() reads. Waits.
  Tensor to_host() const;
  // Overwrites the elements with x's, of the same shape, from any device, type and layout; one of the two has to be on a
  // device. Not differentiable: an error if either has a history, unless a NoGradGuard says that this is meant.
  void copy_from(const Tensor& x, CopyOptions options = {}) const;
  // Differentiable. Copies host memory to host memory that `device` reads and writes by itself, so that non-blocking copies
  // hold up no thread: page-locked for a GPU. The same handle for a CPU device.
  Tensor pin(Device device) const;
  // Differentiable. The same handle if nothing changes.
  Tensor to(DType dtype) const;
  Tensor to(Layout layout) const;

  // Makes a leaf whose gradient backward() leaves in grad().
  Tensor& set_requires_grad(bool value);
  bool requires_grad() const { return grad_meta() != nullptr; }
  // Undefined before backward() reached this leaf; summed over calls until zero_grad().
  Tensor grad() const;
  void zero_grad();
  // Computes the gradients of everything that this scalar was computed from.
  void backward(const BackwardOptions& options = {}) const;
  // The same elements without a history.
  Tensor detach() const;

  // "[64, 1, 28, 28] f32 on cpu:0", for messages.
  std::string describe() const;

  const std::shared_ptr<GradMeta>& grad_meta() const;
  void set_grad_meta(std::shared_ptr<GradMeta> meta);
  // Keeps arrays as long as this tensor: a block that an exchange with other processes still reads must not be the next one
  // that a compute lane gets, which would then wait for those processes.
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

  // All elements in one array that the host can wait for.
  Array readable(std::string_view what) const;

  std::shared_ptr<Impl> impl_;
};

std::ostream& operator<<(std::ostream& out, const Tensor& x);

// "cpu:0", or "[cpu:0, cpu:1]"
std::string describe_devices(const std::vector<Device>& devices);

}  // namespace lockstep
