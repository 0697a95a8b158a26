#include "lockstep/engine/parker.h"

#include "lockstep/engine/adaptive_lock.h"

namespace lockstep {

void Parker::park(SpinPolicy& policy) noexcept {
  int idle = kIdle;
  if (!spin(policy) && state_.compare_exchange_strong(idle, kParked, std::memory_order_acquire)) {
    policy.awake.fetch_sub(1, std::memory_order_relaxed);
    do state_.wait(kParked, std::memory_order_acquire);
    while (state_.load(std::memory_order_acquire) == kParked);
    policy.awake.fetch_add(1, std::memory_order_relaxed);
  }
  state_.store(kIdle, std::memory_order_relaxed);
}

bool Parker::spin(const SpinPolicy& policy) const noexcept {
  if (!policy.core_to_spare()) return false;
  // Between two looks at the clock.
  constexpr int kLooks = 16;
  const auto end = std::chrono::steady_clock::now() + policy.limit;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (state_.load(std::memory_order_acquire) == kUnparked) return true;
      spin_pause();
    }
  } while (policy.core_to_spare() && std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace lockstep
