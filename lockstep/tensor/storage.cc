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

std::shared_ptr<Storage> make_host_storage(std::size_t bytes) {
  auto storage = std::make_unique<Storage>();
  storage->bytes = bytes;
  if (bytes > 0) storage->data = allocate_pages(bytes);
  return {storage.release(), [](Storage* s) {
            if (s->data) free_pages(s->data, s->bytes);
            delete s;
          }};
}

std::shared_ptr<Storage> make_block_storage(std::shared_ptr<CachingAllocator> allocator, Block block, std::size_t bytes,
                                            Device device, std::shared_ptr<Engine> engine) {
  return std::make_shared<BlockStorage>(std::move(allocator), std::move(block), bytes, device, std::move(engine));
}

}  // namespace lockstep
