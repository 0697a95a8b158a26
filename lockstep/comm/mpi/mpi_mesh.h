// Ranks that mpirun started exchange blocks by MPI's messages.
#pragma once

#include <memory>

#include "lockstep/comm/mesh.h"
#include "lockstep/comm/mpi/mpi_session.h"

namespace lockstep {

// Collectives. `ranks` of the session's world; whether there is a core for each rank of a host.
std::unique_ptr<Mesh> make_mpi_mesh(std::shared_ptr<MpiSession> session, bool may_spin);

}  // namespace lockstep
