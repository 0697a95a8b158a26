// Internal: where a thread's operations come from, for whoever observes them.
#pragma once

#include <cstdint>

namespace lockstep::ops {

struct Origin {
  // `none` is for gradient trees, copies between ranks, and updates, because they depend on the layout.
  enum class Direction : std::uint8_t { none, forward, backward };
  // The module whose forward() describes the operation, or described the operation that is differentiated. It is only
  // an address to compare; the module may be gone.
  const void* module = nullptr;
  Direction direction = Direction::none;
};

// Gives operations of this thread this origin while the scope lives.
class OriginScope {
 public:
  explicit OriginScope(Origin origin);
  ~OriginScope();
  OriginScope(const OriginScope&) = delete;
  OriginScope& operator=(const OriginScope&) = delete;
  static Origin current();
  // The current origin in another module.
  static Origin in(const void* module) { return {module, current().direction}; }

 private:
  Origin previous_;
};

}  // namespace lockstep::ops
