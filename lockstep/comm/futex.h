// Sleeps until another thread changes a word. That thread may belong to another process that shares the memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "lockstep/base/spin.h"

namespace lockstep {

// Returns when the word differs from `expected`, on a wake-up, at `end`, or spuriously. Check the word again.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::steady_clock::time_point end);
void futex_wake_all(std::atomic<std::uint32_t>& word);

constexpr std::chrono::microseconds kSpinTime{50};

// A worker of an engine lane that waits for another rank yields its core to busy workers of its own engine.
template <typename Condition>
bool spin_until(const Condition& condition) {
  const SpinPolicy* policy = SpinPolicy::of_thread();
  return spin_until(condition, kSpinTime, [policy] { return !policy || policy->core_to_spare(); });
}

}  // namespace lockstep
