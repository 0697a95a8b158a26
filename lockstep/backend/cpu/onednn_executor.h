// Finds or makes the plan of a problem and runs it. Private to the CPU back end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include "lockstep/backend/context.h"
#include "lockstep/backend/cpu/onednn_plan.h"

namespace lockstep::onednn {

// Many threads may call it at once, each with its own context.
class Executor {
 public:
  // Keeps the `most_plans` most recently used plans. A dropped plan lives until its runs are done. A training run needs
  // a few hundred: three passes of each layer for each shard size. Without a limit, a service with images of every size
  // would keep ever more.
  explicit Executor(std::size_t most_plans = 1024);

  // The caller sets `kind`, options, and transposes of `problem`; run() fills in the operands.
  void run(KernelContext& context, Problem problem, const std::array<View, kRoles>& views);

  // Returns the plan, for kernels that do more than run it. The caller sets all of `problem` except its threads.
  std::shared_ptr<Plan> plan(const KernelContext& context, Problem& problem);

  // The number of kept plans.
  std::size_t plans() const;

 private:
  struct Entry {
    std::shared_ptr<Plan> plan;
    // The clock at the last use. Threads that hold only the shared lock write it.
    std::atomic<std::uint64_t> used = 0;
  };

  const std::size_t most_plans_;
  std::atomic<std::uint64_t> clock_ = 0;  // counts calls of plan()
  mutable std::shared_mutex mutex_;
  std::unordered_map<Problem, Entry, ProblemHash> plans_;
};

}  // namespace lockstep::onednn
