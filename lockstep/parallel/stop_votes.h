// Internal: whether any rank wants to stop, without an exchange of its own: a vote travels with the step's first
// exchange of shards.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/autograd/tensor.h"
#include "lockstep/parallel/communicator.h"

namespace lockstep {

class StopVotes {
 public:
  explicit StopVotes(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}

  // Before a step, on every rank: whether this rank wants to stop.
  void cast(bool stop) { vote_ = stop ? 1.0F : 0.0F; }
  // After the step: the number of ranks that want to stop, f32 [1]. Does not wait. Undefined without a cast().
  Tensor count();

  // For an exchange: this rank's vote if it was not sent yet, and where the sum of all ranks' votes belongs.
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
