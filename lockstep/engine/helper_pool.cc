#include "lockstep/engine/helper_pool.h"

#include <system_error>
#include <utility>

#include "lockstep/base/spin.h"
#include "lockstep/engine/bind_thread.h"
#include "lockstep/engine/thread_team.h"

namespace lockstep {

HelperPool::HelperPool(int helpers, BusyLanes busy, std::vector<int> cpus)
    : helpers_wanted_(helpers), busy_(std::move(busy)), cpus_(std::move(cpus)) {}

HelperPool::~HelperPool() {
  stopping_ = true;
  loop_.fetch_add(1);
  futex_wake_all(loop_, FutexScope::process);
  for (std::thread& helper : helpers_) helper.join();
}

void HelperPool::add(ThreadTeam& team) {
  const std::lock_guard lock(mutex_);
  team.next_ = teams_.load(std::memory_order_relaxed);
  teams_.store(&team, std::memory_order_release);
}

void HelperPool::start() {
  const std::lock_guard lock(mutex_);
  if (started_) return;
  SpinPolicy* const policy = SpinPolicy::of_thread();
  try {
    for (int i = 0; i < helpers_wanted_; ++i) helpers_.emplace_back([this, policy] { help(policy); });
  } catch (const std::system_error&) {
    // The process has reached its limit of threads. Fewer helpers compute the same bits.
  }
  started_ = true;
}

void HelperPool::call(int most) {
  if (!started_.load(std::memory_order_acquire)) start();
  // Sequentially consistent, as in help(): either a helper sees the new loop, or this thread sees the helper asleep.
  loop_.fetch_add(1);
  if (sleeping_.load() > 0) futex_wake(loop_, FutexScope::process, most);
}

bool HelperPool::join() {
  if (!busy_) return true;
  int active = active_.load(std::memory_order_relaxed);
  while (active + busy_->load(std::memory_order_relaxed) <= helpers_wanted_) {
    if (active_.compare_exchange_weak(active, active + 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

void HelperPool::leave() {
  if (busy_) active_.fetch_sub(1, std::memory_order_relaxed);
}

void HelperPool::help(SpinPolicy* policy) {
  SpinPolicy::of_thread() = policy;
  // A core that this process may no longer use costs speed, not results.
  if (!cpus_.empty()) bind_thread(cpus_);
  if (policy) policy->awake.fetch_add(1, std::memory_order_relaxed);
  // A helper may start after the loop that it was started for.
  std::uint32_t seen = loop_.load() - 1;
  while (true) {
    const auto begun = [&] { return loop_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(begun, policy ? policy->limit : kHelperSpin)) {
      Asleep asleep;
      sleeping_.fetch_add(1);
      while (loop_.load() == seen) futex_wait(loop_, seen, FutexScope::process);
      sleeping_.fetch_sub(1);
    }
    seen = loop_.load(std::memory_order_acquire);
    if (stopping_) break;
    if (!join()) continue;
    for (ThreadTeam* team = teams_.load(std::memory_order_acquire); team; team = team->next_) team->work();
    leave();
  }
  if (policy) policy->awake.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace lockstep
