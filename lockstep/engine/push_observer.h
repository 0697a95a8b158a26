// Sees what is pushed: enough to tell who will wait for whom.
#pragma once

#include "lockstep/engine/task.h"

namespace lockstep {

// Called in the order of pushing, with the engine's lock held: must not call the engine.
class PushObserver {
 public:
  virtual ~PushObserver() = default;
  virtual void pushed(const Task& task) noexcept = 0;
  // `fresh` stands for the same memory as `old` from now on.
  virtual void succeeded(const Resource& old, const Resource& fresh) noexcept = 0;
};

}  // namespace lockstep
