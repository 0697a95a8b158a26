// Internal: where a thread's operations come from, for whoever observes them.
#pragma once

#include <cstdint>

namespace lockstep::ops {

struct Origin {
  // Gradient trees, copies between ranks, and updates have no direction: they depend on the layout.
  enum class Direction : std::uint8_t { none, forward, backward };
  // The module whose forward() describes the operation, or described the one that is differentiated. It is an address
  // to compare, which may be of a module that is gone.
  const void* module = nullptr;
  Direction direction = Direction::none;
};

// Operations of this thread have this origin while the scope lives.
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
