// Many tensors in one launch. Each block of a grid works on one chunk of one tensor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace lockstep::cuda {

inline constexpr int kMostTensors = 64;
inline constexpr std::int64_t kChunk = 8192;

// A kernel's arguments may take 4 KiB on all GPUs and CUDA versions. 256 bytes are left for other arguments.
template <typename Tensor>
constexpr int most_tensors() {
  return std::min(kMostTensors, static_cast<int>(3840 / (sizeof(Tensor) + sizeof(unsigned))));
}

// `Tensor` points to one tensor and has `n`, its number of elements. The table is passed to kernels by value.
template <typename Tensor>
struct TensorTable {
  static constexpr int kMost = most_tensors<Tensor>();

  int count = 0;
  // The first block of each tensor, followed by the number of blocks.
  unsigned first_block[kMost + 1] = {};
  Tensor tensors[kMost] = {};

  bool full() const { return count == kMost; }
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
