#include "lockstep/engine/parker.h"

namespace lockstep {

using Clock = std::chrono::steady_clock;

template <typename Asleep>
bool Parker::park_with(SpinPolicy& policy, const Asleep& asleep) noexcept {
  std::uint32_t idle = kIdle;
  if (!spin(policy) && state_.compare_exchange_strong(idle, kParked, std::memory_order_acquire)) {
    policy.awake.fetch_sub(1, std::memory_order_relaxed);
    const bool unparked = asleep();
    policy.awake.fetch_add(1, std::memory_order_relaxed);
    if (!unparked) return false;
  }
  state_.store(kIdle, std::memory_order_relaxed);
  return true;
}

bool Parker::park(SpinPolicy& policy, std::optional<std::chrono::nanoseconds> timeout) noexcept {
  return park_with(policy, [&] { return sleep(timeout); });
}

void Parker::park(SpinPolicy& policy, const AwakeGroup& group) noexcept {
  park_with(policy, [&] {
    if (group.linger.count() > 0 && sleep(group.linger)) return true;
    group.awake.fetch_sub(1, std::memory_order_relaxed);
    std::uint32_t idle = kIdle;
    // After a time limit the state is kIdle, unless another thread has unparked this one.
    const bool sleeps =
        group.linger.count() == 0 || state_.compare_exchange_strong(idle, kParked, std::memory_order_acquire);
    if (sleeps) sleep({});
    group.awake.fetch_add(1, std::memory_order_relaxed);
    return true;
  });
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
