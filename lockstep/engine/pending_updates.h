// Internal: counts updates (Task::updates) that were left out because their batch failed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "lockstep/engine/engine.h"

namespace lockstep {

class PendingUpdates {
 public:
  // `done`: a resource that one task of the update writes without reading it, and that no other task writes.
  void add(const std::shared_ptr<Engine>& engine, Resource done);
  // Returns how many updates were left out, and counts each only once. Waits for the updates and looks only if a wait
  // has thrown a failure since the last call: before that, the program cannot know that an update is missing.
  std::int64_t take_left_out();
  // The same, but always waits and looks.
  std::int64_t wait_left_out();
  void clear() { pending_.clear(); }

 private:
  struct Update {
    std::weak_ptr<Engine> engine;
    Resource done;
  };
  std::deque<Update> pending_;
  std::uint64_t reports_ = 0;  // of the last update's engine
};

}  // namespace lockstep
