// Functions that create tensors. The results have no history. There are two ways to place a tensor:
//
//   Tensor t = tensor({{1.0, 2.0}, {3.0, 4.0}});                 // these values
//   Tensor a = zeros({2, 3}, {.device = device});                // whole: on a device, or in host memory
//   Tensor b = randn({64, 5}, {.device = device});               // other numbers in each call; {.seed = 7}: the same
//   Tensor h = zeros({kBatch, hidden}, like(x));                 // where x lies, with as many samples as x
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/base/random.h"

namespace LOCKSTEP_API lockstep {

struct RandomOptions {
  // Default: i64 for randint() and randperm(), otherwise f32.
  std::optional<DType> dtype = {};
  Device device = kHost;
  // Equal seeds give equal numbers, on every device and in every call, and so do equal keys. Without a seed and a key,
  // each call draws anew, with the key (seed, step, shard, number of earlier draws) of the device's Runtime or, for
  // host memory, of the program: the numbers are the same in every run and on any devices; see RuntimeOptions::seed and
  // manual_seed(). Such a call is an error in Dataset::get, because the threads of a loader would decide the order, and
  // a RecordedStep cannot repeat it.
  std::optional<std::uint64_t> seed = {};
  std::optional<RandomKey> key = {};
};

// Stands for the number of samples in the shape of a tensor that is made with like().
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

template <typename T>
concept Number = std::integral<T> || std::floating_point<T>;

// A type or a device in place of options, as in libtorch: zeros({2, 3}, DType::f64). It is a template parameter, so
// that braces still mean options.
template <typename T>
concept OneOption = std::same_as<T, DType> || std::same_as<T, Device>;
template <typename Options, OneOption T>
Options options_of(T option) {
  if constexpr (std::same_as<T, DType>) {
    return {.dtype = option};
  } else {
    return {.device = option};
  }
}

// The values of tensor(): a number, or nested lists of numbers. Lists of one level have equal extents.
class TensorValues {
 public:
  template <Number T>
  TensorValues(T value)  // NOLINT(google-explicit-constructor)
      : dtype_(std::floating_point<T>  ? DType::f32
               : std::same_as<T, bool> ? DType::boolean
                                       : DType::i64),
        numbers_{static_cast<double>(value)}, whole_{std::floating_point<T> ? 0 : Scalar(value).to<std::int64_t>()} {}
  TensorValues(std::initializer_list<TensorValues> list);  // NOLINT(google-explicit-constructor)

