// A collective that is under way.
#pragma once

#include <memory>

#include "lockstep/net/comm_error.h"

namespace lockstep {

// A handle; copies are the same operation. Dropping it does not cancel anything.
class Work {
 public:
  Work() = default;
  // Until the operation is complete on this rank. Throws its CommError, each time.
  void wait() const;
  bool done() const;

  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
