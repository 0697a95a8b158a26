#include "lockstep/comm/mpi_group.h"

#include <sys/sysinfo.h>

#include <climits>

#include "lockstep/comm/launch_environment.h"
#include "lockstep/comm/mesh_group.h"
#include "lockstep/comm/mpi/mpi_mesh.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep {

std::shared_ptr<ProcessGroup> make_mpi_group(const ProcessGroupOptions& options) {
  const std::chrono::milliseconds timeout = timeout_of(options);
  auto session = std::make_shared<MpiSession>();
  const auto launched = read_launch_environment(options.rank, options.world_size);
  const int neighbors = launched && launched->local_world_size ? *launched->local_world_size : INT_MAX;
  auto mesh = make_mpi_mesh(std::move(session), ::get_nprocs() >= neighbors);
  check(mesh->size() <= kMaxRanks, "process group: {} ranks, expected at most {}", mesh->size(), kMaxRanks);
  // Processes that mpirun did not start are a world of their own, each.
  if (launched) {
    check(launched->rank == mesh->rank() && launched->world_size == mesh->size(),
          "init_process_group: this is rank {} of {}, but to MPI rank {} of {}: start the ranks with mpirun", launched->rank,
          launched->world_size, mesh->rank(), mesh->size());
  }
  return std::make_shared<MeshGroup>(std::move(mesh), "mpi", timeout);
}

}  // namespace lockstep
