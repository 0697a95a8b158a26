// The host memory of all CPU devices of a Runtime. Each takes what it needs, up to a common limit.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/device/memory.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {

struct DeviceState;

class SharedHostMemory final : public MemorySource {
 public:
  // `limit` in bytes, for all devices.
  explicit SharedHostMemory(std::size_t limit) : limit_(limit) {}

  // Adds a device whose free blocks reclaim() may request.
  void add_user(std::weak_ptr<DeviceState> device);

  void* allocate(std::size_t bytes) override;
  void free(void* block, std::size_t bytes) noexcept override;
  std::optional<std::size_t> left() const override { return limit_ - taken_; }
  void reclaim() override;

 private:
  const std::size_t limit_;
  HostPages pages_;
  std::atomic<std::size_t> taken_{0};
  std::mutex mutex_;
  std::vector<std::weak_ptr<DeviceState>> users_;
};

}  // namespace lockstep
