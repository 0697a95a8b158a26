#include "lockstep/backend/cpu/onednn_executor.h"

#include <omp.h>

#include <mutex>

namespace lockstep::onednn {
namespace {

void widen(const View& from, float* to) {
  const std::int64_t n = from.numel();
  if (from.dtype == DType::bf16) {
    const auto* x = from.as<BFloat16>();
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(x[i]);
  } else {
    const auto* x = from.as<float>();
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(BFloat16(x[i]));
  }
}

void narrow(const float* from, const View& to) {
  auto* y = to.as<BFloat16>();
  for (std::int64_t i = 0, n = to.numel(); i < n; ++i) y[i] = BFloat16(from[i]);
}

}  // namespace

void Executor::run(KernelContext& context, Problem problem, const std::array<View, kRoles>& views) {
  // oneDNN plans for, and runs with, the OpenMP thread count of the calling thread.
  if (omp_get_max_threads() != context.threads) omp_set_num_threads(context.threads);
  problem.threads = context.threads;
  std::array<void*, kRoles> data{};
  for (int role = 0; role < kRoles; ++role) {
    if (!views[role]) continue;
    problem.operands[role] = {views[role].dtype, views[role].layout, views[role].shape};
    data[role] = views[role].data;
  }
  if (views[kX].dtype == DType::bf16 && !native_bf16_) return run_widened(context, problem, views);
  Plan& found = plan(problem);
  found.run(data, context.scratch.get(found.scratch_bytes()));
}

void Executor::run_widened(KernelContext& context, Problem& problem, const std::array<View, kRoles>& views) {
  // Copied: what is bf16, and f32 weights that enter a bf16 product.
  std::array<std::size_t, kRoles> offsets{};
  std::array<bool, kRoles> copied{};
  std::size_t bytes = 0;
  for (int role = 0; role < kRoles; ++role) {
    Operand& o = problem.operands[role];
    copied[role] = views[role] && (o.dtype == DType::bf16 || (role == kW && !problem.is_output(role)));
    if (!copied[role]) continue;
    o.dtype = DType::f32;
    offsets[role] = bytes;
    bytes += (static_cast<std::size_t>(o.shape.numel()) * sizeof(float) + 63) / 64 * 64;
  }
  Plan& found = plan(problem);
  auto* scratch = static_cast<std::byte*>(context.scratch.get(bytes + found.scratch_bytes()));

  std::array<void*, kRoles> data{};
  for (int role = 0; role < kRoles; ++role) {
    data[role] = copied[role] ? scratch + offsets[role] : views[role].data;
    if (copied[role] && !problem.is_output(role)) widen(views[role], static_cast<float*>(data[role]));
  }
  found.run(data, scratch + bytes);
  for (int role = 0; role < kRoles; ++role) {
    if (copied[role] && problem.is_output(role)) narrow(static_cast<float*>(data[role]), views[role]);
  }
}

Plan& Executor::plan(const Problem& problem) {
  {
    std::shared_lock lock(mutex_);
    if (auto it = plans_.find(problem); it != plans_.end()) return *it->second;
  }
  // Made without the lock: others go on meanwhile. Of two that are made at once the first stays.
  auto made = std::make_unique<Plan>(problem);
  std::unique_lock lock(mutex_);
  return *plans_.try_emplace(problem, std::move(made)).first->second;
}

std::size_t Executor::plans() const {
  std::shared_lock lock(mutex_);
  return plans_.size();
}

}  // namespace lockstep::onednn
