// Sums in an order that a contract fixes or that depends on shapes alone.
#pragma once

#include "lockstep/backend/cuda/element.cuh"
#include "lockstep/base/tree.h"

namespace lockstep::cuda {

// Folds leaf(0) to leaf(count - 1) in the tree of base/tree.h. The joined leaves so far form complete subtrees, like
// the digits of a binary number, the larger ones first. count <= 2^kDepth.
template <int kDepth, typename Leaf, typename Join>
__device__ auto fold_tree(int count, const Leaf& leaf, const Join& join) {
  decltype(leaf(0)) joined[kDepth + 1];
  int top = 0;
  for (int i = 0; i < count; ++i) {
    auto node = leaf(i);
    for (int k = i; k & 1; k >>= 1) node = join(joined[--top], node);
    joined[top++] = node;
  }
  auto node = joined[--top];
  while (top > 0) node = join(joined[--top], node);
  return node;
}

// Like fold_tree(), for a constant number of leaves, all present. Intermediate sums stay in registers.
template <int kBegin, int kCount, typename Leaf, typename Join>
__device__ auto fold_constant_tree(const Leaf& leaf, const Join& join) {
  if constexpr (kCount == 1) {
    return leaf(kBegin);
  } else {
    constexpr int kHalf = tree_split(kCount);
    const auto first = fold_constant_tree<kBegin, kHalf>(leaf, join);
    return join(first, fold_constant_tree<kBegin + kHalf, kCount - kHalf>(leaf, join));
  }
}

// Returns to each lane of a warp the sum over the lanes at multiples of `stride`, a power of two, from it.
template <typename C>
__device__ C warp_sum(C x, int stride = 1) {
  for (int bits = stride; bits < 32; bits *= 2) x += __shfl_xor_sync(0xffffffffu, x, bits);
  return x;
}

// Returns to all threads of a block of up to 1024 threads the sum over these threads. All of them must call it.
template <typename C>
__device__ C block_sum(C x) {
  __shared__ C sums[32];
  const int warps = static_cast<int>(blockDim.x) / 32, thread = static_cast<int>(threadIdx.x);
  x = warp_sum(x);
  __syncthreads();  // before the next use of `sums`
  if (thread % 32 == 0) sums[thread / 32] = x;
  __syncthreads();
  C total = sums[0];
  for (int i = 1; i < warps; ++i) total += sums[i];
  return total;
}

// Returns to all threads of a block whether it is the last of `blocks` to arrive. The last block sees what the others
// wrote before. *counter must be 0 at first and is 0 again at the end.
__device__ inline bool is_last_block(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1u) == blocks - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

}  // namespace lockstep::cuda
