#include "lockstep/engine/resource.h"

#include "lockstep/engine/dependency_graph.h"

namespace lockstep {

// Every unfinished task holds a handle, so the last handle goes when nobody uses the resource, and needs
// neither lock nor engine.
Resource::Resource(const Resource& other) : state_(other.state_) {
  if (state_) state_->handles.fetch_add(1, std::memory_order_relaxed);
}

Resource::~Resource() {
  if (state_ && state_->handles.fetch_sub(1, std::memory_order_acq_rel) == 1) delete state_;
}

}  // namespace lockstep
