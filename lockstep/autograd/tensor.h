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
//   Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}}), y = (x * 2).sum(1);
//   x[0] = y;                      // writes; so does x.index_put_({Slice(), 1}, 0)
//   Tensor large = x[x > 2];       // indexing.h
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
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/autograd/dims.h"
#include "lockstep/tensor/array.h"
#include "lockstep/tensor/copy_options.h"
#include "lockstep/tensor/scalar.h"

namespace LOCKSTEP_API lockstep {

class IndexedTensor;  // autograd/indexing.h
class TensorIndex;
struct BackwardOptions;
struct DivOptions;    // autograd/elementwise.h
struct MaxResult;     // autograd/reduce.h
struct UniqueResult;  // autograd/data_dependent.h
struct VarOptions;
struct TensorImpl;  // autograd/tensor_impl.h
class Tensor;

// Options of a new tensor.
struct TensorOptions {
  // Default: from the values in tensor() and Tensor::from(), i64 for arange() of integers, otherwise f32.
  std::optional<DType> dtype = {};
  Device device = kHost;
};

class Tensor {
 public:
  Tensor() = default;
  // Makes a whole tensor.
  Tensor(Array array);  // NOLINT(google-explicit-constructor)
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  // Only a tensor with a name can be assigned to: f(x) = y does not compile. x[i] = y writes.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  ~Tensor() = default;

  // Makes a tensor with these elements in plain order, of their type. See also tensor() in creation.h.
  template <typename T>
  static Tensor from(std::span<const T> values, Shape shape, const TensorOptions& options = {}) {
    return from(Array::from(values, shape), options);
  }
  template <typename T>
  static Tensor from(const std::vector<T>& values, Shape shape, const TensorOptions& options = {}) {
    return from(Array::from(values, shape), options);
  }
  template <typename T>
  static Tensor from(std::initializer_list<T> values, Shape shape, const TensorOptions& options = {}) {
    return from(Array::from(std::span<const T>(values.begin(), values.size()), shape), options);
  }
  // Makes a tensor with the elements of an array in host memory.
  static Tensor from(Array values, const TensorOptions& options);
  // Zeroed host memory.
  static Tensor host(Shape shape, DType dtype = DType::f32) { return Array::host(shape, dtype); }

  bool defined() const { return impl_ != nullptr; }
  // Whether both are handles to one tensor, as libtorch's is_same().
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  // `if (a == b)` does not compile: a comparison gives a mask. Write (a == b).all().item<bool>().
  explicit operator bool() const& { return defined(); }
  explicit operator bool() const&& = delete;
  // The shape of the whole logical array: axis 0 of a cut batch has the samples of all shards of all processes.
  const Shape& shape() const;
  const Shape& sizes() const { return shape(); }
  std::int64_t size(int axis) const { return shape()[axis]; }
  int dim() const { return shape().dim(); }
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
  template <std::integral First, std::integral... Extents>
  Tensor reshape(First first, Extents... more) const {
    return reshape(Shape{static_cast<std::int64_t>(first), static_cast<std::int64_t>(more)...});
  }
  // Like reshape(), but always shares the memory: throws for a layout other than plain.
  Tensor view(Shape shape) const;
  template <std::integral First, std::integral... Extents>
  Tensor view(First first, Extents... more) const {
    return view(Shape{static_cast<std::int64_t>(first), static_cast<std::int64_t>(more)...});
  }
  // Differentiable; see slice.h. narrow() returns elements [start, start + length) of an axis; select() returns
  // element `index` and removes the axis. The axis must not be the batch axis.
  Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  Tensor select(int dim, std::int64_t index) const;
  // Differentiable; see indexing.h. x[i] is select(0, i), x[mask] and x[indices] are x.index({…}). x[i] = y writes.
  // Writing to a temporary that is a copy, as in x.t()[i] = y, throws, because nobody would see the change.
  IndexedTensor operator[](std::int64_t index) const&;
  IndexedTensor operator[](const Tensor& index) const&;
  IndexedTensor operator[](std::int64_t index) &&;
  IndexedTensor operator[](const Tensor& index) &&;
  Tensor index(std::initializer_list<TensorIndex> indices) const;
  // Writes `value`, which broadcasts, to the elements that index() returns. The last one of equal indices wins. Throws
  // where copy_from() does, and for a leaf that requires a gradient.
  void index_put_(std::initializer_list<TensorIndex> indices, const Tensor& value) const;
  void index_put_(std::initializer_list<TensorIndex> indices, const Scalar& value) const;

