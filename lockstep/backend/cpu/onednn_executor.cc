#include "lockstep/backend/cpu/onednn_executor.h"

#include <algorithm>
#include <mutex>

#include "lockstep/backend/cpu/onednn_isa.h"
#include "lockstep/backend/openmp_threads.h"
#include "lockstep/engine/thread_team.h"

namespace lockstep::onednn {
Executor::Executor(std::size_t most_plans) : most_plans_(most_plans) {
  check(most_plans > 0, "onednn: a cache of 0 plans, expected at least 1");
  limit_isa();
}

void Executor::run(KernelContext& context, Problem problem, const std::array<View, kRoles>& views) {
  std::array<void*, kRoles> data{};
  for (int role = 0; role < kRoles; ++role) {
    problem.operands[role] = OperandSpec::of(views[role]);
    data[role] = views[role].data;
  }
  const std::shared_ptr<Plan> found = plan(context, problem);
  found->run(data, context.scratch.get(found->scratch_bytes()));
}

std::shared_ptr<Plan> Executor::plan(const KernelContext& context, Problem& problem) {
  // oneDNN plans for, and runs with, the OpenMP thread count of the calling thread.
  use_openmp_threads(context.threads_per_shard);
  // libgomp's threads spin after each of oneDNN's loops and would slow down helpers, so the team's loops use them, too.
  if (context.threads_per_shard > 1) context.team->use(openmp_region, context.threads_per_shard);
  problem.threads = context.threads_per_shard;
  const std::uint64_t now = clock_.fetch_add(1, std::memory_order_relaxed);
  {
    std::shared_lock lock(mutex_);
    if (auto it = plans_.find(problem); it != plans_.end()) {
      it->second.used.store(now, std::memory_order_relaxed);
      return it->second.plan;
    }
  }
  // Make the plan without the lock, so that other threads can continue. If two threads make it, the first plan is kept.
  auto made = std::make_shared<Plan>(problem);
  std::unique_lock lock(mutex_);
  if (auto it = plans_.find(problem); it != plans_.end()) return it->second.plan;
  if (plans_.size() >= most_plans_) {
    plans_.erase(std::ranges::min_element(plans_, {}, [](const auto& entry) { return entry.second.used.load(); }));
  }
  Entry& entry = plans_[problem];
  entry.plan = std::move(made);
  entry.used = now;
  return entry.plan;
}

std::size_t Executor::plans() const {
  std::shared_lock lock(mutex_);
  return plans_.size();
}

}  // namespace lockstep::onednn
