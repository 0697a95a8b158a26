// Internal: the group "mpi": all processes that mpirun started together, without a store or a secret.
#pragma once

#include <memory>

#include "lockstep/comm/process_group.h"
#include "lockstep/launch/rendezvous.h"

namespace lockstep {

// A collective. MPI gives the rank and the world size; if the options or the environment give them too, they must
// match. No address is needed. Throws if Lockstep was built without MPI.
std::shared_ptr<ProcessGroup> make_mpi_group(const RendezvousOptions& options);

}  // namespace lockstep
