// Sleeping until a word changes, with a time limit, which std::atomic::wait does not have. See futex(2).
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

namespace lockstep {

// Returns when the word is no longer `value` and someone has said so, or the time is up, or for no reason.
void futex_wait(const std::atomic<int>& word, int value,
                std::optional<std::chrono::nanoseconds> timeout = {}) noexcept;
void futex_wake_one(const std::atomic<int>& word) noexcept;

}  // namespace lockstep
