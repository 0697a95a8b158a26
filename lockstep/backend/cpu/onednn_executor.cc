#include "lockstep/backend/cpu/onednn_executor.h"

#include <algorithm>
#include <mutex>

#include "lockstep/backend/cpu/onednn_isa.h"
#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/backend/openmp_threads.h"

namespace lockstep::onednn {
namespace {

// From T, or from f32, which is rounded to T on the way.
template <typename T>
void widen(const KernelContext& context, const View& from, float* to) {
  const std::int64_t n = from.numel();
  if (from.dtype == DType::f32) {
    cpu::parallel_vector_loop(context, n, [=, x = from.as<float>()](std::int64_t i) { to[i] = static_cast<float>(T(x[i])); });
  } else {
    cpu::parallel_vector_loop(context, n, [=, x = from.as<T>()](std::int64_t i) { to[i] = static_cast<float>(x[i]); });
  }
}

template <typename T>
void narrow(const KernelContext& context, const float* from, const View& to) {
  auto* y = to.as<T>();
  cpu::parallel_vector_loop(context, to.numel(), [=](std::int64_t i) { y[i] = T(from[i]); });
}

// Calls visitor with an element of bf16 or f16.
template <typename Visitor>
void visit_half(DType dtype, const Visitor& visitor) {
  dtype == DType::bf16 ? visitor(BFloat16{}) : visitor(Float16{});
}

}  // namespace

Executor::Executor(bool native_bf16, std::size_t most_plans) : native_bf16_(native_bf16), most_plans_(most_plans) {
  check(most_plans > 0, "onednn: a cache of 0 plans, expected at least 1");
  limit_isa();
}

void Executor::run(KernelContext& context, Problem problem, const std::array<View, kRoles>& views) {
  std::array<void*, kRoles> data{};
  for (int role = 0; role < kRoles; ++role) {
    problem.operands[role] = Operand::of(views[role]);
    data[role] = views[role].data;
  }
  const DType dtype = views[kX].dtype;
  if (dtype == DType::f16 || (dtype == DType::bf16 && !native_bf16_)) return run_widened(context, problem, views);
  const std::shared_ptr<Plan> found = plan(context, problem);
  found->run(data, context.scratch.get(found->scratch_bytes()));
}

void Executor::run_widened(KernelContext& context, Problem& problem, const std::array<View, kRoles>& views) {
  // Copied: what has 16 bits, and f32 weights that enter such a product.
  std::array<std::size_t, kRoles> offsets{};
  std::array<bool, kRoles> copied{};
  std::size_t bytes = 0;
  for (int role = 0; role < kRoles; ++role) {
    Operand& o = problem.operands[role];
    copied[role] = views[role] && (is_half_dtype(o.dtype) || (role == kW && !problem.is_output(role)));
    if (!copied[role]) continue;
    o.dtype = DType::f32;
    offsets[role] = bytes;
    bytes += (static_cast<std::size_t>(o.shape.numel()) * sizeof(float) + 63) / 64 * 64;
  }
  const std::shared_ptr<Plan> found = plan(context, problem);
  auto* scratch = static_cast<std::byte*>(context.scratch.get(bytes + found->scratch_bytes()));

  std::array<void*, kRoles> data{};
  visit_half(views[kX].dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int role = 0; role < kRoles; ++role) {
      data[role] = copied[role] ? scratch + offsets[role] : views[role].data;
      if (copied[role] && !problem.is_output(role)) {
        widen<T>(context, views[role], static_cast<float*>(data[role]));
      }
    }
    found->run(data, scratch + bytes);
    for (int role = 0; role < kRoles; ++role) {
      if (copied[role] && problem.is_output(role)) {
        narrow<T>(context, static_cast<float*>(data[role]), views[role]);
      }
    }
  });
}

std::shared_ptr<Plan> Executor::plan(const KernelContext& context, Problem& problem) {
  // oneDNN plans for, and runs with, the OpenMP thread count of the calling thread.
  use_openmp_threads(context.threads);
  problem.threads = context.threads;
  const std::uint64_t now = clock_.fetch_add(1, std::memory_order_relaxed);
  {
    std::shared_lock lock(mutex_);
    if (auto it = plans_.find(problem); it != plans_.end()) {
      it->second.used.store(now, std::memory_order_relaxed);
      return it->second.plan;
    }
  }
  // Made without the lock: others go on meanwhile. Of two that are made at once the first stays.
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
