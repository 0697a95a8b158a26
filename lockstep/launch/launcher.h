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
  // The program, which is looked up in PATH, and its arguments.
  std::vector<std::string> command;
  int nproc_per_node = 1;
  // Number of hosts. Each host runs its own launcher with the same numbers; the launcher of node 0 hosts the store.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0 chooses a free port; allowed for one node only
  // The most restarts of all ranks after a failure. Status kUnusable ends the job, because the failure would recur.
  int max_restarts = 0;
  // The pause before the first restart. It doubles with each restart, up to longest_restart_delay.
  std::chrono::milliseconds restart_delay{1'000}, longest_restart_delay{60'000};
  // After a start that ran this long before it failed, the count of restarts and the pauses begin anew.
  std::chrono::milliseconds healthy_after{600'000};
  // Time that nodes wait for each other and, as LOCKSTEP_TIMEOUT, time that ranks wait. 0: LOCKSTEP_TIMEOUT, or 60 s.
  std::chrono::milliseconds timeout{0};
  // After one rank fails, the others have this long to report why they fail. Then they get SIGTERM, and after the same
  // time again SIGKILL. If all ranks left on this node are silent and reported as lost, SIGKILL comes after 2 s.
  std::chrono::milliseconds grace{5'000};
  // Receives the ranks' output in complete lines, and the launcher's own messages as error output. It runs on a thread
  // of its own, so it may block while the launcher handles signals and failures. All output has been passed when
  // launch() returns. An exception means that the output is gone (a closed pipe): the launcher drops the rest and sends
  // SIGTERM to the ranks, so that they save and end. SIGPIPE is blocked in its thread.
  std::function<void(bool is_error, std::string_view line)> output;
  // Colors the rank prefixes in output and error output.
  bool color_output = false, color_errors = false;
};

struct LaunchResult {
  // 0, or the status of the rank that failed: the rank that other ranks have lost if it ended by itself, otherwise the
  // first rank that failed. 128 + the signal if a signal killed it.
  int status = 0;
  // Names the rank that failed: `rank 1 was killed by signal 9 (Killed)`. If that rank hangs, quotes the other ranks:
  // `rank 0 lost (no answer within 60 s)`. Empty if all ranks ended well.
  std::string message;
};

// Returns when all ranks have ended. Raises this process's soft limit of open files to its hard limit. Passes SIGINT,
// SIGTERM, SIGQUIT, SIGUSR1, and SIGUSR2 on to the ranks, and SIGHUP as SIGTERM; after any of these, the job is not
// restarted. SIGTSTP stops the ranks and then this process; SIGCONT continues all. These signals are blocked in the
// calling thread and should be blocked in all others. Signals that this process ignores at the start stay ignored,
// except SIGINT and SIGTERM.
// Throws if the job cannot start: a command is not found, a port is in use, or nodes are missing or disagree.
LaunchResult launch(const LauncherOptions& options);

}  // namespace lockstep
