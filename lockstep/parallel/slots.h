// Internal: which of this process's devices computes which shard of a batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/autograd/placement.h"
#include "lockstep/parallel/balance.h"

namespace lockstep {

// Returns the slots of rank `rank`, whose devices are `devices`. `counts`: number of samples of each of the job's
// shards. A rank without samples has one slot, for an empty shard.
std::vector<Slot> slots_of(std::span<const std::int64_t> counts, std::span<const Device> devices,
                           const JobShares& shares, int rank);

}  // namespace lockstep
