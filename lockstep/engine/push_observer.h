// Internal: observes pushes: enough to tell which task will wait for which.
#pragma once

#include "lockstep/engine/task.h"

namespace lockstep {

// Called in the order of pushing with the engine's lock held, so it must not call the engine.
class PushObserver {
 public:
  virtual ~PushObserver() = default;
  // The task is about to be pushed. The observer may change it.
  virtual void pushing(Task&) {}
  virtual void pushed(const Task&) noexcept {}
  // From now on `fresh` stands for the same memory as `old`.
  virtual void succeeded(const Resource& old, const Resource& fresh) noexcept = 0;
  // The host is about to wait for data.
  virtual void waiting() noexcept {}
};

}  // namespace lockstep
