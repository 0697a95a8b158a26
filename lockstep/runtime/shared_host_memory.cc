#include "lockstep/runtime/shared_host_memory.h"

#include "lockstep/runtime/device_state.h"

namespace lockstep {

void SharedHostMemory::add_user(std::weak_ptr<DeviceState> device) {
  std::scoped_lock lock(mutex_);
  users_.push_back(std::move(device));
}

void* SharedHostMemory::allocate(std::size_t bytes) {
  std::size_t taken = taken_;
  do {
    if (bytes > limit_ - taken) return nullptr;
  } while (!taken_.compare_exchange_weak(taken, taken + bytes));
  void* block = pages_.allocate(bytes);
  if (block == nullptr) taken_ -= bytes;
  return block;
}

void SharedHostMemory::free(void* block, std::size_t bytes) noexcept {
  pages_.free(block, bytes);
  taken_ -= bytes;
}

void SharedHostMemory::reclaim() {
  std::vector<std::weak_ptr<DeviceState>> users;
  {
    std::scoped_lock lock(mutex_);
    users = users_;
  }
  // Outside the lock, because this waits for tasks.
  for (const auto& user : users) {
    if (const std::shared_ptr<DeviceState> device = user.lock()) device->allocator->release_free();
  }
}

}  // namespace lockstep
