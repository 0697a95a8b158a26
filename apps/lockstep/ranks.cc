#include "ranks.h"

#include "lockstep/launch/launch_environment.h"

namespace lockstep::app {

std::shared_ptr<ProcessGroup> join_ranks(const std::string& backend) {
  const auto launched = read_launched_rank();
  if (backend == "mpi" && !(launched && launched->world_size == 1 && launched->is_told())) {
    // MPI itself knows the number of ranks best.
    auto group = init_process_group({.backend = backend});
    return group->size() == 1 ? nullptr : group;
  }
  const auto environment = read_launch_environment();
  if (!environment || environment->world_size == 1) return nullptr;
  return init_process_group({.backend = backend});
}

int rank() {
  auto launched = read_launched_rank();
  return launched ? launched->rank : 0;
}

bool restarted() {
  auto launched = read_launched_rank();
  return launched && launched->restart_count > 0;
}

}  // namespace lockstep::app
