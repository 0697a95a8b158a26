#include "lockstep/base/error.h"
#include "lockstep/comm/mpi_group.h"

namespace lockstep {

std::shared_ptr<ProcessGroup> make_mpi_group(const RendezvousOptions&) {
  fail("init_process_group: this Lockstep was built without MPI (LOCKSTEP_MPI=OFF, or none was found)");
}

}  // namespace lockstep
