// Exchanges blocks by MPI messages, between ranks that mpirun started.
#pragma once

#include <memory>

#include "lockstep/comm/mpi/mpi_session.h"
#include "lockstep/comm/transport.h"

namespace lockstep {

// A collective of all ranks of the session's world. may_spin says whether each rank of this host has a core.
std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiSession> session, bool may_spin);

}  // namespace lockstep
