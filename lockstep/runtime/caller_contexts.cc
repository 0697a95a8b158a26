#include "lockstep/runtime/caller_contexts.h"

#include <utility>

#include "lockstep/runtime/device_state.h"

namespace lockstep {

CallerContext::CallerContext(DeviceState& device) : device_(device) {
  {
    CallerContexts& contexts = device.caller_contexts;
    const std::lock_guard lock(contexts.mutex);
    if (!contexts.free.empty()) {
      context_ = std::move(contexts.free.back());
      contexts.free.pop_back();
    }
  }
  if (!context_) {
    context_ = device.backend->make_context(nullptr, device.contexts.front()->threads_per_shard, nullptr);
    if (device.helpers) context_->share(*device.helpers);
  }
  if (device.helpers) device.helpers->begin_caller();
}

CallerContext::~CallerContext() {
  if (device_.helpers) device_.helpers->end_caller();
  CallerContexts& contexts = device_.caller_contexts;
  const std::lock_guard lock(contexts.mutex);
  contexts.free.push_back(std::move(context_));
}

}  // namespace lockstep
