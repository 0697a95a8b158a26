// Sleeping until another thread, of this process or another one that shares the memory, changes a word.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "lockstep/engine/spin.h"

namespace lockstep {

// Returns when the word is not `expected` (any more), when someone wakes it, at `end`, or for no reason: look again.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::steady_clock::time_point end);
void futex_wake_all(std::atomic<std::uint32_t>& word);

constexpr std::chrono::microseconds kSpinTime{50};

// Waiting for another rank, a channel's worker leaves the core to those of its own engine that have something to do.
template <typename Condition>
bool spin_until(const Condition& condition) {
  const SpinPolicy* policy = SpinPolicy::of_thread();
  return spin_until(condition, kSpinTime, [policy] { return !policy || policy->core_to_spare(); });
}

}  // namespace lockstep
