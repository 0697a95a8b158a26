#include "lockstep/launch/launch_environment.h"

#include <charconv>
#include <climits>
#include <string_view>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int kMostRanks = 1 << 20;

// The variables with which one launcher gives the four numbers.
struct Dialect {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};
constexpr Dialect kTorchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Dialect kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                           "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Dialect kPmi{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
// The variables of a Slurm step. SLURM_NTASKS is also set in a batch script and in the shell of an allocation, where
// there are no ranks, so kOldSlurm serves only in a step that has no SLURM_STEP_NUM_TASKS.
constexpr Dialect kSlurm{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr};
constexpr Dialect kOldSlurm{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr};

std::optional<int> read_int(const char* name, int min, int max) {
  const auto value = environment_integer(name, min, max);
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

bool read_flag(const char* name) {
  const std::string value = environment(name).value_or("0");
  for (const std::string_view yes : {"1", "True", "true"}) {
    if (value == yes) return true;
  }
  for (const std::string_view no : {"", "0", "False", "false"}) {
    if (value == no) return false;
  }
  fail("{} is \"{}\", expected 1 or 0", name, value);
}

std::optional<std::chrono::milliseconds> read_seconds(const char* name) {
  const auto text = environment(name);
  if (!text) return {};
  double seconds = 0;
  const char* end = text->data() + text->size();
  const auto [parsed, error] = std::from_chars(text->data(), end, seconds);
  check(error == std::errc() && parsed == end && seconds >= 0.001 && seconds <= 1e6,
        "{} is \"{}\", expected seconds from 0.001 to 1000000", name, *text);
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// Whether srun started this process. The steps of batch scripts and interactive shells have numbers of ten digits.
bool in_slurm_step() {
  const std::string step = environment("SLURM_STEP_ID").value_or("");
  return !step.empty() && step.size() < 10;
}

std::optional<LaunchedRank> read_numbers(const Dialect& names) {
  const auto size = read_int(names.world_size, 1, kMostRanks);
  const bool has_rank = environment(names.rank).has_value();
  const bool told_alone = &names == &kTorchrun && size == 1;
  // In a batch script, SLURM_PROCID is set without SLURM_STEP_NUM_TASKS.
  const bool may_lack_size = names.rank == std::string_view("SLURM_PROCID");
  check(has_rank == size.has_value() || told_alone || (has_rank && may_lack_size),
        "{} is set but {} is not, expected both or neither{}", has_rank ? names.rank : names.world_size,
        has_rank ? names.world_size : names.rank, has_rank ? "" : " (or WORLD_SIZE=1, for a process that is alone)");
  if (!size) return {};
  LaunchedRank e{.source = names.world_size};
  e.world_size = *size;
  e.rank = read_int(names.rank, 0, *size - 1).value_or(0);
  if (names.local_world_size) {
    e.local_world_size = read_int(names.local_world_size, 1, *size);
  } else if (const auto tasks = environment("SLURM_STEP_TASKS_PER_NODE")) {
    e.local_world_size = slurm_tasks_of_node(*tasks, read_int("SLURM_NODEID", 0, kMostRanks).value_or(0));
  }
  e.local_rank = read_int(names.local_rank, 0, e.local_world_size.value_or(*size) - 1);
  return e;
}

std::optional<LaunchedRank> read_numbers() {
  if (auto told = read_numbers(kTorchrun)) return told;
  const auto open_mpi = read_numbers(kOpenMpi);
  auto pmi = read_numbers(kPmi), slurm = read_numbers(kSlurm);
  if (!slurm && in_slurm_step()) slurm = read_numbers(kOldSlurm);
  // With `srun --mpi=pmi2`, the PMI variables repeat Slurm's rank and size but lack the local numbers: use Slurm's.
  if (pmi && slurm && !pmi->local_world_size && pmi->rank == slurm->rank && pmi->world_size == slurm->world_size) {
    pmi.reset();
  }
  // Under Slurm, PMI's numbers may belong to the daemon that mpirun starts on each host.
  if (open_mpi && pmi && open_mpi->world_size > 1 && pmi->world_size > 1 && !environment("SLURM_PROCID")) {
    check(open_mpi->rank == pmi->rank && open_mpi->world_size == pmi->world_size,
          "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE say rank {} of {}, PMI_RANK and PMI_SIZE rank {} of "
          "{}: expected the same; set RANK and WORLD_SIZE to decide",
          open_mpi->rank, open_mpi->world_size, pmi->rank, pmi->world_size);
  }
  // A size of 1 may belong to the shell in which another launcher was called.
  for (const auto* e : {&open_mpi, &std::as_const(pmi), &std::as_const(slurm)}) {
    if (*e && (*e)->world_size > 1) return *e;
  }
  return open_mpi ? open_mpi : pmi ? pmi : slurm;
}

}  // namespace

std::optional<LaunchedRank> read_launched_rank(int rank, int world_size) {
  std::optional<LaunchedRank> found = read_numbers();
  const bool given = rank != -1 || world_size != -1;
  check(!given || (world_size >= 1 && world_size <= kMostRanks && rank >= 0 && rank < world_size),
        "rank {} of world size {}, expected a world size from 1 to {} and a rank below it", rank, world_size,
        kMostRanks);
  // Drops the local numbers of other ranks: they hold only for the ranks that the launcher started.
  if (given && (!found || found->rank != rank || found->world_size != world_size)) found.emplace();
  if (given) found->rank = rank, found->world_size = world_size, found->source.clear();
  if (!found) return {};
  found->restart_count = read_int("LOCKSTEP_RESTART_COUNT", 0, INT_MAX)
                             .value_or(read_int("TORCHELASTIC_RESTART_COUNT", 0, INT_MAX).value_or(0));
  return found;
}

std::optional<std::string> trace_of_launcher() {
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCKSTEP_LAUNCHER_STORE",
                           "PMIX_RANK", "MV2_COMM_WORLD_RANK", "JSM_NAMESPACE_RANK", "PALS_RANKID", "ALPS_APP_PE"}) {
    if (environment(name)) return name;
  }
  // A batch script has SLURM_PROCID=0, too.
  return environment("SLURM_PROCID").value_or("0") != "0" ? std::optional("SLURM_PROCID") : std::nullopt;
}

