// This process as a rank of a job that `lockstep launch`, torchrun, mpirun or a scheduler started.
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/process_group.h"

namespace lockstep::app {

// Null where this process is alone. Never where a launcher has started several, unless WORLD_SIZE=1 says so.
std::shared_ptr<ProcessGroup> join_ranks(const std::string& backend);

// The rank of this process in its job, or 0 if it is alone. Does not wait for other ranks.
int rank();

// Whether the launcher has started all ranks again after one was lost: the job goes on from its checkpoints.
bool restarted();

}  // namespace lockstep::app
