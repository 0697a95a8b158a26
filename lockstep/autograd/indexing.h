// Indexing, as in libtorch:
//
//   Tensor row = x[1], chosen = x[indices], large = x[x > 0.5];
//   Tensor part = x.index({Slice(1, 3), Ellipsis, 0, None, indices});   // x[1:3, ..., 0, None, indices] in Python
//   x[1] = row;                                                         // writes to x
//   x.index_put_({Slice(None, None, 2), 0}, -1.0);                      // x[::2, 0] = -1
//
// Negative positions count from the end, also in index tensors. Several index tensors broadcast and are taken together;
// if other axes lie between their axes, the axes of the indices come first, as in PyTorch. Reading is differentiable.
//
// The number of elements that a mask chooses depends on its values: reading and writing by a mask waits, as does
// writing by index tensors, and a RecordedStep with them is not recorded. The batch axis of a tensor that is cut cannot
// be indexed: gather() it, or index in per_shard().
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// A new axis of extent 1 in index(), and an omitted bound in Slice().
inline constexpr std::nullopt_t None = std::nullopt;
// All axes that the other indices do not use.
struct EllipsisIndex {};
inline constexpr EllipsisIndex Ellipsis{};

// start:stop:step. The step is at least 1.
struct Slice {
  Slice() = default;
  Slice(std::optional<std::int64_t> start, std::optional<std::int64_t> stop, std::int64_t step = 1)
      : start(start), stop(stop), step(step) {}
  std::optional<std::int64_t> start, stop;
  std::int64_t step = 1;
};

// One index: a position, a Slice, Ellipsis, None, an i64 tensor, or a mask (bool or u8).
class TensorIndex {
 public:
  TensorIndex(std::nullopt_t none) : index_(none) {}         // NOLINT(google-explicit-constructor)
  TensorIndex(EllipsisIndex ellipsis) : index_(ellipsis) {}  // NOLINT(google-explicit-constructor)
  TensorIndex(Slice slice) : index_(slice) {}                // NOLINT(google-explicit-constructor)
  TensorIndex(Tensor tensor) : index_(std::move(tensor)) {}  // NOLINT(google-explicit-constructor)
  template <std::integral T>
  TensorIndex(T position) : index_(std::int64_t{position}) {  // NOLINT(google-explicit-constructor)
    static_assert(!std::same_as<T, bool>, "an index is no truth value");
  }

 private:
  friend class Indexer;
  std::variant<std::nullopt_t, EllipsisIndex, Slice, std::int64_t, Tensor> index_;
};

// The result of x[i]: the elements, as a tensor like any other. `x[i] = value` writes `value`, which broadcasts, to x;
// after `auto row = x[i]`, row cannot be assigned to.
class IndexedTensor : public Tensor {
 public:
  IndexedTensor(const Tensor& x, const TensorIndex& index, bool of_temporary)
      : Tensor(x.index({index})), x_(x), index_(index), of_temporary_(of_temporary) {}
  IndexedTensor(const IndexedTensor&) = default;
  IndexedTensor(IndexedTensor&&) = default;
  ~IndexedTensor() = default;

  // NOLINTBEGIN(misc-unconventional-assign-operator)
  void operator=(const Tensor& value) && { written().index_put_({index_}, value); }
  void operator=(const IndexedTensor& value) && { written().index_put_({index_}, value); }
  void operator=(IndexedTensor&& value) && { written().index_put_({index_}, value); }
  void operator=(const Scalar& value) && { written().index_put_({index_}, value); }
  // NOLINTEND(misc-unconventional-assign-operator)
  template <typename T>
  void operator+=(const T& b) && {
    written().index_put_({index_}, kept_type(*this, static_cast<const Tensor&>(*this) + b));
  }
  template <typename T>
  void operator-=(const T& b) && {
    written().index_put_({index_}, kept_type(*this, static_cast<const Tensor&>(*this) - b));
  }
  template <typename T>
  void operator*=(const T& b) && {
    written().index_put_({index_}, kept_type(*this, static_cast<const Tensor&>(*this) * b));
  }
  template <typename T>
  void operator/=(const T& b) && {
    written().index_put_({index_}, kept_type(*this, static_cast<const Tensor&>(*this) / b));
  }

 private:
  // Returns x_, which is about to be written. Throws if nobody would see the write.
  const Tensor& written() const;

  Tensor x_;
  TensorIndex index_;
  bool of_temporary_;
};

inline IndexedTensor Tensor::operator[](std::int64_t index) const& { return {*this, index, false}; }
inline IndexedTensor Tensor::operator[](const Tensor& index) const& { return {*this, index, false}; }
inline IndexedTensor Tensor::operator[](std::int64_t index) && { return {*this, index, true}; }
inline IndexedTensor Tensor::operator[](const Tensor& index) && { return {*this, index, true}; }

}  // namespace lockstep
