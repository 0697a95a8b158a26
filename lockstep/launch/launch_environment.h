// Reads the job of this process from the variables of its launcher: those of torchrun, an MPI or Slurm.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct LaunchedRank {
  int rank = 0;
  int world_size = 1;
  // Nothing where the launcher does not say.
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  // Whose numbers these are: "WORLD_SIZE", "PMI_SIZE"; empty: the caller's own.
  std::string source;
  // How often the launcher has started all ranks again.
  int restart_count = 0;

  bool on_one_host() const { return local_world_size == world_size; }
  // Whether the caller or WORLD_SIZE gave the numbers. A scheduler may have set its own for a shell in which another
  // launcher was started.
  bool is_told() const { return source.empty() || source == "WORLD_SIZE"; }
};

struct LaunchEnvironment : LaunchedRank {
  std::string master_addr = "127.0.0.1";
  int master_port = kDefaultPort;
  // Where rank 0 makes the store instead, if MASTER_PORT is not its own: LOCKSTEP_PORT, or MASTER_PORT + 1.
  std::optional<int> store_port;
  int next_port = kDefaultPort + 1;
  // LOCKSTEP_LAUNCHER_STORE=1: a Lockstep store listens at MASTER_PORT already.
  bool launcher_has_store = false;

  // As torchrun's.
  static constexpr int kDefaultPort = 29500;
};

// Nothing if this process was not started as a rank. The numbers are those given, or come from, in this order,
//   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE               torchrun, `lockstep launch`, Kubernetes
//   OMPI_COMM_WORLD_RANK, …_SIZE, …_LOCAL_RANK, …_LOCAL_SIZE     mpirun of Open MPI
//   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS         mpiexec of MPICH and Intel MPI
//   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE    srun
// An MPI's size of 1 counts only where no later line has several ranks; PMI's numbers without local ones do not count where
// they repeat Slurm's (srun --mpi=pmi2).
// WORLD_SIZE=1 alone says that this process is alone, whatever the others say. Throws what is wrong with a variable (its
// name, its value, and what it may be), that one of a pair is missing, or that two MPIs say different things outside of Slurm.
std::optional<LaunchedRank> read_launched_rank(int rank = -1, int world_size = -1);
// The same, and where the ranks meet: MASTER_ADDR, where missing, from Slurm's list of hosts; MASTER_PORT from its job's
// number. Throws, too, where a launcher says only which rank this is (PMIX_RANK), and not of how many.
std::optional<LaunchEnvironment> read_launch_environment(int rank = -1, int world_size = -1);

// LOCKSTEP_TIMEOUT (seconds, may have a fraction), or 60 s.
std::chrono::milliseconds default_timeout();
// LOCKSTEP_PROGRESS_TIMEOUT (likewise), or 30 times `timeout`.
std::chrono::milliseconds default_progress_timeout(std::chrono::milliseconds timeout);

// The first of Slurm's hosts: of "a[003-007,9],b" that is a003.
std::string first_slurm_host(const std::string& list);
// How many tasks node `node` has: of "4(x2),1" that is 4 for nodes 0 and 1, 1 for node 2. Throws if it makes no sense.
int slurm_tasks_of_node(const std::string& list, int node);

using EnvironmentVariables = std::vector<std::pair<std::string, std::string>>;

// A launcher sets these for a rank: the variables that read_launch_environment() reads, and torchrun's others.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;
  std::string secret;  // none: what is set already stays
  int restart_count = 0;
  int max_restarts = 0;
};
EnvironmentVariables environment_of_rank(const RankEnvironment& rank);

}  // namespace lockstep
