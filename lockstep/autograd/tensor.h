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
// The functions below create tensors, and join the shards of a batch. functions.h has the operations.
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

struct GradMeta;  // autograd/node.h
class Placement;  // autograd/placement.h

enum class Kind : std::uint8_t { whole, cut, replicated };

// The batch axis of a cut tensor. Its extent is outer * samples * inner, so [B, T, C] can become [B * T, C] and back
// without moving an element.
struct Cut {
  int axis = 0;
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  bool operator==(const Cut&) const = default;
};

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
  // Makes a whole tensor from one shard, as per_shard() does. `at` must contain that shard only.
  static Tensor of_shard(std::shared_ptr<const Placement> at, Array array);
  // Makes a cut tensor. parts[i] belongs to slot i of `at`. `cut` tells which axis has the samples.
  static Tensor cut(std::shared_ptr<const Placement> at, Cut cut, std::vector<Array> parts);
  // Makes a replicated tensor. `at` is the batch that the values were computed from, or null for parameters. The
  // batch's other devices get a copy of the first part when they need it.
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
  bool requires_grad() const { return grad_meta() != nullptr; }
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

// `out << x` prints the elements, as str() does. Shapes print as "[64, 10]", devices as "cpu:0". With fmt, "{}" prints
// a tensor's describe().
std::ostream& operator<<(std::ostream& out, const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, Device device);

// Computes the gradients of all leaves of `roots` in one walk. seeds[i] is the gradient of roots[i], with its
// placement; undefined means 1, for a scalar. Consumes the graph.
void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, const BackwardOptions& options = {});
// backward({loss, other}, {Tensor(), seed})
inline void backward(std::initializer_list<Tensor> roots, std::initializer_list<Tensor> seeds,
                     const BackwardOptions& options = {}) {
  backward(std::span(roots.begin(), roots.size()), std::span(seeds.begin(), seeds.size()), options);
}

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

// Functions that create tensors. The results have no history. There are two ways to place a tensor:
//
//   Tensor a = zeros({2, 3}, {.device = device});                // whole: on a device, or in host memory
//   Tensor b = randn({64, 5}, {.device = device, .seed = 7});    // the same numbers on every device
//   Tensor h = zeros({kBatch, hidden}, like(x));                 // where x lies, with as many samples as x

struct RandomOptions {
  DType dtype = DType::f32;
  Device device = kHost;
  // Equal seeds give equal numbers, on every device and in every call.
  std::uint64_t seed = 0;
};

// In the shape of a tensor made like() another one: the number of samples.
inline constexpr std::int64_t kBatch = std::numeric_limits<std::int64_t>::min();

// Places a new tensor where x lies. With kBatch in its shape, the new tensor is cut as x is, and its samples lie where
// x's do. Without kBatch, it is replicated on all of x's devices. If x is whole, kBatch means x.size(0). Using kBatch
// with a parameter is an error, because a parameter has no samples.
class Like {
 public:
  const Tensor& x() const { return x_; }
  DType dtype() const { return dtype_; }

 private:
  friend Like like(const Tensor& x, std::optional<DType> dtype);
  Like(const Tensor& x, DType dtype) : x_(x), dtype_(dtype) {}

  Tensor x_;
  DType dtype_;
};
// `dtype` defaults to x's.
inline Like like(const Tensor& x, std::optional<DType> dtype = {}) { return {x, dtype.value_or(x.dtype())}; }

Tensor full(const Shape& shape, double value, const TensorOptions& options = {});
Tensor full(const Shape& shape, double value, const Like& like);
Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor zeros(const Shape& shape, const Like& like);
Tensor ones(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const Like& like);

// Uniform in [0, 1).
Tensor rand(const Shape& shape, const RandomOptions& options = {});
// Normal, of mean 0 and standard deviation 1.
Tensor randn(const Shape& shape, const RandomOptions& options = {});
// For noise in a forward pass. As in dropout, the key comes from the device's random state (seed, step, shard,
// operation). A RecordedStep cannot repeat these calls. x must be on a device: host memory has no random state.
Tensor rand(const Shape& shape, const Like& like);
Tensor randn(const Shape& shape, const Like& like);

// Ones on the diagonal: [n, n] or [n, m].
Tensor eye(std::int64_t n, const TensorOptions& options = {});
Tensor eye(std::int64_t n, std::int64_t m, const TensorOptions& options = {});

template <typename T>
concept Number = std::integral<T> || std::floating_point<T>;

// start, start + step, ..., excluding `end`. Element i is start + i * step, computed in f64. `whole`: the type defaults
// to i64 instead of f32.
Tensor arange_of(double start, double end, double step, bool whole, const TensorOptions& options);
template <Number A, Number B, Number C>
Tensor arange(A start, B end, C step, const TensorOptions& options = {}) {
  constexpr bool whole = std::integral<A> && std::integral<B> && std::integral<C>;
  return arange_of(static_cast<double>(start), static_cast<double>(end), static_cast<double>(step), whole, options);
}
template <Number A, Number B>
Tensor arange(A start, B end, const TensorOptions& options = {}) {
  return arange(start, end, 1, options);
}
template <Number T>
Tensor arange(T end, const TensorOptions& options = {}) {
  return arange(0, end, 1, options);
}

// Functions that join the shards of a batch, or run a function on each of them.

// Returns all samples of all processes as one whole tensor on `device` (kHost: host memory), in every process.
// Collective: every process must call it. Differentiable; the loss computed from the result must be the same in all
// processes.
Tensor gather(const Tensor& x, Device device);
// The same on the batch's first device.
Tensor gather(const Tensor& x);

// Calls f once per shard of this process with whole tensors of that shard, and joins the results along axis 0, which
// must hold the shard's samples. Use it for operations that are errors on cut tensors. Inputs that are not cut are
// passed unchanged; all cut inputs must have their shards in the same places. A loss in f is the loss of that shard;
// parameters' gradients are summed over all shards.
std::vector<Tensor> per_shard(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f,
                              std::span<const Tensor> inputs);
// f returns a tensor, or several as a std::tuple, a std::pair, or a std::array; so does this.
template <typename F, typename... Inputs>
requires(sizeof...(Inputs) > 0 &&
         (std::is_convertible_v<const Inputs&, Tensor> && ...)) auto per_shard(const F& f, const Inputs&... inputs) {
  const Tensor all[] = {inputs...};
  const auto call = [&f]<std::size_t... I>(std::span<const Tensor> in, std::index_sequence<I...>) {
    return f(in[I]...);
  };
  constexpr std::index_sequence_for<Inputs...> each;
  using Result = decltype(call(all, each));
  const std::vector<Tensor> joined = per_shard(
      [&](std::span<const Tensor> in) {
        const Result result = call(in, each);
        if constexpr (std::is_convertible_v<Result, Tensor>) {
          return std::vector<Tensor>{result};
        } else {
          return std::apply([](const auto&... t) { return std::vector<Tensor>{t...}; }, result);
        }
      },
      std::span<const Tensor>(all));
  if constexpr (std::is_convertible_v<Result, Tensor>) {
    return joined[0];
  } else {
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return Result{joined[I]...}; }
    (std::make_index_sequence<std::tuple_size_v<Result>>());
  }
}

}  // namespace lockstep
