// Processes that a launcher starts: one for each rank, which never outlive it.
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
  // The program, looked for in PATH, and its arguments.
  std::vector<std::string> command;
  // Set above this process's own.
  EnvironmentVariables environment = {};
  // Descriptors for its standard output and error; -1: this process's.
  int out = -1, err = -1;
  // Stays open under its number.
  int inherited = -1;
  // In a process group of its own, away from the terminal: without its input, and without its Ctrl-C.
  bool own_group = false;
  // Its signal mask; null: the caller's.
  const sigset_t* mask = nullptr;
};

// Returns when the program runs; throws if it cannot be started: `cannot start foo: No such file or directory`.
// Killed by the system if the calling thread ends before it.
pid_t start_child(const ChildOptions& options);

// Called in a child, right after fork(): it dies with the thread that made it. False if that is gone already.
// Safe in a signal handler.
bool die_with_parent(pid_t parent);

// How a process ended.
struct ChildExit {
  int rank = 0;
  int status = 0;  // as waitpid() has it

  bool ok() const { return status == 0; }
  bool by_signal() const;
  // As a shell has it: 128 + the signal that ended it.
  int exit_status() const;
  // `rank 1 was killed by signal 9 (Killed)`, `rank 2 exited with status 3`
  std::string describe() const;
};

// The processes of a job's ranks. Those that are left when it goes out of scope are killed.
class ChildProcesses {
 public:
  // own_groups: as they were started. Signals then go to all that a rank has started itself, and nothing of that stays
  // when the rank ends, or this process.
  explicit ChildProcesses(bool own_groups = false);
  ~ChildProcesses();
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;

  void add(int rank, pid_t process);
  bool running() const { return !running_.empty(); }
  std::vector<int> running_ranks() const;
  // Those that have ended since the last call. Does not wait.
  std::vector<ChildExit> reap();
  void send(int signal) const;

 private:
  struct Child {
    int rank;
    pid_t process;
  };
  std::vector<Child> running_;
  std::unique_ptr<GroupGuard> guard_;  // of own groups
};

}  // namespace lockstep
