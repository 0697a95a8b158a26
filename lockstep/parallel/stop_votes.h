// Internal: votes of the ranks on whether to stop. They need no exchange of their own: a vote travels with the step's
// first exchange of shards.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/autograd/tensor.h"
#include "lockstep/parallel/communicator.h"

namespace lockstep {

class StopVotes {
 public:
  explicit StopVotes(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}

  // Call it before a step, on every rank. `stop`: whether this rank wants to stop.
  void cast(bool stop) { vote_ = stop ? 1.0F : 0.0F; }
  // Call it after the step. Returns the number of ranks that want to stop, f32 [1]; undefined without a cast().
  Tensor count();

  // What an exchange takes along: this rank's vote, if it was not sent yet, and the array for the sum of all votes.
  struct Vote {
    float mine;
    Array sum;
  };
  std::optional<Vote> take();

 private:
  std::shared_ptr<Communicator> communicator_;
  std::optional<float> vote_;
  Array sum_;
};

}  // namespace lockstep
