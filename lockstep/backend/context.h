// What a kernel may use while it runs: the threads of its lane and memory that is its own until it returns.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// A buffer that grows to the largest request and is used by one lane only. Contents do not outlive a kernel.
class Scratch {
 public:
  // At least `bytes` bytes, aligned to 64; what an earlier call returned becomes invalid.
  void* get(std::size_t bytes);

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> data_;
  std::size_t capacity_ = 0;
};

// One per lane, made by the back end, which may give its kernels more than this.
struct KernelContext {
  explicit KernelContext(int threads_per_shard = 1) : threads(threads_per_shard) {}
  virtual ~KernelContext() = default;

  // T, the number of threads that compute one shard. See Backend::threads_decide_bits.
  int threads;
  Scratch scratch;
};

}  // namespace lockstep
