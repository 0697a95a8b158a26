// A collective that is under way.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

// Every failure of communication is one. Names the lost rank where it is known, and what was being waited for:
// `rank 1 lost (connection closed) during all-reduce of bucket 3, step 17`.
class CommError : public Error {
 public:
  CommError(const std::string& message, int lost_rank) : Error(message), lost_rank_(lost_rank) {}
  // -1: not known.
  int lost_rank() const { return lost_rank_; }

 private:
  int lost_rank_;
};

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
