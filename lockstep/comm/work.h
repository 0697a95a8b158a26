// A collective that is under way.
#pragma once

#include <memory>

#include "lockstep/net/comm_error.h"

namespace LOCKSTEP_API lockstep {

// A handle. Copies refer to the same operation. Dropping it cancels nothing.
class Work {
 public:
  Work() = default;
  // Waits until the operation is complete on this rank. Throws its CommError, also when called again.
  void wait() const;
  bool done() const;

  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
