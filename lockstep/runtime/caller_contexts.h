// Internal: the kernel contexts of threads that compute a device's tasks themselves, in place of its lanes.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/backend/context.h"

namespace lockstep {

struct DeviceState;

// The contexts that no thread uses now. They are kept, because the device's helpers refer to their teams.
struct CallerContexts {
  std::mutex mutex;
  std::vector<std::unique_ptr<KernelContext>> free;
};

// Gives a thread a kernel context while this object exists. The thread counts as one of the device's busy lanes, so
// helpers leave it a core.
class CallerContext {
 public:
  // `device` is a CPU device, and must outlive this object.
  explicit CallerContext(DeviceState& device);
  ~CallerContext();
  CallerContext(const CallerContext&) = delete;
  CallerContext& operator=(const CallerContext&) = delete;

  DeviceState& device() const { return device_; }
  KernelContext& get() const { return *context_; }

 private:
  DeviceState& device_;
  std::unique_ptr<KernelContext> context_;
};

}  // namespace lockstep
