#include "apps/lockstep/ranks.h"

#include <limits>

#include "apps/lockstep/options/common_options.h"
#include "lockstep/base/environment.h"
#include "lockstep/launch/launch_environment.h"

namespace lockstep::app {

std::chrono::milliseconds read_timeout(double seconds) {
  // The condition is written so that NaN fails it.
  if (!(seconds >= 0.001 && seconds <= 1e6)) {
    throw UsageError(fmt::format("--timeout: {} is not in [0.001 - 1000000]", seconds));
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

namespace {

// A rank whose launcher started only one may name any back end, because a script chooses the number of ranks. A process
// that no launcher started has lost the ranks that MPI connects.
void check_backend_alone(const std::string& backend) {
  if (backend != "mpi") return;
  throw UsageError("--backend mpi: found a process that is alone, expected ranks: start them with mpirun");
}

}  // namespace

std::shared_ptr<ProcessGroup> join_ranks(const std::string& backend, std::optional<double> timeout_seconds) {
  std::chrono::milliseconds timeout{0};
  if (timeout_seconds) timeout = read_timeout(*timeout_seconds);
  const auto launched = read_launched_rank();
  if (backend == "mpi" && !(launched && launched->world_size == 1 && launched->is_told())) {
    // MPI knows the number of ranks best. Open MPI sets PMIX_RANK even in a process that it did not start, so look for
    // the trace of a launcher before MPI starts.
    const auto trace = launched ? std::nullopt : trace_of_launcher();
    auto group = init_process_group({.backend = backend, .timeout = timeout});
    if (group->size() > 1) return group;
    check(
        !trace,
        "{} is set, but MPI says rank 0 of 1: start the ranks with the mpirun of the MPI that Lockstep was built with",
        trace.value_or(""));
    if (!launched) check_backend_alone(backend);
    return make_local_groups(1)[0];
  }
  const auto environment = read_launch_environment();
  if (!environment) check_backend_alone(backend);
  if (!environment || environment->world_size == 1) return make_local_groups(1)[0];
  // Checked before the ranks connect. Exit status 2 keeps a launcher from restarting them.
  if (environment->world_size > kMaxRanks) {
    throw UsageError(
        fmt::format("{} says {} ranks, expected at most {}", environment->source, environment->world_size, kMaxRanks));
  }
  return init_process_group({.backend = backend, .timeout = timeout});
}

int rank() {
  auto launched = read_launched_rank();
  return launched ? launched->rank : 0;
}

bool is_launched() { return read_launched_rank().has_value(); }

void check_single_process(const std::string& command) {
  const auto launched = read_launched_rank();
  if (!launched || launched->world_size == 1) return;
  throw UsageError(fmt::format("{} runs in one process: {} says {} ranks. Start it without a launcher", command,
                               launched->source, launched->world_size));
}

bool restarted() {
  auto launched = read_launched_rank();
  if (launched && launched->restart_count > 0) return true;
  return environment_integer("SLURM_RESTART_COUNT", 0, std::numeric_limits<int>::max()).value_or(0) > 0;
}

}  // namespace lockstep::app
