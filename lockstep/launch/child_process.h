// Internal: the processes that a launcher starts, one per rank. They never outlive the launcher.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/launch/group_guard.h"
#include "lockstep/launch/launch_environment.h"

namespace lockstep {

struct ChildOptions {
  // The program, looked up in PATH, and its arguments.
  std::vector<std::string> command;
  // Variables to set in addition to this process's environment.
  EnvironmentVariables environment = {};
  // Descriptors for standard output and error; -1 keeps this process's.
  int out = -1, err = -1;
  // A descriptor that stays open in the child, under the same number.
  int inherited = -1;
  // Starts a process group of its own, without input from the terminal and without the terminal's Ctrl-C.
  bool own_group = false;
  // The child's signal mask; null keeps the caller's.
  const sigset_t* mask = nullptr;
};

// Returns the path of this process's program, to start it again: it may not be in PATH.
std::string own_program();

// Returns when the program runs. Throws if the program cannot start: `cannot start foo: No such file or directory`. The
// system kills the child when the calling thread ends.
pid_t start_child(const ChildOptions& options);

// Call it in a child right after fork(): the child will die with the thread that made it. Returns false if that thread
// is already gone. Safe in a signal handler.
bool die_with_parent(pid_t parent);

// How a process ended.
struct ChildExit {
  int rank = 0;
  int status = 0;  // in the format of waitpid()

  bool ok() const { return status == 0; }
  bool by_signal() const;
  // The exit status as a shell gives it: 128 + the signal if a signal killed the process.
  int exit_status() const;
  // `rank 1 was killed by signal 9 (Killed)`, `rank 2 exited with status 3`
  std::string describe() const;
};

// The processes of a job's ranks. The destructor kills those that still run.
class ChildProcesses {
 public:
  // own_groups: each process leads a process group. Signals then reach all processes that a rank started, and none of
  // them survives the rank or this process.
  explicit ChildProcesses(bool own_groups = false);
  ~ChildProcesses();
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;

  void add(int rank, pid_t process);
  bool running() const { return !running_.empty(); }
  std::vector<int> running_ranks() const;
  // Returns the processes that ended since the last call. Does not wait.
  std::vector<ChildExit> reap();
  void send(int signal) const;

 private:
  struct Child {
    int rank;
    pid_t process;
  };
  std::vector<Child> running_;
  std::unique_ptr<GroupGuard> guard_;  // set if each process leads a group
};

}  // namespace lockstep
