// Many tensors in one launch: each block of a grid works on one chunk of one of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace lockstep::cuda {

inline constexpr int kMostTensors = 64;
inline constexpr std::int64_t kChunk = 8192;

// `Tensor` says where one is, and has `n`, the number of its elements. Passed to kernels by value.
template <typename Tensor>
struct TensorTable {
  int count = 0;
  // The number of the first block of each, and in the end that of all blocks.
  unsigned first_block[kMostTensors + 1] = {};
  Tensor tensors[kMostTensors] = {};

  bool full() const { return count == kMostTensors; }
  unsigned blocks() const { return first_block[count]; }
  void add(const Tensor& tensor) {
    tensors[count] = tensor;
    first_block[count + 1] = first_block[count] + static_cast<unsigned>((tensor.n + kChunk - 1) / kChunk);
    ++count;
  }
};

// The tensor that a block works on, and its elements [begin, end).
struct TableChunk {
  int tensor;
  std::int64_t begin, end;

  template <typename Tensor>
  constexpr TableChunk(const TensorTable<Tensor>& table, unsigned block) : tensor(0), begin(0), end(0) {
    int high = table.count;
    while (high - tensor > 1) {
      const int middle = (tensor + high) / 2;
      (table.first_block[middle] <= block ? tensor : high) = middle;
    }
    begin = std::int64_t{block - table.first_block[tensor]} * kChunk;
    end = std::min(begin + kChunk, table.tensors[tensor].n);
  }
};

}  // namespace lockstep::cuda
