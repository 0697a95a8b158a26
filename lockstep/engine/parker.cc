#include "lockstep/engine/parker.h"

namespace lockstep {

using Clock = std::chrono::steady_clock;

SpinPolicy*& SpinPolicy::of_thread() {
  thread_local SpinPolicy* policy = nullptr;
  return policy;
}

bool Parker::park(SpinPolicy& policy, std::optional<std::chrono::nanoseconds> timeout) noexcept {
  int idle = kIdle;
  if (!spin(policy) && state_.compare_exchange_strong(idle, kParked, std::memory_order_acquire)) {
    policy.awake.fetch_sub(1, std::memory_order_relaxed);
    const bool unparked = sleep(timeout);
    policy.awake.fetch_add(1, std::memory_order_relaxed);
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
  const auto end = timeout ? Clock::now() + *timeout : Clock::time_point::max();
  while (state_.load(std::memory_order_acquire) == kParked) {
    if (timeout) {
      const auto left = end - Clock::now();
      // Fails if another thread unparks it at this moment.
      int parked = kParked;
      if (left.count() <= 0) return !state_.compare_exchange_strong(parked, kIdle, std::memory_order_acquire);
      timeout = left;
    }
    futex_wait(state_, kParked, timeout);
  }
  return true;
}

}  // namespace lockstep
