// Internal: the host memory of all CPU devices of a Runtime. Each takes what it needs, up to a common limit.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/device/memory.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {

struct DeviceState;

class SharedHostMemory final : public MemorySource {
 public:
  // Returns the bytes that all processes under the limit use, tensors included.
  using Usage = std::function<std::optional<std::size_t>()>;

  // `limit`: in bytes, for all devices. With `usage`, the rest of the program, other processes of the control group,
  // and a reserve of an eighth, at most 256 MiB, count as well, because the out-of-memory killer would kill the process
  // without an error.
  explicit SharedHostMemory(std::size_t limit, Usage usage = {});

  // Adds a device whose free blocks reclaim() may request.
  void add_user(std::weak_ptr<DeviceState> device);

  void* allocate(std::size_t bytes) override;
  void free(void* block, std::size_t bytes) noexcept override;
  std::optional<std::size_t> left() const override;
  void reclaim() override;

 private:
  // Measures used memory that does not belong to tensors: all used memory minus what tensors have taken. Keeps the
  // highest value, because a tensor uses no memory before its first write, so the difference may be too low.
  void measure_others();

  const std::size_t limit_;
  const Usage usage_;
  std::atomic<std::size_t> others_{0};
  HostPages pages_;
  std::atomic<std::size_t> taken_{0};
  std::mutex mutex_;
  std::vector<std::weak_ptr<DeviceState>> users_;
};

}  // namespace lockstep
