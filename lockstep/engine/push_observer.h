// Sees what is pushed: enough to tell who will wait for whom.
#pragma once

#include "lockstep/engine/task.h"

namespace lockstep {

// Called in the order of pushing, with the engine's lock held: must not call the engine.
class PushObserver {
 public:
  virtual ~PushObserver() = default;
  // About to be pushed, and may be changed.
  virtual void pushing(Task&) {}
  virtual void pushed(const Task&) noexcept {}
  // `fresh` stands for the same memory as `old` from now on.
  virtual void succeeded(const Resource& old, const Resource& fresh) noexcept = 0;
  // The host is about to wait for data.
  virtual void waiting() noexcept {}
};

}  // namespace lockstep
