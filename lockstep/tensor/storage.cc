#include "lockstep/tensor/storage.h"

#include "lockstep/device/memory.h"

namespace lockstep {

std::shared_ptr<Storage> make_host_storage(std::size_t bytes) {
  auto storage = std::make_unique<Storage>();
  storage->bytes = bytes;
  if (bytes > 0) storage->data = allocate_pages(bytes);
  return {storage.release(), [](Storage* s) {
            if (s->data) free_pages(s->data, s->bytes);
            delete s;
          }};
}

}  // namespace lockstep
