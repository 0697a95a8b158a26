// Internal: starts the ranks of a job on this host, hosts the store through which they meet, and ends all of them when
// one fails.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The exit status of a program that rejects its arguments.
constexpr int kUnusable = 2;

struct LauncherOptions {
  // The program, searched in PATH, and its arguments.
  std::vector<std::string> command;
  int nproc_per_node = 1;
  // The number of hosts. Each runs its own launcher with the same numbers; the launcher of node 0 hosts the store.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0 chooses a free one; allowed for one node only
  // How often all ranks are restarted after one failed. kUnusable ends the job, since it would recur.
  int max_restarts = 0;
  // The pause before the first restart. It doubles with each restart, up to longest_restart_delay.
  std::chrono::milliseconds restart_delay{1'000}, longest_restart_delay{60'000};
  // A start that ran this long before it failed begins the count of restarts and the pauses anew.
  std::chrono::milliseconds healthy_after{600'000};
  // How long nodes wait for each other and, as LOCKSTEP_TIMEOUT, how long ranks wait. 0: LOCKSTEP_TIMEOUT, or 60 s.
  std::chrono::milliseconds timeout{0};
  // After one rank fails, the others have this long to report why they fail. Then they get SIGTERM, and after the same
  // time again SIGKILL. If only silent ranks that others have lost are left on this node, they have 2 s.
  std::chrono::milliseconds grace{5'000};
  // Receives the ranks' output in complete lines, and the launcher's own messages as error output. Runs on a thread of
  // its own, so it may block: signals and failures are still handled. All output has been passed when launch() returns.
  // If it throws, the output is gone (a closed pipe): the launcher drops the rest and sends SIGTERM to the ranks, so
  // that they save and end. SIGPIPE is blocked in its thread.
  std::function<void(bool is_error, std::string_view line)> output;
  // Colors the rank prefixes in output and error output.
  bool color_output = false, color_errors = false;
};

struct LaunchResult {
  // 0, or the status of the rank that failed: the rank that others have lost if it ended by itself, else the first rank
  // that ended. 128 + the signal if a signal killed it.
  int status = 0;
  // Names the rank that failed: `rank 1 was killed by signal 9 (Killed)`. If that rank hangs, quotes the others: `rank
  // 0 lost (no answer within 60 s)`. Empty if all ended well.
  std::string message;
};

// Returns when all ranks have ended. Raises this process's soft limit of open files to its hard limit. Passes SIGINT,
// SIGTERM, SIGQUIT, SIGUSR1, and SIGUSR2 on to the ranks, and SIGHUP as SIGTERM; a job that got one is not restarted.
// SIGTSTP stops the ranks and then this process, SIGCONT continues all. These signals are blocked in the calling thread
// and should be blocked in all others. Those that this process ignores at the start stay ignored, except SIGINT and
// SIGTERM.
// Throws if the job cannot start: a command is not found, a port is in use, or nodes are missing or disagree.
LaunchResult launch(const LauncherOptions& options);

}  // namespace lockstep
