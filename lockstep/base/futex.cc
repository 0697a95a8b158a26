#include "lockstep/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lockstep {

static_assert(sizeof(std::atomic<int>) == sizeof(int) && std::atomic<int>::is_always_lock_free);

void futex_wait(const std::atomic<int>& word, int value, std::optional<std::chrono::nanoseconds> timeout) noexcept {
  timespec limit{};
  if (timeout) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(*timeout);
    limit.tv_sec = seconds.count();
    limit.tv_nsec = (*timeout - seconds).count();
  }
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, timeout ? &limit : nullptr, nullptr, 0);
}

void futex_wake_one(const std::atomic<int>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void futex_wake_all(const std::atomic<int>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lockstep
