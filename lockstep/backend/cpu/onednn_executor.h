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

// May be called from many threads at once, each with a context of its own.
class Executor {
 public:
  // Keeps the `most_plans` plans that were used last; a forgotten plan that runs lives until it is done. A training run needs
  // a few hundred: three passes of each layer, for each size of a shard. A service that sees images of every size has no
  // bound.
  explicit Executor(std::size_t most_plans = 1024);

  // `kind`, options and transposes of `problem` are the caller's; operands are filled in here.
  void run(KernelContext& context, Problem problem, const std::array<View, kRoles>& views);

  // For kernels that do more around a plan. `problem` is complete but for its threads.
  std::shared_ptr<Plan> plan(const KernelContext& context, Problem& problem);

  // The number of plans that are kept.
  std::size_t plans() const;

 private:
  struct Entry {
    std::shared_ptr<Plan> plan;
    // When it was asked for last. Written by readers of the table.
    std::atomic<std::uint64_t> used = 0;
  };

  const std::size_t most_plans_;
  std::atomic<std::uint64_t> clock_ = 0;  // counts calls of plan()
  mutable std::shared_mutex mutex_;
  std::unordered_map<Problem, Entry, ProblemHash> plans_;
};

}  // namespace lockstep::onednn
