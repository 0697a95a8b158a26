#include "lockstep/parallel/stop_votes.h"

#include <array>
#include <utility>

#include "lockstep/backend/context.h"
#include "lockstep/ops/launch.h"

namespace lockstep {

std::optional<StopVotes::Vote> StopVotes::take() {
  if (!vote_) return {};
  sum_ = ops::empty({1}, DType::f32, communicator_->device());
  return Vote{*std::exchange(vote_, std::nullopt), sum_};
}

Tensor StopVotes::count() {
  // The step had no exchange of shards.
  if (const auto vote = take()) {
    communicator_->push("votes", CommChannel::urgent, {}, std::array{vote->sum},
                        [group = &communicator_->group(), mine = vote->mine, to = vote->sum.view()](KernelContext&) {
                          float& sum = *to.as<float>() = mine;
                          group->all_reduce({&sum, 1, DType::f32}, ReduceOp::sum,
                                            {.label = "votes", .channel = CommChannel::urgent, .wait = true});
                        });
  }
  return std::exchange(sum_, {});
}

}  // namespace lockstep
