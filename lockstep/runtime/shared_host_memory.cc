#include "lockstep/runtime/shared_host_memory.h"

#include <algorithm>
#include <utility>

#include "lockstep/runtime/device_state.h"

namespace lockstep {

void SharedHostMemory::add_user(std::weak_ptr<DeviceState> device) {
  std::scoped_lock lock(mutex_);
  users_.push_back(std::move(device));
}

SharedHostMemory::SharedHostMemory(std::size_t limit, Usage usage)
    : limit_(usage ? limit - std::min(limit / 8, std::size_t{256} << 20) : limit), usage_(std::move(usage)) {}

std::optional<std::size_t> SharedHostMemory::left() const {
  const std::size_t used = taken_ + others_;
  return limit_ - std::min(limit_, used);
}

void SharedHostMemory::measure_others() {
  if (!usage_) return;
  const std::size_t used = usage_().value_or(0), taken = taken_;
  const std::size_t now = used - std::min(used, taken);
  for (std::size_t most = others_; now > most && !others_.compare_exchange_weak(most, now);) {
  }
}

void* SharedHostMemory::allocate(std::size_t bytes) {
  measure_others();
  std::size_t taken = taken_;
  do {
    if (bytes > limit_ - std::min(limit_, taken + others_)) return nullptr;
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
