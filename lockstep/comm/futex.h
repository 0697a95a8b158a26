// Sleeping until another thread, of this process or another one that shares the memory, changes a word.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "lockstep/engine/adaptive_lock.h"

namespace lockstep {

// Returns when the word is not `expected` (any more), when someone wakes it, at `end`, or for no reason: look again.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::steady_clock::time_point end);
void futex_wake_all(std::atomic<std::uint32_t>& word);

// A hand-over to a thread that spins costs a tenth of a microsecond, to one that sleeps some thirty.
constexpr std::chrono::microseconds kSpinTime{50};

template <typename Condition>
bool spin_until(const Condition& condition) {
  constexpr int kLooks = 32;  // between two looks at the clock
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (condition()) return true;
      spin_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace lockstep
