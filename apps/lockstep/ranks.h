// This process as a rank of a job, started by `lockstep launch`, torchrun, mpirun, or a scheduler.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/process_group.h"

namespace lockstep::app {

// Returns a --timeout. Throws UsageError unless it is at least a millisecond and at most 1,000,000 seconds.
std::chrono::milliseconds read_timeout(double seconds);

// `timeout_seconds`: see ProcessGroupOptions::timeout. A process that is alone gets a group of one. If a launcher
// started several processes, one of them runs alone only with WORLD_SIZE=1. Throws UsageError if the back end is mpi
// but no launcher started this process.
std::shared_ptr<ProcessGroup> join_ranks(const std::string& backend, std::optional<double> timeout_seconds = {});

// This process's rank, or 0 if it is alone. Does not wait for other ranks.
int rank();

// Returns whether a launcher started this process, perhaps as the only rank.
bool is_launched();

// For commands that do not share their work: throws UsageError if a launcher started several ranks, because all would
// do the same.
void check_single_process(const std::string& command);

// Returns whether the launcher restarted all ranks after one was lost, or Slurm requeued the job. The job then
// continues from its checkpoints.
bool restarted();

}  // namespace lockstep::app
