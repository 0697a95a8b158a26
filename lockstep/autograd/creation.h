// Functions that create tensors. The results have no history. There are two ways to place a tensor:
//
//   Tensor a = zeros({2, 3}, {.device = device});                // whole: on a device, or in host memory
//   Tensor b = randn({64, 5}, {.device = device});               // other numbers in each call; {.seed = 7}: the same
//   Tensor h = zeros({kBatch, hidden}, like(x));                 // where x lies, with as many samples as x
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>

#include "lockstep/autograd/tensor.h"
#include "lockstep/base/random.h"

namespace LOCKSTEP_API lockstep {

struct RandomOptions {
  DType dtype = DType::f32;
  Device device = kHost;
  // Equal seeds give equal numbers, on every device and in every call, and so do equal keys. With neither, each call
  // draws anew, by the key (seed, step, shard, number of earlier draws) of the device's Runtime or, for host memory, of
  // the program's: the same numbers in every run and on any devices; see RuntimeOptions::seed and manual_seed(). Such a
  // call is an error in Dataset::get, where a loader's threads would decide the order, and a RecordedStep cannot repeat
  // it.
  std::optional<std::uint64_t> seed = {};
  std::optional<RandomKey> key = {};
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
// For noise in a forward pass. As in dropout, each shard draws by a key of its own. As without a seed above, each call
// draws anew. x must be on a device.
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

}  // namespace lockstep
