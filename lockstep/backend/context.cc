#include "lockstep/backend/context.h"

#include <new>

#include "lockstep/engine/thread_team.h"

namespace lockstep {
namespace {

constexpr std::align_val_t kScratchAlignment{64};

}  // namespace

KernelContext::KernelContext(int t)
    : threads_per_shard(t), threads(t), team(t > 1 ? std::make_unique<ThreadTeam>(t) : nullptr) {}

KernelContext& KernelContext::of_task(void* lane_data) {
  KernelContext& context = *static_cast<KernelContext*>(lane_data);
  if (context.helpers_) context.threads = context.helpers_->width();
  return context;
}

void KernelContext::share(HelperPool& helpers) {
  team = std::make_unique<ThreadTeam>(helpers);
  helpers_ = &helpers;
}

KernelContext::~KernelContext() = default;

void* Scratch::get(std::size_t bytes) {
  if (bytes > capacity_ || !data_) {
    // Free the old buffer first, because the two are never needed together.
    data_.reset();
    capacity_ = 0;
    data_.reset(::operator new(bytes, kScratchAlignment));
    capacity_ = bytes;
  }
  return data_.get();
}

void Scratch::Free::operator()(void* p) const { ::operator delete(p, kScratchAlignment); }

}  // namespace lockstep
