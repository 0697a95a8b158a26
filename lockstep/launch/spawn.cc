#include "lockstep/launch/spawn.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/launch_environment.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/net/descriptor_limit.h"
#include "lockstep/net/rank_failure.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/tcp_store_server.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Variable that is set in ranks that run the program again: the pipe on which the rank reports why it failed.
constexpr const char* kSpawnedVariable = "LOCKSTEP_SPAWNED";
// A message has to fit into a pipe, because it is read only after the process has ended.
constexpr std::size_t kLongestMessage = 4096;

struct Pipe {
  FileDescriptor read_end, write_end;
  Pipe() {
    int ends[2];
    const int failed = ::pipe2(ends, O_CLOEXEC);
    check(failed == 0, "spawn: {}", std::generic_category().message(errno));
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
  }
};

// First letter of a message: the rank failed by itself (kOwn), or because it lost another rank (kConsequence).
constexpr char kOwn = 'o', kConsequence = 'c';

// Whether the error says that another rank failed, or wraps such an error: the engine wraps what a task threw.
bool is_consequence(const std::exception& error, int rank) {
  if (const auto* lost = dynamic_cast<const CommError*>(&error)) {
    return lost->lost_rank() >= 0 && lost->lost_rank() != rank;
  }
  const auto* wrapping = dynamic_cast<const Error*>(&error);
  if (wrapping == nullptr || !wrapping->cause()) return false;
  try {
    std::rethrow_exception(wrapping->cause());
  } catch (const std::exception& cause) {
    return is_consequence(cause, rank);
  } catch (...) {
    return false;
  }
}

// Reads the message of a rank that has ended. Does not wait for more, because processes that the rank started may hold
// the other end of the pipe.
std::string read_message(const FileDescriptor& pipe) {
  (void)::fcntl(pipe.get(), F_SETFL, O_NONBLOCK);
  std::array<char, kLongestMessage> bytes;
  const ssize_t n = ::read(pipe.get(), bytes.data(), bytes.size());
  return n > 0 ? std::string(bytes.data(), static_cast<std::size_t>(n)) : std::string();
}

// Runs `fn` in a rank's process and ends the process, without return to what the parent was doing.
[[noreturn]] void run_rank(const std::function<void(int)>& fn, int rank, int errors) {
  int status = 0;
  std::string message;
  try {
    fn(rank);
  } catch (const std::exception& error) {
    status = 1;
    message = (is_consequence(error, rank) ? kConsequence : kOwn) + std::string(error.what());
  } catch (...) {
    status = 1;
    message = kOwn + std::string("an exception that is not a std::exception");
  }
  message.resize(std::min(message.size(), kLongestMessage));
  (void)!::write(errors, message.data(), message.size());
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(status);
}

std::ptrdiff_t thread_count() {
  using Tasks = std::filesystem::directory_iterator;
  std::ptrdiff_t count = 0;
  // A thread that was joined a moment ago may still be listed.
  for (int attempt = 0; attempt < 50 && (count = std::distance(Tasks("/proc/self/task"), Tasks())) > 1; ++attempt) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return count;
}

void check_options(const SpawnOptions& options) {
  check(options.nprocs >= 1 && options.nprocs <= kMaxRanks, "spawn: {} processes, expected from 1 to {}{}",
        options.nprocs, kMaxRanks,
        options.nprocs == 0
            ? ": device_count() counts GPUs, and there is none here; give the number of processes, as in "
              "{.nprocs = 2}, which then share the CPUs"
            : "");
}

// Returns a new secret, or an empty string if this process has a secret already.
std::string secret_to_set() { return read_secret().empty() ? make_secret() : std::string(); }

EnvironmentVariables rank_variables(int rank, int nprocs, int port, const std::string& secret) {
  return environment_of_rank({.rank = rank,
                              .world_size = nprocs,
                              .local_rank = rank,
                              .local_world_size = nprocs,
                              .master_addr = "127.0.0.1",
                              .master_port = port,
                              .secret = secret});
}

}  // namespace

class Spawned::Impl {
 public:
  explicit Impl(const SpawnOptions& options) : options_(options) {}

  // Sends SIGTERM to daemons and to the ranks of an incomplete job, and SIGKILL after the grace period. Waits for the
  // other ranks.
  ~Impl() {
    try {
      if ((options_.daemon || !complete_) && children_.running()) {
        children_.send(SIGTERM);
        next_signal_time_ = Clock::now() + options_.grace;
      }
      wait_for_all();
    } catch (const std::exception&) {
      // Ignored, because a destructor must not throw.
    }
  }

  void add(int rank, pid_t process, FileDescriptor errors) {
    children_.add(rank, process);
    errors_[rank] = std::move(errors);
  }
  // Call it when all ranks have been started.
  void complete() { complete_ = true; }

  // Starts the store and returns its port. Call it after the last fork(), because the store has a thread.
  int serve(const std::string& secret) {
    server_.emplace(TcpStoreServerOptions{.secret = secret});
    return server_->port();
  }

  void join() {
    wait_for_all();
    check(failure_.empty(), "{}", failure_);
  }

