// The group "mpi": all processes that mpirun started together, with no store and no secret.
#pragma once

#include <memory>

#include "lockstep/comm/process_group.h"
#include "lockstep/launch/rendezvous.h"

namespace lockstep {

// A collective. Rank and world size are MPI's; those of the options or the environment have to be the same, where there are
// any. No address is needed. Throws where Lockstep was built without MPI.
std::shared_ptr<ProcessGroup> make_mpi_group(const RendezvousOptions& options);

}  // namespace lockstep
