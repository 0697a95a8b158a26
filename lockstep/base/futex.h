// Sleeps until a word changes, with a time limit, which std::atomic::wait lacks. See futex(2).
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

namespace lockstep {

// Returns when the word differs from `value` and a thread has called futex_wake_one or _all, on timeout, or spuriously.
void futex_wait(const std::atomic<int>& word, int value, std::optional<std::chrono::nanoseconds> timeout = {}) noexcept;
void futex_wake_one(const std::atomic<int>& word) noexcept;
void futex_wake_all(const std::atomic<int>& word) noexcept;

}  // namespace lockstep
