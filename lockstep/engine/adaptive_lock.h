// A lock for very short critical sections: spins for about a microsecond, then sleeps.
#pragma once

#include <atomic>

namespace lockstep {

// Tells the processor that this is a spinning loop.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// Lockable, for std::unique_lock.
class AdaptiveLock {
 public:
  void lock() {
    for (int i = 0; i < kSpins; ++i) {
      if (try_lock()) return;
      spin_pause();
    }
    // From here on the lock counts as contended until it is free, so that its holder wakes us.
    while (state_.exchange(kContended, std::memory_order_acquire) != kFree) state_.wait(kContended);
  }
  bool try_lock() {
    int expected = kFree;
    return state_.load(std::memory_order_relaxed) == kFree &&
           state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) state_.notify_one();
  }

 private:
  static constexpr int kFree = 0, kHeld = 1, kContended = 2;
  static constexpr int kSpins = 40;

  std::atomic<int> state_{kFree};
};

}  // namespace lockstep
