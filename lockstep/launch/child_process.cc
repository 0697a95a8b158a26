#include "lockstep/launch/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

// This process's environment with some variables changed.
std::vector<std::string> merged_environment(const EnvironmentVariables& added) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::none_of(added.begin(), added.end(), [&](const auto& a) { return a.first == name; }))
      all.emplace_back(text);
  }
  for (const auto& [name, value] : added) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

// Runs between fork() and exec() in the child of a process with threads, so only async-signal-safe calls are allowed.
[[noreturn]] void become(const ChildOptions& o, char** argv, char** envp, pid_t parent, int report) {
  bool ok = die_with_parent(parent);
  if (o.own_group) {
    const int null = ::open("/dev/null", O_RDONLY);
    ok = ok && ::setpgid(0, 0) == 0 && null >= 0 && ::dup2(null, 0) == 0;
  }
  ok = ok && (o.out < 0 || ::dup2(o.out, 1) == 1) && (o.err < 0 || ::dup2(o.err, 2) == 2);
  ok = ok && (o.inherited < 0 || ::fcntl(o.inherited, F_SETFD, 0) == 0);
  ok = ok && (o.mask == nullptr || ::sigprocmask(SIG_SETMASK, o.mask, nullptr) == 0);
  if (ok) ::execvpe(argv[0], argv, envp);
  const int error = errno;
  (void)!::write(report, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

bool die_with_parent(pid_t parent) {
  // The parent may have ended before the request took effect.
  return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::getppid() == parent;
}

pid_t start_child(const ChildOptions& options) {
  check(!options.command.empty() && !options.command[0].empty(), "start: no command");
  std::vector<std::string> command = options.command, environment = merged_environment(options.environment);
  std::vector<char*> argv = pointers(command), envp = pointers(environment);
  int ends[2];
  const int failed = ::pipe2(ends, O_CLOEXEC);
  check(failed == 0, "cannot start {}: {}", command[0], std::generic_category().message(errno));
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  check(child >= 0, "cannot start {}: {}", command[0], std::generic_category().message(errno));
  if (child == 0) become(options, argv.data(), envp.data(), parent, write_end.get());
  write_end.reset();
  // exec() closes the pipe; if it fails, the child writes the error to the pipe.
  int error = 0;
  ssize_t n;
  while ((n = ::read(read_end.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (n == 0) return child;
  ::waitpid(child, nullptr, 0);
  fail("cannot start {}: {}", command[0], std::generic_category().message(error));
}

bool ChildExit::by_signal() const { return WIFSIGNALED(status); }

int ChildExit::exit_status() const { return by_signal() ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string ChildExit::describe() const {
  if (!by_signal()) return fmt::format("rank {} exited with status {}", rank, WEXITSTATUS(status));
  const char* name = ::sigdescr_np(WTERMSIG(status));
  return fmt::format("rank {} was killed by signal {} ({})", rank, WTERMSIG(status), name ? name : "unknown");
}

ChildProcesses::ChildProcesses(bool own_groups) : guard_(own_groups ? std::make_unique<GroupGuard>() : nullptr) {}

void ChildProcesses::add(int rank, pid_t process) {
  running_.push_back({rank, process});
  if (guard_) guard_->watch(process);
}

ChildProcesses::~ChildProcesses() {
  send(SIGKILL);
  for (const Child& child : running_) {
    while (::waitpid(child.process, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

std::vector<ChildExit> ChildProcesses::reap() {
  std::vector<ChildExit> ended;
  std::erase_if(running_, [&](const Child& child) {
    siginfo_t info{};
    const int result = ::waitid(P_PID, static_cast<id_t>(child.process), &info, WEXITED | WNOHANG | WNOWAIT);
    if (result == 0 && info.si_pid == 0) return false;
    // No other process can have this number until waitpid().
    if (guard_) {
      ::kill(-child.process, SIGKILL);
      guard_->forget(child.process);
    }
    int status = 0;
    const bool ours = result == 0 && ::waitpid(child.process, &status, 0) == child.process;
    check(ours, "rank {}: its process {} is not ours: {}", child.rank, child.process,
          std::generic_category().message(errno));
    ended.push_back({child.rank, status});
    return true;
  });
  // Puts ranks that a signal killed first: such a rank is more likely the cause of a failure than its consequence.
  std::stable_sort(ended.begin(), ended.end(),
                   [](const ChildExit& a, const ChildExit& b) { return a.by_signal() && !b.by_signal(); });
  return ended;
}

std::vector<int> ChildProcesses::running_ranks() const {
  std::vector<int> ranks;
  for (const Child& child : running_) ranks.push_back(child.rank);
  return ranks;
}

void ChildProcesses::send(int signal) const {
  for (const Child& child : running_) ::kill(guard_ ? -child.process : child.process, signal);
}

}  // namespace lockstep
