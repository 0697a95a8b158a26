#include "lockstep/engine/resource.h"

#include "lockstep/engine/dependency_graph.h"

namespace lockstep {

// Every unfinished task holds a handle, so the last handle goes when nothing uses the resource. No lock is needed.
void Resource::retain(ResourceState* state) noexcept { state->handles.fetch_add(1, std::memory_order_relaxed); }

void Resource::release(ResourceState* state) noexcept {
  if (state->handles.fetch_sub(1, std::memory_order_acq_rel) == 1) delete state;
}

}  // namespace lockstep
