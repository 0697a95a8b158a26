#include "lockstep/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lockstep {
namespace {

static_assert(sizeof(FutexWord) == 4 && FutexWord::is_always_lock_free);

int flag(FutexScope scope) { return scope == FutexScope::process ? FUTEX_PRIVATE_FLAG : 0; }

}  // namespace

void futex_wait(const FutexWord& word, std::uint32_t value, FutexScope scope,
                std::optional<std::chrono::steady_clock::time_point> end) noexcept {
  timespec until{};
  if (end) {
    const auto since_start = end->time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since_start);
    until.tv_sec = seconds.count();
    until.tv_nsec = std::chrono::nanoseconds(since_start - seconds).count();
  }
  // An absolute time of CLOCK_MONOTONIC, which steady_clock is.
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | flag(scope), value, end ? &until : nullptr, nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

void futex_wake(const FutexWord& word, FutexScope scope, int most) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE | flag(scope), most, nullptr, nullptr, 0);
}

void futex_wake_one(const FutexWord& word, FutexScope scope) noexcept { futex_wake(word, scope, 1); }

void futex_wake_all(const FutexWord& word, FutexScope scope) noexcept { futex_wake(word, scope, INT_MAX); }

}  // namespace lockstep
