// Ranks that mpirun started exchange blocks by MPI's messages.
#pragma once

#include <memory>

#include "lockstep/comm/mpi/mpi_session.h"
#include "lockstep/comm/transport.h"

namespace lockstep {

// Collectives. `ranks` of the session's world; whether there is a core for each rank of a host.
std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiSession> session, bool may_spin);

}  // namespace lockstep