 private:
  friend Tensor tensor(const TensorValues& values, const TensorOptions& options);
  Shape shape_;
  DType dtype_ = DType::f32;
  std::vector<double> numbers_;
  std::vector<std::int64_t> whole_;  // exact beyond 2^53, too
};

// torch.tensor(values): tensor(5) has no axes, tensor({1.0, 2.5}) one, tensor({{1, 2}, {3, 4}}) two. Floating numbers
// make f32, whole numbers i64, and bools bool; a mixed list makes the first of these types. A vector gives one axis,
// and a vector of std::uint8_t makes u8. Throws for a number that the type does not hold, as full() does.
Tensor tensor(const TensorValues& values, const TensorOptions& options = {});
template <OneOption T>
Tensor tensor(const TensorValues& values, T option) {
  return tensor(values, options_of<TensorOptions>(option));
}
// Throws where tensor() does for this number.
void check_tensor_number(const Scalar& number, DType dtype);
template <Number T>
Tensor tensor(const std::vector<T>& values, TensorOptions options = {}) {
  const auto n = static_cast<std::int64_t>(values.size());
  constexpr bool kIsElement =
      std::same_as<T, float> || std::same_as<T, std::int64_t> || std::same_as<T, std::uint8_t> || std::same_as<T, bool>;
  if (options.dtype || !kIsElement) {
    const DType dtype = options.dtype.value_or(std::floating_point<T> ? DType::f32 : DType::i64);
    for (const T value : values) check_tensor_number(value, dtype);
  }
  if constexpr (kIsElement) {
    return Tensor::from(values, {n}, options);
  } else if constexpr (std::same_as<T, double>) {
    if (!options.dtype) options.dtype = DType::f32;
    return Tensor::from(values, {n}, options);
  } else {
    using Element = std::conditional_t<std::floating_point<T>, float, std::int64_t>;
    return Tensor::from(std::vector<Element>(values.begin(), values.end()), {n}, options);
  }
}

// PyTorch's from_blob: a tensor in host memory whose elements are the caller's, in plain order, without a copy. T gives
// the type; `const T` makes a tensor that must not be written.
//
//   Tensor frame = from_blob(pixels, {1, 3, 480, 640}, [buffer](const void*) {});   // owns the buffer
//
// The memory must stay until no handle to the tensor or to a view of it is left and no task uses it. Then `release` is
// called with the address, in any thread; it must not throw and should hold the owner of the memory. Without `release`,
// the caller must know that moment: tasks that read the memory have ended once their results can be read. The caller
// may change the elements while no task uses them, but not between a forward and its backward pass, which cannot see
// the change. On a CPU device, operations read the memory in place, without a copy; to() copies it. Throws for an
// address that is not aligned to T, and for a null address unless the shape has no elements.
Tensor from_blob_of(const void* data, const Shape& shape, DType dtype, bool writable,
                    std::function<void(const void*)> release);
template <typename T>
Tensor from_blob(T* data, const Shape& shape, std::function<void(const void*)> release = {}) {
  using Element = std::remove_const_t<T>;
  static_assert(sizeof(DTypeOf<Element>::value) > 0);
  return from_blob_of(data, shape, dtype_of<Element>, !std::is_const_v<T>, std::move(release));
}

Tensor full(const Shape& shape, const Scalar& value, const TensorOptions& options = {});
template <OneOption T>
Tensor full(const Shape& shape, const Scalar& value, T option) {
  return full(shape, value, options_of<TensorOptions>(option));
}
Tensor full(const Shape& shape, const Scalar& value, const Like& like);
Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor zeros(const Shape& shape, const Like& like);
template <OneOption T>
Tensor zeros(const Shape& shape, T option) {
  return zeros(shape, options_of<TensorOptions>(option));
}
// torch.empty. The elements are zeros: no tensor shows memory that nobody has written.
inline Tensor empty(const Shape& shape, const TensorOptions& options = {}) { return zeros(shape, options); }
template <OneOption T>
Tensor empty(const Shape& shape, T option) {
  return zeros(shape, option);
}
Tensor ones(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const Like& like);
template <OneOption T>
Tensor ones(const Shape& shape, T option) {
  return ones(shape, options_of<TensorOptions>(option));
}

// Uniform in [0, 1), in steps of 2^-24, of bf16 2^-8, and of f16 2^-11.
Tensor rand(const Shape& shape, const RandomOptions& options = {});
// Normal, of mean 0 and standard deviation 1.
Tensor randn(const Shape& shape, const RandomOptions& options = {});
template <OneOption T>
Tensor rand(const Shape& shape, T option) {
  return rand(shape, options_of<RandomOptions>(option));
}
template <OneOption T>
Tensor randn(const Shape& shape, T option) {
  return randn(shape, options_of<RandomOptions>(option));
}
// Make noise for a forward pass. As in dropout, each shard draws with its own key, and each call draws anew, as above
// without a seed.
Tensor rand(const Shape& shape, const Like& like);
Tensor randn(const Shape& shape, const Like& like);
// Make the same noise with the shape and placement of x, in its type or in `dtype`.
Tensor rand_like(const Tensor& x, std::optional<DType> dtype = {});
Tensor randn_like(const Tensor& x, std::optional<DType> dtype = {});
// Whole numbers from low to high - 1, all with equal probability, in i64 or another type.
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const RandomOptions& options = {});
Tensor randint(std::int64_t high, const Shape& shape, const RandomOptions& options = {});
// The numbers from 0 to n - 1 in random order: [n], in i64 or another type.
Tensor randperm(std::int64_t n, const RandomOptions& options = {});
// 1 with probability x, otherwise 0, in x's shape, placement, and floating type; NaN where x is not in [0, 1]. Draws as
// rand_like() does, in steps of 2^-24.
Tensor bernoulli(const Tensor& x);
// num_samples class indices: i64 [num_samples] for weights [C], or [N, num_samples] for weights [N, C]. The weights
// need not add up to 1. Without replacement, a row gives each class at most once. Draws as rand_like() does. Waits for
// the weights: throws if one is negative or not finite, or if a row has no class left to draw.
//
//   Tensor next = multinomial(softmax(logits / 0.8), 1);
Tensor multinomial(const Tensor& weights, std::int64_t num_samples, bool replacement = false);

// Ones on the diagonal: [n, n] or [n, m].
Tensor eye(std::int64_t n, const TensorOptions& options = {});
Tensor eye(std::int64_t n, std::int64_t m, const TensorOptions& options = {});

// start, start + step, ..., excluding `end`. Element i is start + i * step: exact, and by default i64, if all three are
// whole; otherwise computed in f64, and by default f32.
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const TensorOptions& options = {});
inline Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options = {}) {
  return arange(start, end, 1, options);
}
inline Tensor arange(const Scalar& end, const TensorOptions& options = {}) { return arange(0, end, 1, options); }

}  // namespace lockstep
