// Internal: batches that consist of several smaller batches.
#pragma once

#include <cstdint>

#include "lockstep/tensor/shape.h"

namespace lockstep::ops {

// Within a scope, axis 0 of the arrays has the samples of `calls` equal batches, one after the other. Operations choose
// their algorithm as for one of these batches, so that each batch gets the bits that it gets alone.
class JoinedScope {
 public:
  explicit JoinedScope(std::int64_t calls);
  ~JoinedScope();
  JoinedScope(const JoinedScope&) = delete;
  JoinedScope& operator=(const JoinedScope&) = delete;
  // 1 outside of scopes.
  static std::int64_t calls();
  // The shape of one of the batches.
  static Shape one_of(Shape shape);

 private:
  std::int64_t previous_;
};

}  // namespace lockstep::ops
