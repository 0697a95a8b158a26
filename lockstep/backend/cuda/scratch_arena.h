// The part of its lane's device memory that one kernel call uses. Count the needed bytes first, then take them.
#pragma once

#include <cstddef>

#include "lockstep/backend/cuda/cuda_context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

class ScratchArena {
 public:
  // `bytes` must cover all parts, each rounded up by bytes_of().
  ScratchArena(CudaContext& context, std::size_t bytes)
      : next_(bytes == 0 ? nullptr : static_cast<std::byte*>(context.device_scratch(bytes))) {}

  static std::size_t bytes_of(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

  void* take(std::size_t bytes) {
    void* part = next_;
    next_ += bytes_of(bytes);
    return part;
  }
  // Gives `v` its own memory.
  View take(View v) {
    v.data = take(v.bytes());
    return v;
  }

 private:
  std::byte* next_;
};

}  // namespace lockstep
