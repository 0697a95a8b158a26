// Internal: a kernel's resources while it runs: the threads of its lane, and scratch memory until it returns.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/base/export.h"

namespace lockstep {

// A buffer that grows to the largest request. Only one lane uses it, and contents do not outlive a kernel.
class Scratch {
 public:
  // Returns at least `bytes` bytes, aligned to 64. Invalidates earlier results.
  void* get(std::size_t bytes);

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> data_;
  std::size_t capacity_ = 0;
};

class ThreadTeam;

// One per lane. The back end makes it and may derive its own type from it.
struct KernelContext {
  explicit KernelContext(int threads_per_shard = 1);
  virtual ~KernelContext();

  // T, the number of threads that compute one shard. See Backend::threads_decide_bits.
  int threads;
  // Those threads; null for one.
  std::unique_ptr<ThreadTeam> team;
  Scratch scratch;
};

}  // namespace lockstep
