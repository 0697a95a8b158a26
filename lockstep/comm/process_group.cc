#include "lockstep/comm/process_group.h"

#include <exception>
#include <thread>

#include "lockstep/comm/mpi_group.h"
#include "lockstep/comm/peers.h"
#include "lockstep/comm/shared_memory_transport.h"
#include "lockstep/comm/socket_group.h"
#include "lockstep/comm/transport_group.h"
#include "lockstep/launch/failure_reports.h"
#include "lockstep/launch/rendezvous.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/net/descriptor_limit.h"

namespace lockstep {

std::shared_ptr<ProcessGroup> init_process_group(ProcessGroupOptions options) {
  const RendezvousOptions ranks{.rank = options.rank,
                                .world_size = options.world_size,
                                .store = options.store,
                                .timeout = options.timeout,
                                .progress_timeout = options.progress_timeout};
  if (options.backend == "mpi") return make_mpi_group(ranks);
  if (options.backend == "gloo") options.backend = "host";
  check(options.backend == "auto" || options.backend == "host" || options.backend == "nccl",
        "init_process_group: backend \"{}\", expected auto, host (or gloo), mpi, or nccl", options.backend);
  raise_descriptor_limit();
  const FailureReporter report = make_failure_reporter(options.rank, options.world_size);
  try {
    Rendezvous r = resolve_rendezvous(ranks);
    GroupMembership group{.rank = r.rank, .size = r.world_size, .store = r.store, .key = r.key, .address = r.address};
    return make_socket_group(std::move(group), r.timeouts, transport_from_environment(), options.backend, report);
  } catch (const CommError& error) {
    report({error.lost_rank(), error.what()});
    throw;
  }
}

std::vector<std::shared_ptr<ProcessGroup>> make_local_groups(int world_size,
                                                             std::chrono::milliseconds progress_timeout) {
  const GroupTimeouts timeouts{.silence = progress_timeout, .progress = progress_timeout};
  check(world_size >= 1 && world_size <= kMaxRanks, "local groups: {} ranks, expected from 1 to {}", world_size,
        kMaxRanks);
  std::vector<std::shared_ptr<ProcessGroup>> groups(static_cast<std::size_t>(world_size));
  auto all_peers = make_thread_peers(world_size);
  std::vector<std::exception_ptr> errors(groups.size());
  const auto make = [&](std::size_t r) {
    try {
      groups[r] = std::make_shared<TransportGroup>(
          make_shared_memory_transport(std::move(all_peers[r]), progress_timeout), "local", timeouts);
    } catch (...) {
      errors[r] = std::current_exception();
    }
  };
  if (world_size == 1) {
    make(0);
  } else {
    std::vector<std::jthread> threads;  // joined even if some of them cannot start
    // Making a transport is a collective.
    for (std::size_t r = 0; r < groups.size(); ++r) threads.emplace_back(make, r);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return groups;
}

void destroy_process_group(std::shared_ptr<ProcessGroup>& group) {
  if (!group) return;
  const std::shared_ptr<ProcessGroup> last = std::move(group);
  for (Work& work : begin_closing(*last)) work.wait();
}

}  // namespace lockstep
