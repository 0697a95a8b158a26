// Internal: how a program ends a long wait of a thread of its own, as Ctrl-C does in Python. Waits for batches look.
//
//   const InterruptionScope scope([] { if (stopped) throw Stopped(); });
//   trainer.train();
#pragma once

#include <functional>

namespace lockstep {

// While it lives, waits of this thread call `check` now and then. What it throws ends the wait.
class InterruptionScope {
 public:
  explicit InterruptionScope(std::function<void()> check);
  ~InterruptionScope();
  InterruptionScope(const InterruptionScope&) = delete;
  InterruptionScope& operator=(const InterruptionScope&) = delete;

 private:
  std::function<void()> check_;
  const std::function<void()>* outer_;
};

// Whether this thread is in such a scope.
bool can_be_interrupted();
// For waits: throws if this thread is to end its wait.
void check_interruption();

}  // namespace lockstep
