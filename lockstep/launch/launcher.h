// Starts the ranks of a job on this host, holds the store through which they meet, and ends all when one fails.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The exit status of programs whose arguments cannot be used.
constexpr int kUnusable = 2;

struct LauncherOptions {
  // The program, looked for in PATH, and its arguments.
  std::vector<std::string> command;
  int nproc_per_node = 1;
  // Hosts of the job; each runs a launcher of its own with the same numbers. That of node 0 holds the store.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free one; on one node alone
  // How often all ranks are started again after one failed. Not after kUnusable, which would come again.
  int max_restarts = 0;
  // For nodes to meet and, as LOCKSTEP_TIMEOUT, for what ranks wait for. 0: LOCKSTEP_TIMEOUT, or 60 s.
  std::chrono::milliseconds timeout{0};
  // The other ranks get this time after one has failed, to say why they fail. Then they are asked to end, and after the
  // same time again killed. Ranks that the others have lost, and that say nothing themselves, get 2 s once only such
  // ranks are left on this node.
  std::chrono::milliseconds grace{5'000};
  // Gets the ranks' output by whole lines, and the launcher's own words as error output.
  std::function<void(bool is_error, std::string_view line)> output;
  // Marks ranks in colours, in their output and error output.
  bool colour_output = false, colour_errors = false;
};

struct LaunchResult {
  // 0, or that of the rank that failed: the one that the others have lost, where it ended by itself, else the first one
  // that ended; 128 + the signal that killed it.
  int status = 0;
  // Names the rank that failed: `rank 1 was killed by signal 9 (Killed)`, or, where it stands still, says what the
  // others say: `rank 0 lost (no answer within 60 s)`. Empty if all ended well.
  std::string message;
};

// Returns when all ranks have ended. The process's soft limit of open files is raised to its hard one. SIGINT and SIGTERM that
// this process gets meanwhile are handed on to them; they are blocked in the calling thread, and should be in all
// others. Throws what keeps the job from starting: a command that is not found, a port in use, nodes that do not come
// or disagree.
LaunchResult launch(const LauncherOptions& options);

}  // namespace lockstep