  // Waits until the elements are there. Throws TaskError if the task that computes them failed.
  void wait() const;
  // Returns the elements in plain order. T must be the tensor's type, except that float also reads bf16 and f16, and
  // std::uint8_t also reads bool. Waits. If other processes have some of the rows, throws an Error that suggests
  // gather().
  template <typename T>
  std::vector<T> to_vector() const {
    static_assert(sizeof(DTypeOf<T>::value) > 0);
    return readable("to_vector").to_vector<T>();
  }
  // Returns the only element of a tensor of any type. Waits: in a loop, keep loss.detach() and read it later. A whole
  // number that a double cannot hold is an error, which names item<std::int64_t>().
  double item() const;
  // The same as a T, as in libtorch: an element of another type is rounded to T. An integer T rounds toward 0, and
  // throws if it cannot hold the number. As a bool: whether it is not 0.
  template <typename T>
  T item() const {
    static_assert(sizeof(DTypeOf<T>::value) > 0);
    if constexpr (std::is_arithmetic_v<T>) {
      if constexpr (std::is_same_v<T, bool>) {
        return dtype() == DType::i64 ? item<std::int64_t>() != 0 : item() != 0;
      }
      if (dtype() != dtype_of<T>) return static_cast<T>(std::is_integral_v<T> ? whole_item(dtype_of<T>) : item());
    }
    return readable("item").item<T>();
  }
  // The address of the elements, in plain order, of a tensor in host memory. T is the tensor's type, or that type
  // const, for elements that must not be written. Waits. The address is valid as long as a handle to the tensor is
  // left. The library does not see writes through it: do not write elements that a later backward() needs, or that a
  // task still reads, and do not write while another thread uses the tensor.
  template <typename T>
  T* data_ptr() const {
    static_assert(sizeof(DTypeOf<std::remove_const_t<T>>::value) > 0);
    return static_cast<T*>(host_data(dtype_of<std::remove_const_t<T>>, !std::is_const_v<T>));
  }
  // Returns "tensor([[1, 2], [3, 4]], f32, cpu:0)". Tensors of more than 1,000 elements show only the first and last
  // three of each axis. Waits.
  std::string str() const;

  // Differentiable. Returns a whole copy on `device` (kHost: host memory), or the same handle if the tensor is already
  // there. Gradients flow back to the original device. Throws for a cut tensor that is not all there; use gather().
  Tensor to(Device device, CopyOptions options = {}) const;
  // Returns the elements in host memory, without a history: the same memory if they are there already, otherwise a
  // copy, as PyTorch's detach().cpu(). Reads what to_vector() reads. Waits.
  Tensor to_host() const;
  // Copies x's elements into this tensor. Shapes must agree; device, type, and layout may differ. Memory must not
  // overlap. Not differentiable: outside a NoGradGuard, throws if x requires a gradient or this tensor has a history.
  void copy_from(const Tensor& x, CopyOptions options = {}) const;
  // PyTorch's methods that write: they compute the result and copy it to this tensor's memory, as copy_from() does.
  // Outside a NoGradGuard, they throw for a tensor that requires a gradient. copy_(x) is copy_from(x) for an x that
  // broadcasts.
  const Tensor& copy_(const Tensor& x, CopyOptions options = {}) const;
  const Tensor& zero_() const;
  const Tensor& fill_(const Scalar& value) const;
  const Tensor& add_(const Tensor& b) const;
  const Tensor& add_(const Scalar& b) const;
  const Tensor& sub_(const Tensor& b) const;
  const Tensor& sub_(const Scalar& b) const;
  const Tensor& mul_(const Tensor& b) const;
  const Tensor& mul_(const Scalar& b) const;
  const Tensor& div_(const Tensor& b) const;
  const Tensor& div_(const Scalar& b) const;
  // Differentiable. to(kHost).
  Tensor cpu() const;
  // Differentiable. Returns a copy in host memory that `device` can access directly (page-locked for a GPU), so that
  // non-blocking copies block no thread. For a CPU device, returns the same handle.
  Tensor pin(Device device) const;
  // Differentiable. Return the same handle if nothing changes.
  Tensor to(DType dtype) const;
  Tensor to(Layout layout) const;

