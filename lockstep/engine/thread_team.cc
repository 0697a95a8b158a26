#include "lockstep/engine/thread_team.h"

#include <cstdint>
#include <utility>

#include "lockstep/base/spin.h"

namespace lockstep {

ThreadTeam::ThreadTeam(int threads) : own_pool_(std::make_unique<HelperPool>(threads - 1)), pool_(*own_pool_) {
  pool_.add(*this);
}

ThreadTeam::ThreadTeam(HelperPool& pool) : pool_(pool) { pool_.add(*this); }

ThreadTeam::~ThreadTeam() = default;

void ThreadTeam::run(Body body, int parts) {
  body_ = body;
  parts_ = parts;
  if (region_) {
    region_(
        region_threads_, parts, [](void* team, int part) { static_cast<ThreadTeam*>(team)->compute(part); }, this);
  } else if (parts == 1) {
    compute(0);
  } else {
    share(parts);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadTeam::share(int parts) {
  computed_.store(0, std::memory_order_relaxed);
  left_.store(parts, std::memory_order_release);
  pool_.call(parts - 1);
  work();
  const auto all = static_cast<std::uint32_t>(parts);
  const auto done = [&] { return computed_.load(std::memory_order_acquire) == all; };
  const SpinPolicy* const policy = SpinPolicy::of_thread();
  if (done() || spin_until(done, policy ? policy->limit : kHelperSpin)) return;
  Asleep asleep;
  worker_sleeps_ = true;
  for (std::uint32_t now = computed_.load(); now != all; now = computed_.load()) {
    futex_wait(computed_, now, FutexScope::process);
  }
  worker_sleeps_ = false;
}

void ThreadTeam::work() {
  int left = left_.load(std::memory_order_acquire);
  while (left > 0) {
    if (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    const int parts = parts_;
    compute(parts - left);
    // Once all parts are computed, the worker may go on to the next loop.
    const bool last = computed_.fetch_add(1) + 1 == static_cast<std::uint32_t>(parts);
    if (last && worker_sleeps_) futex_wake_all(computed_, FutexScope::process);
    left = left_.load(std::memory_order_acquire);
  }
}

void ThreadTeam::compute(int part) noexcept {
  try {
    body_.call(body_.function, part);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!error_ || part < failed_part_) {
      failed_part_ = part;
      error_ = std::current_exception();
    }
  }
}

}  // namespace lockstep
