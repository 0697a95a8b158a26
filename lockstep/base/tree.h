// Internal: the one binary tree that combines everything over shards. It depends only on the number of leaves, so the
// bits of a sum do not depend on how devices and processes share the leaves.
#pragma once

#include <bit>
#include <cstddef>
#include <optional>

namespace lockstep {

// Where a tree over n >= 2 leaves splits: its first half has the largest power of two below n, its second half the
// rest. So [k * 2^j, (k + 1) * 2^j) is a complete subtree wherever it lies inside [0, n).
constexpr std::size_t tree_split(std::size_t n) { return std::bit_floor(n - 1); }

// Folds leaves [begin, begin + n) in their tree, with join(first half, second half) at every inner node. leaf(i)
// returns an optional; a missing leaf lets its sibling pass unchanged. Returns nullopt if all are missing.
template <typename Leaf, typename Join>
auto tree_fold(std::size_t begin, std::size_t n, const Leaf& leaf, const Join& join) -> decltype(leaf(begin)) {
  if (n == 0) return std::nullopt;
  if (n == 1) return leaf(begin);
  std::size_t half = tree_split(n);
  auto a = tree_fold(begin, half, leaf, join);
  auto b = tree_fold(begin + half, n - half, leaf, join);
  if (!a) return b;
  if (!b) return a;
  return join(*a, *b);
}

}  // namespace lockstep
