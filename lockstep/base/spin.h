// Internal: how long a waiting thread spins before it sleeps. A hand-over to a spinning thread costs a tenth of a
// microsecond; to a sleeping thread, five to thirty microseconds.
#pragma once

#include <atomic>
#include <chrono>

#include "lockstep/base/adaptive_lock.h"

namespace lockstep {

// The time after which a sleeping thread costs no more than a spinning one.
inline constexpr std::chrono::microseconds kSpinTime{50};

// The threads that wait for one another share one policy.
struct SpinPolicy {
  std::chrono::nanoseconds limit{0};
  int cores = 1;
  // Threads that work or spin.
  std::atomic<int> awake{0};

  // Whether each awake thread can have a core. If not, a spinning thread takes a core from a working one.
  bool core_to_spare() const { return awake.load(std::memory_order_relaxed) <= cores; }

  // The policy of the engine whose worker this thread is, for tasks that wait for something outside the engine. Null in
  // other threads.
  static SpinPolicy*& of_thread();
  // Whether this thread leaves a core to each working thread of its engine if it spins.
  static bool thread_may_spin() {
    const SpinPolicy* policy = of_thread();
    return !policy || policy->core_to_spare();
  }
};

// While an object of this class lives, this thread sleeps and does not count as awake.
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

// Spins until the condition is true, `limit` is over, or may_go_on() is false. Returns whether the condition is true.
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

// A worker of an engine stops spinning if its core is needed by a working thread of the engine.
template <typename Condition>
bool spin_until(const Condition& condition, std::chrono::nanoseconds limit) {
  return spin_until(condition, limit, [] { return SpinPolicy::thread_may_spin(); });
}

}  // namespace lockstep