std::optional<LaunchEnvironment> read_launch_environment(int rank, int world_size) {
  const std::optional<LaunchedRank> launched = read_launched_rank(rank, world_size);
  const bool given = rank != -1 || world_size != -1;
  if (!launched) {
    if (const auto trace = trace_of_launcher()) {
      fail(
          "{} is set but nothing says how many ranks there are: expected RANK and WORLD_SIZE (or WORLD_SIZE=1, for a "
          "process that is alone)",
          *trace);
    }
    return {};
  }
  LaunchEnvironment e{*launched};
  const bool slurm = e.source.starts_with("SLURM");
  if (const auto address = environment("MASTER_ADDR")) {
    check(!address->empty(), "MASTER_ADDR is empty, expected the host of rank 0");
    e.master_addr = *address;
  } else if (slurm && !e.on_one_host() && e.world_size > 1) {
    const auto hosts = environment("SLURM_STEP_NODELIST");
    check(hosts.has_value(), "MASTER_ADDR is not set, expected the host of rank 0");
    e.master_addr = first_slurm_host(*hosts);
  } else {
    check(given || e.on_one_host() || e.world_size == 1,
          "MASTER_ADDR is not set, expected the host of rank 0: the {} ranks are not known to be on one host",
          e.world_size);
  }
  if (const auto port = read_int("MASTER_PORT", 1, 65535)) {
    e.master_port = *port;
  } else if (const auto job = slurm ? environment_integer("SLURM_JOB_ID", 0, INT64_MAX) : std::nullopt) {
    // The port is below those that systems assign automatically. Two jobs on one host are unlikely to share a port, and
    // neighboring steps of one job get distant ports. Step 0 gets the port that the job's number gives.
    const std::int64_t step = in_slurm_step() ? *environment_integer("SLURM_STEP_ID", 0, INT64_MAX) : 0;
    e.master_port = 15000 + static_cast<int>((*job % 15000 + step % 15000 * 1009) % 15000);
  }
  e.launcher_has_store = read_flag("LOCKSTEP_LAUNCHER_STORE");
  e.store_port = read_int("LOCKSTEP_PORT", 1, 65535);
  // torchrun's agent itself listens at MASTER_PORT.
  if (!e.store_port && read_flag("TORCHELASTIC_USE_AGENT_STORE")) {
    e.store_port = e.master_port < 65535 ? e.master_port + 1 : e.master_port - 1;
  }
  return e;
}

std::chrono::milliseconds default_timeout() {
  return read_seconds("LOCKSTEP_TIMEOUT").value_or(std::chrono::seconds(60));
}

std::chrono::milliseconds default_progress_timeout(std::chrono::milliseconds timeout) {
  return read_seconds("LOCKSTEP_PROGRESS_TIMEOUT").value_or(30 * timeout);
}

std::string first_slurm_host(const std::string& list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    const std::size_t close = list.find(']', at);
    check(close != std::string::npos, "list of hosts {:?}: expected a ] after the [", list);
    host += list.substr(at + 1, list.find_first_of(",-]", at) - at - 1);
    at = close + 1;
  }
  check(!host.empty(), "list of hosts {:?}: expected a host at its start", list);
  return host;
}

int slurm_tasks_of_node(const std::string& list, int node) {
  std::string_view rest = list;
  for (std::int64_t first = 0; !rest.empty();) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    std::int64_t repeated = 1;
    if (const std::size_t open = item.find("(x"); open != std::string_view::npos && item.ends_with(')')) {
      repeated =
          parse_integer("SLURM_STEP_TASKS_PER_NODE", item.substr(open + 2, item.size() - open - 3), 1, kMostRanks);
      item = item.substr(0, open);
    }
    const std::int64_t tasks = parse_integer("SLURM_STEP_TASKS_PER_NODE", item, 1, kMostRanks);
    first += repeated;
    if (node < first) return static_cast<int>(tasks);
  }
  fail("SLURM_STEP_TASKS_PER_NODE is {:?}, which has no node {}", list, node);
}

EnvironmentVariables environment_of_rank(const RankEnvironment& r) {
  EnvironmentVariables variables{
      {"RANK", std::to_string(r.rank)},
      {"WORLD_SIZE", std::to_string(r.world_size)},
      {"LOCAL_RANK", std::to_string(r.local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(r.local_world_size)},
      {"GROUP_RANK", std::to_string(r.node_rank)},
      {"MASTER_ADDR", r.master_addr},
      {"MASTER_PORT", std::to_string(r.master_port)},
      {"LOCKSTEP_LAUNCHER_STORE", "1"},
      {"LOCKSTEP_RESTART_COUNT", std::to_string(r.restart_count)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(r.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(r.max_restarts)},
  };
  if (!r.secret.empty()) variables.emplace_back("LOCKSTEP_SECRET", r.secret);
  return variables;
}

}  // namespace lockstep
