#include "lockstep/comm/tree_sum.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/tree.h"

namespace lockstep {
namespace {

// Number of elements that go through the whole tree at once, so that partial sums stay in the first-level cache.
constexpr std::size_t kTile = 1024;

// The type in which elements of T are reduced: f32 for 16-bit floats, for its precision, and unsigned for signed
// integers, which must not overflow.
template <typename T>
struct SumType {
  using type = T;
};
template <typename T>
requires is_half<T>
struct SumType<T> {
  using type = float;
};
template <>
struct SumType<std::int64_t> {
  using type = std::uint64_t;
};

template <typename T>
struct Sum {
  using A = typename SumType<T>::type;
  A operator()(A a, A b) const { return static_cast<A>(a + b); }
};

struct RoundedSum {
  float operator()(float a, float b) const { return static_cast<float>(BFloat16(a + b)); }
};

// Compares in the element's type, so that negative integers count as small. `b != b` holds if b is NaN.
template <typename T>
struct Min {
  using A = typename SumType<T>::type;
  using C = std::conditional_t<std::is_same_v<T, std::int64_t>, std::int64_t, A>;
  A operator()(A a, A b) const { return (static_cast<C>(b) < static_cast<C>(a) || b != b) ? b : a; }
};

template <typename T>
struct Max {
  using A = typename SumType<T>::type;
  using C = std::conditional_t<std::is_same_v<T, std::int64_t>, std::int64_t, A>;
  A operator()(A a, A b) const { return (static_cast<C>(a) < static_cast<C>(b) || b != b) ? b : a; }
};

template <typename T, typename Op, typename Out = T>
class Tiles {
  using A = typename SumType<T>::type;

 public:
  Tiles(std::span<const void* const> leaves, void* out) : leaves_(leaves), out_(static_cast<Out*>(out)) {}

  void run(std::size_t count) {
    for (begin_ = 0; begin_ < count; begin_ += kTile) {
      length_ = std::min(kTile, count - begin_);
      if constexpr (sizeof(A) == sizeof(T)) {
        // The last reduction writes directly to the result. A leaf may alias the result, because each element is read
        // before it is written.
        auto* out = reinterpret_cast<A*>(out_) + begin_;
        const A* result = node(0, leaves_.size(), 0, out);
        if (result != out) std::memcpy(out, result, length_ * sizeof(T));
      } else {
        const A* result = node(0, leaves_.size(), 0, nullptr);
        for (std::size_t i = 0; i < length_; ++i) out_[begin_ + i] = Out(result[i]);
      }
    }
  }

 private:
  // Returns the result of a subtree, or null if the whole subtree is missing. The result lies in a leaf's own memory,
  // in tiles_[level], or in `root`.
  const A* node(std::size_t first, std::size_t n, std::size_t level, A* root) {
    if (n == 1) return leaf(first, level);
    const std::size_t half = tree_split(n);
    const A* a = node(first, half, level, nullptr);
    const A* b = node(first + half, n - half, a == nullptr ? level : level + 1, nullptr);
    if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
    A* result = root != nullptr ? root : tiles_[level].data();
    const std::size_t length = length_;
    for (std::size_t i = 0; i < length; ++i) result[i] = Op()(a[i], b[i]);
    return result;
  }

  const A* leaf(std::size_t i, std::size_t level) {
    if (leaves_[i] == nullptr) return nullptr;
    if constexpr (sizeof(A) == sizeof(T)) {
      return static_cast<const A*>(leaves_[i]) + begin_;
    } else {
      const T* in = static_cast<const T*>(leaves_[i]) + begin_;
      for (std::size_t k = 0; k < length_; ++k) tiles_[level][k] = static_cast<A>(in[k]);
      return tiles_[level].data();
    }
  }

  std::span<const void* const> leaves_;
  Out* out_;
  std::size_t begin_ = 0, length_ = 0;
  std::array<std::array<A, kTile>, 32> tiles_;  // one for each level of the tree
};

}  // namespace

void tree_reduce(ReduceOp op, DType dtype, std::span<const void* const> leaves, void* out, std::size_t count) {
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (op) {
      case ReduceOp::sum: return Tiles<T, Sum<T>>(leaves, out).run(count);
      case ReduceOp::min: return Tiles<T, Min<T>>(leaves, out).run(count);
      case ReduceOp::max: return Tiles<T, Max<T>>(leaves, out).run(count);
    }
  });
}

void rounded_tree_sum(std::span<const void* const> leaves, DType out_dtype, void* out, std::size_t count) {
  check(out_dtype == DType::f32 || out_dtype == DType::bf16, "tree sum: rounded to {}, expected f32 or bf16",
        name(out_dtype));
  if (out_dtype == DType::f32) return Tiles<BFloat16, RoundedSum, float>(leaves, out).run(count);
  Tiles<BFloat16, RoundedSum>(leaves, out).run(count);
}

}  // namespace lockstep