 private:
  void wait_for_all() {
    for (milliseconds pause{1}; children_.running(); pause = std::min(2 * pause, milliseconds(20))) {
      for (const ChildExit& end : children_.reap()) {
        if (!end.ok()) note(end);
      }
      if (Clock::now() >= next_signal_time_) {
        children_.send(std::exchange(next_signal_, SIGKILL));
        next_signal_time_ = Clock::now() + options_.grace;
      }
      if (children_.running()) std::this_thread::sleep_for(pause);
    }
    server_.reset();
  }

  // Keeps the first failure. Ranks that only lost another rank do not count, although they often end first.
  void note(const ChildExit& end) {
    const std::string message = read_message(errors_.at(end.rank));
    const bool own = message.empty() ? next_signal_ == SIGTERM || !end.by_signal() : message.front() == kOwn;
    next_signal_time_ = std::min(next_signal_time_, Clock::now() + options_.grace);
    if (own_failure_ || (!failure_.empty() && !own)) return;
    own_failure_ = own;
    failure_ = message.empty() ? end.describe() : fmt::format("rank {} failed: {}", end.rank, message.substr(1));
  }

  const SpawnOptions options_;
  std::optional<TcpStoreServer> server_;
  std::map<int, FileDescriptor> errors_;
  ChildProcesses children_;
  bool complete_ = false;
  std::string failure_;
  bool own_failure_ = false;  // not a consequence of another rank's failure
  Clock::time_point next_signal_time_ = Clock::time_point::max();
  int next_signal_ = SIGTERM;
};

Spawned::Spawned(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Spawned::~Spawned() = default;
Spawned::Spawned(Spawned&&) noexcept = default;
Spawned& Spawned::operator=(Spawned&&) noexcept = default;
void Spawned::join() { impl_->join(); }

Spawned spawn(const std::function<void(int)>& fn, const SpawnOptions& options) {
  check_options(options);
  check(broken_by_fork().empty(),
        "spawn: this process has called {}, which does not survive fork(); call spawn before you count or use GPUs, or "
        "use spawn(argc, argv, …), which runs the program again",
        broken_by_fork());
  raise_descriptor_limit();
  const std::ptrdiff_t threads = thread_count();
  check(threads == 1,
        "spawn: this process has {} threads, expected one, since fork() would lose the others; call spawn "
        "before "
        "making a Runtime, or use spawn(argc, argv, …), which runs the program again",
        threads);
  const std::string secret = secret_to_set();
  auto impl = std::make_unique<Spawned::Impl>(options);
  // Flushes buffered output, which would otherwise appear once for every process.
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  std::vector<FileDescriptor> ports;
  for (int rank = 0; rank < options.nprocs; ++rank) {
    // The pipe passes the store's port to the child, because the store may exist only after the last fork().
    Pipe errors, port_pipe;
    const pid_t child = ::fork();
    check(child >= 0, "spawn: {}", std::generic_category().message(errno));
    if (child == 0) {
      if (!die_with_parent(parent)) ::_exit(1);
      port_pipe.write_end.reset();
      ports.clear();
      int port = 0;
      if (::read(port_pipe.read_end.get(), &port, sizeof port) != sizeof port) ::_exit(1);
      for (const auto& [name, value] : rank_variables(rank, options.nprocs, port, secret)) {
        ::setenv(name.c_str(), value.c_str(), 1);
      }
      run_rank(fn, rank, errors.write_end.get());
    }
    impl->add(rank, child, std::move(errors.read_end));
    ports.push_back(std::move(port_pipe.write_end));
  }
  const int port = impl->serve(secret.empty() ? read_secret() : secret);
  for (const FileDescriptor& pipe : ports) (void)!::write(pipe.get(), &port, sizeof port);
  ports.clear();
  impl->complete();
  Spawned spawned(std::move(impl));
  if (options.join) spawned.join();
  return spawned;
}

Spawned spawn(int argc, char** argv, const std::function<void(int)>& fn, const SpawnOptions& options) {
  if (const auto errors = environment_integer(kSpawnedVariable, 0, INT_MAX)) {
    // Removes the variable, because processes that fn starts are not ranks of this spawn().
    ::unsetenv(kSpawnedVariable);
    ::fcntl(static_cast<int>(*errors), F_SETFD, FD_CLOEXEC);
    run_rank(fn, static_cast<int>(environment_integer("RANK", 0, INT_MAX).value()), static_cast<int>(*errors));
  }
  check_options(options);
  raise_descriptor_limit();
  const std::string secret = secret_to_set();
  auto impl = std::make_unique<Spawned::Impl>(options);
  const int port = impl->serve(secret.empty() ? read_secret() : secret);
  std::fflush(nullptr);
  for (int rank = 0; rank < options.nprocs; ++rank) {
    Pipe errors;
    ChildOptions child{.command = std::vector<std::string>(argv, argv + argc), .inherited = errors.write_end.get()};
    child.command[0] = own_program();
    child.environment = rank_variables(rank, options.nprocs, port, secret);
    child.environment.emplace_back(kSpawnedVariable, std::to_string(errors.write_end.get()));
    impl->add(rank, start_child(child), std::move(errors.read_end));
  }
  impl->complete();
  Spawned spawned(std::move(impl));
  if (options.join) spawned.join();
  return spawned;
}

}  // namespace lockstep
