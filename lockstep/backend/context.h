// Internal: a kernel's resources while it runs: the threads of its lane, and scratch memory until it returns.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/base/export.h"

namespace lockstep {

// A buffer that grows to the largest request. Only one lane uses it, and its contents do not outlive a kernel.
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

class HelperPool;
class ThreadTeam;

// Each lane has one context. The back end makes it and may derive its own type.
struct KernelContext {
  explicit KernelContext(int threads_per_shard = 1);
  virtual ~KernelContext();

  // Returns the lane's context, with `threads` set, when a task begins to compute.
  static KernelContext& of_task(void* lane_data);
  // From now on, each task's loops get the help of threads that no lane of the device needs. The pool must be destroyed
  // before this context.
  void share(HelperPool& helpers);

  // T, the number of threads that kernels plan for if their bits depend on it. See Backend::threads_decide_bits.
  const int threads_per_shard;
  // At most this many threads compute the task that runs: T, or more with shared helpers. No bit depends on it.
  int threads;
  // The team of these threads; null if there is always one thread.
  std::unique_ptr<ThreadTeam> team;
  Scratch scratch;

 private:
  HelperPool* helpers_ = nullptr;
};

}  // namespace lockstep
