// Internal: sleeps until a word changes, with a time limit, which std::atomic::wait lacks. See futex(2).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace lockstep {

using FutexWord = std::atomic<std::uint32_t>;

// Which threads wait for the word and wake each other: those of one process, or those of all processes that map its
// memory. The kernel looks for waiters of one scope only, so all calls for one word must name the same scope.
enum class FutexScope { process, shared_memory };

// Returns at once if the word differs from `value`. Otherwise, returns after a call of futex_wake_one or _all, at
// `end`, or spuriously. Check the word again.
void futex_wait(const FutexWord& word, std::uint32_t value, FutexScope scope,
                std::optional<std::chrono::steady_clock::time_point> end = {}) noexcept;
// Wakes at most `most` waiters.
void futex_wake(const FutexWord& word, FutexScope scope, int most) noexcept;
void futex_wake_one(const FutexWord& word, FutexScope scope) noexcept;
void futex_wake_all(const FutexWord& word, FutexScope scope) noexcept;

}  // namespace lockstep