  // True makes this tensor a leaf: backward() adds its gradient to grad(). False drops the gradient. Throws for a
  // tensor that is not floating, for a parameter, and for a result with a history.
  Tensor& set_requires_grad(bool value);
  Tensor& requires_grad_(bool value = true) { return set_requires_grad(value); }
  bool requires_grad() const;
  // The gradient, summed over backward() calls since zero_grad(). Undefined before the first one. Its memory belongs to
  // this tensor alone.
  Tensor grad() const;
  void zero_grad();
  // Computes the gradients of all leaves that this scalar was computed from. Consumes the graph: a second call throws.
  void backward() const;
  void backward(const BackwardOptions& options) const;
  // Returns the same elements without a history.
  Tensor detach() const;

  // x.f(…) is f(x, …) of functions.h, where PyTorch has the method.
  Tensor add(const Tensor& b, const Scalar& alpha = 1) const;
  Tensor add(const Scalar& b, const Scalar& alpha = 1) const;
  Tensor sub(const Tensor& b, const Scalar& alpha = 1) const;
  Tensor sub(const Scalar& b, const Scalar& alpha = 1) const;
  Tensor mul(const Tensor& b) const;
  Tensor mul(const Scalar& b) const;
  Tensor div(const Tensor& b) const;
  Tensor div(const Tensor& b, const DivOptions& options) const;
  Tensor div(const Scalar& b) const;
  Tensor neg() const;
  Tensor clone() const;
  // to(Layout::plain).
  Tensor contiguous() const;
  Tensor abs() const;
  Tensor square() const;
  Tensor sqrt() const;
  Tensor rsqrt() const;
  Tensor reciprocal() const;
  Tensor exp() const;
  Tensor log() const;
  Tensor log1p() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor sign() const;
  Tensor clamp(std::optional<Scalar> min, std::optional<Scalar> max = {}) const;
  Tensor pow(const Scalar& exponent) const;
  Tensor pow(const Tensor& exponent) const;
  Tensor maximum(const Tensor& b) const;
  Tensor minimum(const Tensor& b) const;
  Tensor relu() const;
  Tensor sigmoid() const;
  Tensor tanh() const;
  Tensor softmax(int dim = -1) const;
  Tensor log_softmax(int dim = -1) const;
  Tensor logical_and(const Tensor& b) const;
  Tensor logical_or(const Tensor& b) const;
  Tensor logical_xor(const Tensor& b) const;
  Tensor logical_not() const;
  Tensor eq(const Tensor& b) const;
  Tensor eq(const Scalar& b) const;
  Tensor ne(const Tensor& b) const;
  Tensor ne(const Scalar& b) const;
  Tensor lt(const Tensor& b) const;
  Tensor lt(const Scalar& b) const;
  Tensor le(const Tensor& b) const;
  Tensor le(const Scalar& b) const;
  Tensor gt(const Tensor& b) const;
  Tensor gt(const Scalar& b) const;
  Tensor ge(const Tensor& b) const;
  Tensor ge(const Scalar& b) const;
  Tensor masked_fill(const Tensor& mask, const Scalar& value) const;
  Tensor where(const Tensor& condition, const Tensor& other) const;
  Tensor where(const Tensor& condition, const Scalar& other) const;
  Tensor sum() const;
  Tensor sum(const Dims& dims, bool keepdim = false) const;
  Tensor mean() const;
  Tensor mean(const Dims& dims, bool keepdim = false) const;
  Tensor var(const Dims& dims = {}) const;
  Tensor var(const Dims& dims, const VarOptions& options) const;
  // Divides by the number of elements, minus 1 if `unbiased`.
  template <std::same_as<bool> Bool>
  Tensor var(const Dims& dims, Bool unbiased, bool keepdim = false) const {
    return var_of(dims, unbiased, keepdim);
  }
  Tensor std(const Dims& dims = {}) const;
  Tensor std(const Dims& dims, const VarOptions& options) const;
  template <std::same_as<bool> Bool>
  Tensor std(const Dims& dims, Bool unbiased, bool keepdim = false) const {
    return std_of(dims, unbiased, keepdim);
  }
  Tensor amax(const Dims& dims = {}, bool keepdim = false) const;
  Tensor amin(const Dims& dims = {}, bool keepdim = false) const;
  Tensor max() const;
  MaxResult max(int dim, bool keepdim = false) const;
  Tensor min() const;
  MaxResult min(int dim, bool keepdim = false) const;
  Tensor argmax(std::optional<int> dim = {}, bool keepdim = false) const;
  Tensor argmin(std::optional<int> dim = {}, bool keepdim = false) const;
  Tensor any(const Dims& dims = {}, bool keepdim = false) const;
  Tensor all(const Dims& dims = {}, bool keepdim = false) const;
  Tensor norm(double p = 2, const Dims& dims = {}, bool keepdim = false) const;
  Tensor prod() const;
  Tensor prod(int dim, bool keepdim = false) const;
  Tensor logsumexp(const Dims& dims, bool keepdim = false) const;
  Tensor cumsum(int dim) const;
  MaxResult sort(int dim = -1, bool descending = false) const;
  Tensor argsort(int dim = -1, bool descending = false) const;
  MaxResult topk(std::int64_t k, int dim = -1, bool largest = true) const;
  Tensor matmul(const Tensor& b) const;
  Tensor bmm(const Tensor& b) const;
  Tensor flatten(int start_dim = 0, int end_dim = -1) const;
  Tensor unflatten(int dim, const Shape& sizes) const;
  Tensor squeeze(const Dims& dims = {}) const;
  Tensor unsqueeze(int dim) const;
  Tensor permute(std::initializer_list<int> dims) const;
  Tensor transpose(int dim0, int dim1) const;
  // The transpose of a matrix.
  Tensor t() const;
  Tensor expand(Shape shape) const;
  Tensor expand_as(const Tensor& other) const;
  Tensor reshape_as(const Tensor& other) const;
  Tensor view_as(const Tensor& other) const;
  Tensor triu(std::int64_t diagonal = 0) const;
  Tensor tril(std::int64_t diagonal = 0) const;
  Tensor slice(int dim, std::optional<std::int64_t> start = {}, std::optional<std::int64_t> end = {},
               std::int64_t step = 1) const;
  std::vector<Tensor> split(const std::vector<std::int64_t>& sizes, int dim = 0) const;
  std::vector<Tensor> split(std::int64_t split_size, int dim = 0) const;
  std::vector<Tensor> chunk(int chunks, int dim = 0) const;
  std::vector<Tensor> unbind(int dim = 0) const;
  Tensor take_along_dim(const Tensor& index, int dim) const;
  Tensor index_select(int dim, const Tensor& index) const;
  Tensor scatter_add(int dim, const Tensor& index, const Tensor& src) const;
  Tensor floor() const;
  Tensor ceil() const;
  Tensor round() const;
  Tensor trunc() const;
  Tensor tan() const;
  Tensor erf() const;
  Tensor expm1() const;
  Tensor log2() const;
  Tensor log10() const;
  Tensor isnan() const;
  Tensor isinf() const;
  Tensor isfinite() const;
  Tensor remainder(const Tensor& b) const;
  Tensor remainder(const Scalar& b) const;
  Tensor masked_fill(const Tensor& mask, const Tensor& value) const;
  Tensor masked_select(const Tensor& mask) const;
  Tensor nonzero() const;
  Tensor cumprod(int dim) const;
  MaxResult cummax(int dim) const;
  MaxResult cummin(int dim) const;
  Tensor median() const;
  MaxResult median(int dim, bool keepdim = false) const;
  Tensor nan_to_num(double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {}) const;
  Tensor atan2(const Tensor& x) const;
  Tensor clamp(const Tensor& min, const Tensor& max) const;
  UniqueResult unique() const;
  UniqueResult unique(int dim) const;
  Tensor bincount(const Tensor& weights = {}, std::int64_t minlength = 0) const;
  Tensor repeat_interleave(const Tensor& repeats, int dim) const;
  Tensor bernoulli() const;
  Tensor multinomial(std::int64_t num_samples, bool replacement = false) const;
  Tensor mm(const Tensor& b) const;
  Tensor mv(const Tensor& b) const;
  Tensor dot(const Tensor& b) const;
  Tensor flip(const Dims& dims) const;
  Tensor roll(std::int64_t shift, std::optional<int> dim = {}) const;
  Tensor repeat(const Shape& sizes) const;
  Tensor tile(const Shape& dims) const;
  Tensor movedim(const Dims& source, const Dims& destination) const;
  Tensor gather(int dim, const Tensor& index) const;
  Tensor scatter(int dim, const Tensor& index, const Tensor& src) const;
  Tensor scatter(int dim, const Tensor& index, const Scalar& value) const;
  Tensor index_add(int dim, const Tensor& index, const Tensor& src, const Scalar& alpha = 1) const;

