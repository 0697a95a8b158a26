// Internal: lets a program end a long wait of the calling thread, as Ctrl-C does in Python. Waits for batches use it.
//
//   const InterruptionScope scope([] { if (stopped) throw Stopped(); });
//   trainer.train();
#pragma once

#include <functional>

namespace lockstep {

// While it lives, waits of this thread call `check` now and then. An exception from `check` ends the wait.
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

// Whether this thread is in an InterruptionScope.
bool can_be_interrupted();
// Call it during a wait: it runs the scope's `check`, which throws if the wait should end.
void check_interruption();

}  // namespace lockstep
