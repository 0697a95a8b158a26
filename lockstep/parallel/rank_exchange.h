// Internal: a ShardExchange between the ranks of a job, for one batch.
#pragma once

#include <memory>

#include "lockstep/autograd/shard_exchange.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/communicator.h"
#include "lockstep/parallel/stop_votes.h"

namespace lockstep {

// shares: which rank has which shards. counts: samples of every shard of the whole batch. The first exchange after
// votes.cast() takes the vote along.
std::shared_ptr<ShardExchange> make_shard_exchange(std::shared_ptr<Communicator> communicator, JobShares shares,
                                                   std::vector<std::int64_t> counts, std::shared_ptr<StopVotes> votes);

}  // namespace lockstep
