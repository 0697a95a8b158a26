// A GPU in whose memory a TreeReducer sums.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "lockstep/device/stream.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep {

// Everything is queued on the one stream, in order, by one thread at a time; data are addresses in the GPU's memory.
class SummingDevice {
 public:
  virtual ~SummingDevice() = default;
  virtual Stream& stream() = 0;
  // Uninitialized memory that is free, aligned to 64.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
  // out = the leaves' sum, in the order and with the bits of tree_reduce() (f32) or rounded_tree_sum() (bf16). A null
  // leaf lets its sibling pass unchanged, one is there; what is in the leaves is lost.
  virtual void sum(DType dtype, std::span<std::byte* const> leaves, std::byte* out, std::size_t count) = 0;
  virtual void fill_with_zeros(DType dtype, std::byte* out, std::size_t count) = 0;
  virtual void widen(const std::byte* bf16, std::byte* f32, std::size_t count) = 0;
};

}  // namespace lockstep
