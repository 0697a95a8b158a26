// Blocks of host memory for tensors.
#pragma once

#include <cstddef>

namespace lockstep {

// Uninitialized memory. A block of 2 MiB or more starts at a multiple of 2 MiB and asks for huge pages, with
// which the processor finds addresses faster; a smaller one starts at a multiple of 64, a cache line. Never
// null, even for no bytes; throws Error if there is not that much.
void* allocate_pages(std::size_t bytes);

// Gives a block back; `bytes` as when it was allocated. Null is ignored.
void free_pages(void* block, std::size_t bytes) noexcept;

}  // namespace lockstep
