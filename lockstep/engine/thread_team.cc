#include "lockstep/engine/thread_team.h"

#include <chrono>
#include <cstdint>
#include <system_error>
#include <utility>

#include "lockstep/base/spin.h"

namespace lockstep {
namespace {

// How long helpers spin if the team belongs to no engine.
constexpr std::chrono::nanoseconds kSpin{20'000};

template <typename Condition>
bool spin_for(const Condition& condition, const SpinPolicy* policy) {
  return spin_until(condition, policy ? policy->limit : kSpin);
}

}  // namespace

ThreadTeam::~ThreadTeam() { stop(); }

void ThreadTeam::stop() noexcept {
  stopping_ = true;
  loop_.fetch_add(1);
  futex_wake_all(loop_, FutexScope::process);
  for (std::thread& helper : helpers_) helper.join();
  helpers_.clear();
}

void ThreadTeam::start() {
  started_ = true;
  SpinPolicy* const policy = SpinPolicy::of_thread();
  try {
    for (int i = 1; i < threads_; ++i) helpers_.emplace_back([this, policy] { help(policy); });
  } catch (const std::system_error&) {
    // This process may have no more threads. Fewer helpers compute the same bits.
  }
}

void ThreadTeam::run(Body body, int parts) {
  body_ = body;
  parts_ = parts;
  if (region_) {
    region_(
        threads_, parts, [](void* team, int part) { static_cast<ThreadTeam*>(team)->compute(part); }, this);
  } else if (parts == 1) {
    compute(0);
  } else {
    share(parts);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadTeam::share(int parts) {
  if (!started_) start();
  computed_.store(0, std::memory_order_relaxed);
  left_.store(parts, std::memory_order_release);
  // Sequentially consistent, as in help(): either a helper sees the new loop, or this thread sees that it sleeps.
  loop_.fetch_add(1);
  if (sleeping_helpers_.load() > 0) futex_wake_all(loop_, FutexScope::process);
  work();
  const auto all = static_cast<std::uint32_t>(parts);
  const auto done = [&] { return computed_.load(std::memory_order_acquire) == all; };
  if (done() || spin_for(done, SpinPolicy::of_thread())) return;
  Asleep asleep;
  worker_sleeps_ = true;
  for (std::uint32_t now = computed_.load(); now != all; now = computed_.load()) {
    futex_wait(computed_, now, FutexScope::process);
  }
  worker_sleeps_ = false;
}

void ThreadTeam::help(SpinPolicy* policy) {
  SpinPolicy::of_thread() = policy;
  if (policy) policy->awake.fetch_add(1, std::memory_order_relaxed);
  // A helper may start after the loop that it was started for.
  std::uint32_t seen = loop_.load() - 1;
  while (true) {
    const auto begun = [&] { return loop_.load(std::memory_order_acquire) != seen; };
    if (!spin_for(begun, policy)) {
      Asleep asleep;
      sleeping_helpers_.fetch_add(1);
      while (loop_.load() == seen) futex_wait(loop_, seen, FutexScope::process);
      sleeping_helpers_.fetch_sub(1);
    }
    seen = loop_.load(std::memory_order_acquire);
    if (stopping_) break;
    work();
  }
  if (policy) policy->awake.fetch_sub(1, std::memory_order_relaxed);
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
