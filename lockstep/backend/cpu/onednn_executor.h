// Finds or makes the plan of a problem and runs it. Private to the CPU back end.
#pragma once

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
  explicit Executor(bool native_bf16) : native_bf16_(native_bf16) {}

  // `kind`, options and transposes of `problem` are the caller's; operands are filled in here.
  void run(KernelContext& context, Problem problem, const std::array<View, kRoles>& views);

  // For kernels that do more around a plan. `problem` is complete but for its threads.
  Plan& plan(const KernelContext& context, Problem& problem);

  // The number of plans made so far.
  std::size_t plans() const;

 private:
  void run_widened(KernelContext& context, Problem& problem, const std::array<View, kRoles>& views);
  const bool native_bf16_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<Problem, std::unique_ptr<Plan>, ProblemHash> plans_;
};

}  // namespace lockstep::onednn
