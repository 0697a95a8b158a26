// Reads this process's rank and job from the environment variables of its launcher: torchrun, MPI, or Slurm.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// The most ranks of a job. Shared memory has 8 bits for a counter of them, and every rank connects with every other.
constexpr int kMaxRanks = 200;

struct LaunchedRank {
  int rank = 0;
  int world_size = 1;
  // Empty if the launcher does not say.
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  // Name of the variable that gave the world size, such as "WORLD_SIZE" or "PMI_SIZE"; empty if the caller gave it.
  std::string source;
  // The number of times that the launcher has restarted all ranks.
  int restart_count = 0;

  bool on_one_host() const { return local_world_size == world_size; }
  // True if the numbers come from the caller or from WORLD_SIZE. Other variables may belong to an outer job, such as a
  // Slurm shell in which mpirun was started.
  bool is_told() const { return source.empty() || source == "WORLD_SIZE"; }
};

struct LaunchEnvironment : LaunchedRank {
  std::string master_addr = "127.0.0.1";
  int master_port = kDefaultPort;
  // The store's port if it is not MASTER_PORT: LOCKSTEP_PORT or, if torchrun itself listens at MASTER_PORT, a port next
  // to MASTER_PORT.
  std::optional<int> store_port;
  // True for LOCKSTEP_LAUNCHER_STORE=1: a Lockstep store already listens at MASTER_PORT.
  bool launcher_has_store = false;

  // The same as torchrun's default.
  static constexpr int kDefaultPort = 29500;
};

// Returns nullopt if no launcher started this process. Otherwise uses the given numbers, or the first of these sets of
// variables that is present:
//   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE               torchrun, `lockstep launch`, Kubernetes
//   OMPI_COMM_WORLD_RANK, …_SIZE, …_LOCAL_RANK, …_LOCAL_SIZE     mpirun of Open MPI
//   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS         mpiexec of MPICH and Intel MPI
//   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE    srun
// An MPI world of size 1 is ignored if a later line has several ranks. PMI numbers without local numbers are ignored if
// they equal Slurm's (srun --mpi=pmi2). WORLD_SIZE=1 alone means a single process, whatever the other variables say.
// Throws if a variable has an invalid value, if a rank is set without a world size or the reverse, or if the variables
// of two MPIs disagree outside Slurm.
std::optional<LaunchedRank> read_launched_rank(int rank = -1, int world_size = -1);
// Reads the ranks like read_launched_rank(), and finds where they meet. Under Slurm, a missing MASTER_ADDR comes from
// the list of hosts, and a missing MASTER_PORT from the numbers of the job and the step. Also throws if
// trace_of_launcher() finds a launcher but nothing gives the number of ranks.
std::optional<LaunchEnvironment> read_launch_environment(int rank = -1, int world_size = -1);

// Returns the name of a variable that only a launcher sets, such as MASTER_ADDR or PMIX_RANK, if one is set. If
// read_launched_rank() finds no rank then, the launcher's variables were lost on the way, and the process must not
// train alone.
std::optional<std::string> trace_of_launcher();

// Returns LOCKSTEP_TIMEOUT (seconds, possibly with a fraction), or 60 s.
std::chrono::milliseconds default_timeout();
// Returns LOCKSTEP_PROGRESS_TIMEOUT (same format), or 30 times `timeout`.
std::chrono::milliseconds default_progress_timeout(std::chrono::milliseconds timeout);

// Returns the first host of a Slurm list: "a[003-007,9],b" gives "a003", "rack[1-2]node[3-4]" gives "rack1node3".
std::string first_slurm_host(const std::string& list);
// Returns the number of tasks on a node of a Slurm list: "4(x2),1" gives 4 for nodes 0 and 1, and 1 for node 2. Throws
// if the list is malformed or has no such node.
int slurm_tasks_of_node(const std::string& list, int node);

using EnvironmentVariables = std::vector<std::pair<std::string, std::string>>;

// Values of the variables that Lockstep's launcher sets for a rank: its own variables, and some of torchrun's.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;
  std::string secret;  // empty: the rank inherits LOCKSTEP_SECRET, if it is set
  int restart_count = 0;
  int max_restarts = 0;
};
EnvironmentVariables environment_of_rank(const RankEnvironment& rank);

}  // namespace lockstep
