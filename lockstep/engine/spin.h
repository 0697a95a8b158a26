// How long a thread that waits for another one looks before it sleeps: a hand-over to a spinning thread costs a tenth of a
// microsecond, to a sleeping one some five to thirty.
#pragma once

#include <atomic>
#include <chrono>

#include "lockstep/engine/adaptive_lock.h"

namespace lockstep {

// Shared by the threads that wait for one another.
struct SpinPolicy {
  std::chrono::nanoseconds limit{0};
  int cores = 1;
  // Threads that work or spin.
  std::atomic<int> awake{0};

  // A thread that spins beyond this takes a core from one that works.
  bool core_to_spare() const { return awake.load(std::memory_order_relaxed) <= cores; }

  // That of the engine whose worker this thread is, for tasks that wait for something outside of it; null elsewhere.
  static SpinPolicy*& of_thread();
};

// While one lives, this thread sleeps and does not count as awake.
class Asleep {
 public:
  Asleep() : policy_(SpinPolicy::of_thread()) {
    if (policy_) policy_->awake.fetch_sub(1, std::memory_order_relaxed);
  }
  ~Asleep() {
    if (policy_) policy_->awake.fetch_add(1, std::memory_order_relaxed);
  }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;

 private:
  SpinPolicy* policy_;
};

// Whether the condition came true.
template <typename Condition, typename MayGoOn>
bool spin_until(const Condition& condition, std::chrono::nanoseconds limit, const MayGoOn& may_go_on) {
  if (!may_go_on()) return false;
  constexpr int kLooks = 16;  // between two looks at the clock
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (condition()) return true;
      spin_pause();
    }
  } while (may_go_on() && std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace lockstep
