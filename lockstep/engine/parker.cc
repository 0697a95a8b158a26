#include "lockstep/engine/parker.h"

namespace lockstep {

using Clock = std::chrono::steady_clock;

bool Parker::park(SpinPolicy& policy, std::optional<std::chrono::nanoseconds> timeout,
                  std::atomic<int>* group) noexcept {
  std::uint32_t idle = kIdle;
  if (!spin(policy) && state_.compare_exchange_strong(idle, kParked, std::memory_order_acquire)) {
    policy.awake.fetch_sub(1, std::memory_order_relaxed);
    if (group) group->fetch_sub(1, std::memory_order_relaxed);
    const bool unparked = sleep(timeout);
    policy.awake.fetch_add(1, std::memory_order_relaxed);
    if (group) group->fetch_add(1, std::memory_order_relaxed);
    if (!unparked) return false;
  }
  state_.store(kIdle, std::memory_order_relaxed);
  return true;
}

bool Parker::spin(const SpinPolicy& policy) const noexcept {
  return spin_until([this] { return state_.load(std::memory_order_acquire) == kUnparked; }, policy.limit,
                    [&policy] { return policy.core_to_spare(); });
}

bool Parker::sleep(std::optional<std::chrono::nanoseconds> timeout) noexcept {
  const std::optional<Clock::time_point> end = timeout ? std::optional(Clock::now() + *timeout) : std::nullopt;
  while (state_.load(std::memory_order_acquire) == kParked) {
    if (end && Clock::now() >= *end) {
      // Fails if another thread unparks it at this moment.
      std::uint32_t parked = kParked;
      return !state_.compare_exchange_strong(parked, kIdle, std::memory_order_acquire);
    }
    futex_wait(state_, kParked, FutexScope::process, end);
  }
  return true;
}

}  // namespace lockstep