  // "[64, 1, 28, 28] f32 on cpu:0", for messages.
  std::string describe() const;

  // For the library's own code: autograd/tensor_impl.h.
  template <typename Impl = TensorImpl>
  const Impl* operator->() const {
    static_assert(
        requires { sizeof(Impl); }, "a Tensor is a value: write loss.backward(), with a point");
    return impl();
  }

 private:
  friend struct TensorImpl;
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}
  // Returns all elements in one array that the host can wait for.
  Array readable(std::string_view what) const;
  // item() without its fraction. Throws if it is beyond the range of the type.
  double whole_item(DType type) const;
  Tensor var_of(const Dims& dims, bool unbiased, bool keepdim) const;
  Tensor std_of(const Dims& dims, bool unbiased, bool keepdim) const;
  const TensorImpl* impl() const;
  void* host_data(DType dtype, bool writes) const;
  void check_in_place(std::string_view what) const;

  std::shared_ptr<TensorImpl> impl_;
};

// The leaves whose gradients a backward pass computes: tensors that require a gradient, or parameters. Not set: all.
class BackwardInputs {
 public:
  BackwardInputs() = default;
  BackwardInputs(std::initializer_list<Tensor> leaves);
  template <std::ranges::input_range Leaves>
  requires std::convertible_to<std::ranges::range_reference_t<const Leaves>, Tensor> BackwardInputs(
      const Leaves& leaves)
      : set_(true) {  // NOLINT(google-explicit-constructor)
    for (const auto& leaf : leaves) leaves_.push_back(leaf);
  }
  bool set() const { return set_; }
  const std::vector<Tensor>& leaves() const { return leaves_; }

 private:
  bool set_ = false;
  std::vector<Tensor> leaves_;
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
  // Only these leaves get gradients, as with torch's backward(inputs=...): what only others need is not computed. A GAN
  // trains its generator by loss.backward({.inputs = generator.parameters()}). Throws for a tensor that is no leaf or
  // needs no gradient, and if the loss depends on none of them. Leaves that the loss does not depend on get none.
  BackwardInputs inputs = {};
};

// `out << x` prints the elements, as str() does. Shapes print as "[64, 10]", devices as "cpu:0". With fmt, "{}" prints
// a tensor's describe().
std::ostream& operator<<(std::ostream& out, const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace lockstep

#include "lockstep/autograd/indexing.h"  // IWYU pragma: export: operator[] returns an IndexedTensor
