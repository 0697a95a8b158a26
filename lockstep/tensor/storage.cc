#include "lockstep/tensor/storage.h"

#include <utility>

#include "lockstep/device/memory.h"
#include "lockstep/tensor/caching_allocator.h"

namespace lockstep {
namespace {

struct BlockStorage : Storage {
  BlockStorage(std::shared_ptr<CachingAllocator> from, Block taken, std::size_t bytes, Device device,
               std::shared_ptr<Engine> engine)
      : Storage{.data = taken.data,
                .bytes = bytes,
                .device = device,
                .engine = std::move(engine),
                .resource = std::move(taken.resource),
                .pinned = device.is_host()},
        allocator(std::move(from)), block(std::move(taken)) {}
  ~BlockStorage() {
    block.resource = std::move(resource);
    allocator->free(std::move(block));
  }

  std::shared_ptr<CachingAllocator> allocator;
  Block block;
};

}  // namespace

void Storage::wait_readable() {
  Storage& s = owner();
  if (!s.device.is_host()) return s.engine->wait_readable(s.resource);
  std::unique_lock lock(s.mutex);
  const std::shared_ptr<Engine> user = s.engine;
  const Resource used = s.resource;
  lock.unlock();
  if (user) user->wait_readable(used);
}

void Storage::wait_writable(bool whole) {
  std::unique_lock lock(mutex);
  const std::shared_ptr<Engine> user = engine;
  const Resource used = resource;
  lock.unlock();
  if (!user) return;
  if (!whole) user->wait_readable(used);
  user->wait_unused(used);
  if (!user->failure(used)) return;
  lock.lock();
  if (resource == used) resource = user->make_successor(used);
}

void Storage::adopt(const std::shared_ptr<Engine>& user) {
  const std::lock_guard lock(mutex);
  if (engine == user) return;
  check(!pinned, "copy: host memory is pinned for a device of another runtime, expected this one: copy it first");
  if (engine) engine->wait_unused(resource);
  engine = user;
  resource = user->make_resource();
}

std::shared_ptr<Storage> make_host_storage(std::size_t bytes) {
  auto storage = std::make_unique<Storage>();
  storage->bytes = bytes;
  if (bytes > 0) storage->data = allocate_pages(bytes);
  return {storage.release(), [](Storage* s) {
            if (s->data) free_pages(s->data, s->bytes);
            delete s;
          }};
}

std::shared_ptr<Storage> lend_host_storage(std::shared_ptr<Storage> host, Device device,
                                           const std::shared_ptr<Engine>& engine) {
  host->adopt(engine);
  auto lent = std::make_shared<Storage>();
  lent->data = host->data;
  lent->bytes = host->bytes;
  lent->device = device;
  lent->engine = engine;
  lent->host = std::move(host);
  return lent;
}

std::shared_ptr<Storage> make_block_storage(std::shared_ptr<CachingAllocator> allocator, Block block, std::size_t bytes,
                                            Device device, std::shared_ptr<Engine> engine) {
  return std::make_shared<BlockStorage>(std::move(allocator), std::move(block), bytes, device, std::move(engine));
}

}  // namespace lockstep
