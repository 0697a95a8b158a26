// Internal: a GPU whose memory holds the sums of a TreeReducer.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "lockstep/device/stream.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep {

// One thread at a time queues all work on one stream, in order. Data pointers are addresses in the GPU's memory.
class SummingDevice {
 public:
  virtual ~SummingDevice() = default;
  virtual Stream& stream() = 0;
  // Returns uninitialized memory, aligned to 64 bytes.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
  // Writes the sum of the leaves to `out`, with the order and bits of tree_reduce() (f32) or rounded_tree_sum() (bf16).
  // A null leaf lets its sibling pass unchanged; at least one leaf is not null. Overwrites the leaves.
  virtual void sum(DType dtype, std::span<std::byte* const> leaves, std::byte* out, std::size_t count) = 0;
  virtual void fill_with_zeros(DType dtype, std::byte* out, std::size_t count) = 0;
  virtual void widen(const std::byte* bf16, std::byte* f32, std::size_t count) = 0;
};

}  // namespace lockstep
