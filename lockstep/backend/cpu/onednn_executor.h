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
  // f16 operands, and bf16 ones without native bf16, are widened to f32 in scratch and the weights rounded: the
  // same results up to the order of the sums.
  // Keeps at most `most_plans` plans, those used last; one that runs lives on until it is done. A training run needs a few
  // hundred: three passes of each layer, for each size of a shard. A service that sees images of every size has no bound.
  explicit Executor(bool native_bf16, std::size_t most_plans = 1024);

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

  void run_widened(KernelContext& context, Problem& problem, const std::array<View, kRoles>& views);

  const bool native_bf16_;
  const std::size_t most_plans_;
  std::atomic<std::uint64_t> clock_ = 0;  // counts calls of plan()
  mutable std::shared_mutex mutex_;
  std::unordered_map<Problem, Entry, ProblemHash> plans_;
};

}  // namespace lockstep::onednn
