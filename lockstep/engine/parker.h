// Internal: how a thread waits for another one: it spins for a while if a core is free, then sleeps.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "lockstep/base/futex.h"
#include "lockstep/base/spin.h"

namespace lockstep {

// A group of threads that counts its awake members, so that other threads know how many cores the group uses.
struct AwakeGroup {
  std::atomic<int>& awake;
  // A thread counts as awake for this long after it has fallen asleep.
  std::chrono::nanoseconds linger{0};
};

// One thread parks and any other unparks it: one unpark() for each park(), in either order.
class Parker {
 public:
  // Everything that happened before unpark() is visible afterwards. The caller must be counted as awake, also in
  // `group` if there is one. Returns false on timeout without an unpark(); then park again. A group has no timeout.
  bool park(SpinPolicy& policy, std::optional<std::chrono::nanoseconds> timeout = {}) noexcept;
  void park(SpinPolicy& policy, const AwakeGroup& group) noexcept;
  void unpark() noexcept {
    if (state_.exchange(kUnparked, std::memory_order_release) == kParked) futex_wake_one(state_, FutexScope::process);
  }

 private:
  static constexpr std::uint32_t kIdle = 0, kParked = 1, kUnparked = 2;
  bool spin(const SpinPolicy& policy) const noexcept;
  // Spins; if no unpark() comes, calls asleep() in state kParked. Returns false only if asleep() does.
  template <typename Asleep>
  bool park_with(SpinPolicy& policy, const Asleep& asleep) noexcept;
  bool sleep(std::optional<std::chrono::nanoseconds> timeout) noexcept;

  FutexWord state_{kIdle};
};

}  // namespace lockstep
