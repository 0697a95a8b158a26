#include "lockstep/comm/mpi_group.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <climits>

#include "lockstep/comm/mpi/mpi_transport.h"
#include "lockstep/comm/transport_group.h"
#include "lockstep/device/cgroup.h"
#include "lockstep/launch/launch_environment.h"
#include "lockstep/launch/rendezvous.h"

namespace lockstep {
namespace {

// Name and version of the MPI library: "Open MPI v4.1.4".
std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  check_mpi(MPI_Get_library_version(text, &length), "starting");
  return std::string(text, static_cast<std::size_t>(length)).substr(0, std::string_view(text).find_first_of("\n,"));
}

// Compares the launcher's numbers with MPI's: under another MPI's launcher, each process is a world of its own.
void check_world(const LaunchedRank& launched, int rank, int size) {
  const bool means_this_process = launched.world_size > 1 || launched.is_told();
  if (!means_this_process || (launched.rank == rank && launched.world_size == size)) return;
  const std::string source = launched.source.empty() ? "" : " (" + launched.source + ")";
  const std::string found =
      fmt::format("init_process_group: this process is rank {} of {}{}, but MPI says rank {} of {}", launched.rank,
                  launched.world_size, source, rank, size);
  check(size > 1, "{}: start the ranks with the mpirun of {}, which Lockstep was built with", found, mpi_library());
  fail("{}", found);
}

}  // namespace

std::shared_ptr<ProcessGroup> make_mpi_group(const RendezvousOptions& options) {
  const GroupTimeouts timeouts = timeouts_of(options);
  const auto launched = read_launched_rank(options.rank, options.world_size);
  auto session = std::make_shared<MpiSession>(timeouts.silence);
  const int neighbors = launched && launched->local_world_size ? *launched->local_world_size : INT_MAX;
  const int quota = read_cgroup_limits().cpus.value_or(INT_MAX);
  auto transport = make_mpi_transport(std::move(session), std::min(::get_nprocs(), quota) >= neighbors);
  check(transport->size() <= kMaxRanks, "process group: {} ranks, expected at most {}", transport->size(), kMaxRanks);
  try {
    if (launched) check_world(*launched, transport->rank(), transport->size());
  } catch (const Error& error) {
    transport->fail({transport->rank(), fmt::format("rank {} gave up: {}", transport->rank(), error.what())});
    throw;
  }
  return std::make_shared<TransportGroup>(std::move(transport), "mpi", timeouts);
}

}  // namespace lockstep
