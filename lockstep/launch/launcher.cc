#include "lockstep/launch/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/failure_reports.h"
#include "lockstep/launch/launch_environment.h"
#include "lockstep/launch/line_prefixer.h"
#include "lockstep/launch/node_link.h"
#include "lockstep/launch/output_writer.h"
#include "lockstep/launch/signal_descriptor.h"
#include "lockstep/net/descriptor_limit.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/tcp_socket.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Time between two looks at other nodes and at children.
constexpr milliseconds kTick{250};
// A third SIGINT kills the ranks if it comes at least this long after the first.
constexpr milliseconds kKillAfter{1'000};
// Time after which ranks that hang get SIGKILL.
constexpr milliseconds kShortGrace{2'000};
// The limit of one call to the store of another node. Signals wait until the call returns.
constexpr milliseconds kNodeStoreTimeout{10'000};
// The limit of one attempt to connect with the store of another node.
constexpr milliseconds kNodeConnectTimeout{2'000};
// Time after the ranks' end during which other processes may still write to the ranks' output.
constexpr milliseconds kOutputTime{1'000};
// Time between two looks at whether the reader of the output accepts more.
constexpr milliseconds kOutputPause{20};

void check_options(const LauncherOptions& o) {
  check(!o.command.empty() && !o.command[0].empty(), "launch: no command");
  check(o.nproc_per_node >= 1 && o.nproc_per_node <= GroupGuard::kMostGroups,
        "launch: {} processes per node, expected from 1 to {}", o.nproc_per_node, GroupGuard::kMostGroups);
  check(o.nnodes >= 1, "launch: {} nodes, expected at least 1", o.nnodes);
  check(o.node_rank >= 0 && o.node_rank < o.nnodes, "launch: node rank {}, expected from 0 to {}", o.node_rank,
        o.nnodes - 1);
  check(o.nproc_per_node <= kMaxRanks / o.nnodes, "launch: {} nodes of {} ranks, expected at most {} ranks in all",
        o.nnodes, o.nproc_per_node, kMaxRanks);
  check(o.master_port >= 0 && o.master_port <= 65535, "launch: master port {}, expected from 0 to 65535",
        o.master_port);
  check(o.nnodes == 1 || o.master_port > 0, "launch: {} nodes need a master port, the same on all of them, found none",
        o.nnodes);
  check(o.max_restarts >= 0, "launch: {} restarts, expected at least 0", o.max_restarts);
  check(o.restart_delay >= milliseconds(0), "launch: a pause of {} ms before a restart, expected at least 0",
        o.restart_delay.count());
}

// Whether a line names the step that failed, such as `lockstep: the loss is nan at step 17`.
bool names_step(std::string_view line) {
  const std::size_t at = line.rfind("step ");
  return at != std::string_view::npos && at + 5 < line.size() && line[at + 5] >= '0' && line[at + 5] <= '9';
}

// SIGPIPE is only blocked, so that a write to a closed pipe fails instead of killing this process.
std::vector<int> signals_to_take() {
  std::vector<int> signals{SIGINT, SIGTERM, SIGCHLD, SIGPIPE};
  for (const int signal : {SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP}) {
    struct sigaction action {};
    const bool is_ignored = ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!is_ignored) signals.push_back(signal);  // nohup ignores SIGHUP
  }
  return signals;
}

// The output or error output of a rank, which this process passes on.
struct OutputPipe {
  FileDescriptor pipe;
  LinePrefixer lines;

  // Reads available output, up to a limit that lets other streams have their turn. Closes the pipe at its end.
  void read() {
    std::array<char, 1 << 16> bytes;
    for (int i = 0; i < 16; ++i) {
      const ssize_t n = ::read(pipe.get(), bytes.data(), bytes.size());
      if (n > 0) {
        lines.feed({bytes.data(), static_cast<std::size_t>(n)});
      } else if (n < 0 && errno == EINTR) {
        continue;
      } else {
        if (n == 0 || errno != EAGAIN) finish();
        return;
      }
    }
  }
  void finish() {
    lines.finish();
    pipe.reset();
  }
};

class Launcher {
 public:
  explicit Launcher(const LauncherOptions& options)
      : options_(options), timeout_(options.timeout > milliseconds(0) ? options.timeout : default_timeout()),
        output_(options.output) {
    check_options(options);
    raise_descriptor_limit();
    secret_ = read_secret();
    made_secret_ = secret_.empty() && options.nnodes == 1;
    if (made_secret_) secret_ = make_secret();
    if (options.node_rank == 0) {
      server_ =
          options.nnodes == 1 && options.master_addr == "127.0.0.1"
              ? std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.port = options.master_port, .secret = secret_})
              : listen_for_hosts(options.master_addr, options.master_port, secret_);
    }
    port_ = server_ ? server_->port() : options.master_port;
  }

  LaunchResult run() {
    if (options_.nnodes > 1 && !connect_nodes()) return end_before_start();
    std::string cause;  // cause of the last failure
    int used = 0;       // number of restarts since the last healthy start
    for (int restart = 0;; ++restart) {
      const auto stop = [this] { return take_signals(), interrupted_ || link_->failure(); };
      if (link_ && (!link_->meet(job(restart), stop, join_timeout(restart)) || interrupted_)) return end_before_start();
      const auto begin = Clock::now();
      std::optional<JobFailure> failure;
      try {
        failure = run_ranks(restart);
      } catch (const Error& error) {
        // If ranks cannot start here, the other nodes must stop waiting.
        attempt([&](NodeLink& link) { link.fail_all({1, error.what()}), link.leave(); });
        throw;
      }
      // Each node measures for itself. If only some nodes count this start as healthy, the other nodes may leave; a
      // node that stays then waits for them in vain at the next start, and the job ends.
      if (Clock::now() - begin >= options_.healthy_after) used = 0;
      JobFailure first = failure.value_or(JobFailure{0, ""});
      bool over = !failure || interrupted_ || used == options_.max_restarts;
      const auto decide = [&] { over |= first.status == kUnusable || (!first.cause.empty() && first.cause == cause); };
      decide();
      attempt([&](NodeLink& link) {
        // All nodes have to decide alike, so they use the first failure of the whole job.
        if (std::optional<JobFailure> shared = link.failure()) first = std::move(*shared);
        decide();
        over |= link.interrupted();
        if (over) link.leave();
      });
      over |= options_.nnodes > 1 && !link_;
      if (!failure) return {};
      if (!first.cause.empty() && first.cause == cause)
        failure->message += "; the same as before the restart: " + cause;
      if (over) return {failure->status, failure->message};
      cause = first.cause;
      const auto delay = std::min(options_.restart_delay * (std::int64_t{1} << std::min(used, 20)),
                                  std::max(options_.longest_restart_delay, options_.restart_delay));
      const std::string when =
          delay.count() > 0 ? fmt::format(" in {} s", static_cast<double>(delay.count()) / 1000) : "";
      say(fmt::format("{}; restart {} of {}{}", failure->message, ++used, options_.max_restarts, when));
      if (!pause(delay) && !link_) return {128 + interrupted_, failure->message + "; interrupted before the restart"};
    }
  }

 private:
  // Waits longer after a failure, because another node may still be ending ranks that ignore SIGTERM.
  milliseconds join_timeout(int restart) const {
    return restart == 0 ? timeout_ : timeout_ + 2 * options_.grace + kOutputTime;
  }

  // The launchers of all nodes must agree on this text.
  std::string job(int restart) const {
    return fmt::format("{} nodes of {} processes, start {}, max-restarts {}", options_.nnodes, options_.nproc_per_node,
                       restart + 1, options_.max_restarts);
  }

  void say(const std::string& text) { output_.push(true, "lockstep: " + text + "\n"); }

  // Returns false if a signal comes first.
  bool pause(milliseconds time) {
    std::vector<OutputPipe> none;
    for (const auto end = Clock::now() + time; take_signals(), !interrupted_ && Clock::now() < end;) {
      wait(none, std::min(end, Clock::now() + kTick));
    }
    return !interrupted_;
  }

  // Returns false if a signal comes first.
  bool connect_nodes() {
    TcpStoreOptions store{.host = options_.master_addr,
                          .port = port_,
                          .secret = secret_,
                          .connect_timeout = std::min(timeout_, kNodeConnectTimeout),
                          .timeout = std::min(timeout_, kNodeStoreTimeout)};
    for (const auto deadline = Clock::now() + timeout_; take_signals(), !interrupted_;) {
      try {
        link_ = std::make_unique<NodeLink>(std::make_shared<TcpStore>(store), options_.nnodes, options_.node_rank,
                                           timeout_);
        return true;
      } catch (const ConnectionError&) {
        if (Clock::now() >= deadline) throw;
      }
    }
    return false;
  }

  // Ends the launchers that have joined so far together.
  LaunchResult end_before_start() {
    JobFailure failure{128 + interrupted_, "interrupted before all nodes had joined"};
    attempt([&](NodeLink& link) {
      if (interrupted_) {
        link.interrupt();
        link.fail_all({failure.status, fmt::format("node {} was {}", options_.node_rank, failure.message)});
      } else {
        failure = link.failure().value();
      }
      link.leave();
    });
    return {failure.status, failure.message};
  }

  void start(int local_rank, int restart, ChildProcesses& children, std::vector<OutputPipe>& streams) {
    const int rank = options_.node_rank * options_.nproc_per_node + local_rank;
    ChildOptions child{.command = options_.command, .own_group = true, .mask = &signals_.mask_before()};
    child.environment = environment_of_rank({.rank = rank,
                                             .world_size = options_.nnodes * options_.nproc_per_node,
                                             .local_rank = local_rank,
                                             .local_world_size = options_.nproc_per_node,
                                             .node_rank = options_.node_rank,
                                             .master_addr = options_.master_addr,
                                             .master_port = port_,
                                             .secret = made_secret_ ? secret_ : "",
                                             .restart_count = restart,
                                             .max_restarts = options_.max_restarts});
    child.environment.emplace_back("LOCKSTEP_TIMEOUT", fmt::format("{}", static_cast<double>(timeout_.count()) / 1000));
    std::array<FileDescriptor, 2> write_ends;
    for (const bool is_error : {false, true}) {
      int ends[2];
      const bool made = ::pipe2(ends, O_CLOEXEC) == 0 && ::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
      check(made, "launch: rank {}: {}", rank, std::generic_category().message(errno));
      write_ends[is_error] = FileDescriptor(ends[1]);
      const bool color = is_error ? options_.color_errors : options_.color_output;
      const std::string prefix =
          color ? fmt::format("\x1b[{}m[rank {}]\x1b[0m ", 31 + rank % 6, rank) : fmt::format("[rank {}] ", rank);
      const auto write = [this, is_error, rank, skip = prefix.size()](std::string_view line) {
        if (is_error) last_errors_[rank] = line.substr(skip, line.size() - skip - 1);
        output_.push(is_error, line);
      };
      streams.push_back({FileDescriptor(ends[0]), LinePrefixer(prefix, write)});
    }
    child.out = write_ends[0].get();
    child.err = write_ends[1].get();
    children.add(rank, start_child(child));
  }

  // Starts the ranks and waits until all have ended. Returns the first failure.
  std::optional<JobFailure> run_ranks(int restart) {
    last_errors_.clear();
    ChildProcesses children(true);
    children_ = &children;
    struct Forget {
      ChildProcesses*& children;
      ~Forget() { children = nullptr; }
    } forget{children_};
    std::vector<OutputPipe> streams;
    for (int local = 0; local < options_.nproc_per_node; ++local) start(local, restart, children, streams);
    FailureReports reports({.host = options_.master_addr, .port = port_, .secret = secret_}, restart,
                           options_.nnodes * options_.nproc_per_node);
    std::optional<JobFailure> failure;
    // The ranks that failed before this launcher sent them a signal.
    std::map<int, ChildExit> own_ends;
    bool finished = false;
    // The signals for the remaining ranks, in reverse order, and the time of the next one.
    std::vector<int> escalation{SIGKILL, SIGTERM};
    auto next_signal = Clock::time_point::max();
    bool sent_signal = false;
    milliseconds silence{0};  // time since the store last answered
    const auto fail_with = [&](const JobFailure& what) {
      if (failure) return;
      failure = what;
      // A rank that stops in good order may still have a checkpoint to write.
      next_signal = Clock::now() + (interrupted_ ? std::max(options_.grace, timeout_) : options_.grace);
    };
    const auto lose_link = [&](const ConnectionError& error) {
      link_.reset();
      fail_with({1, error.what()});
    };
    while (children.running() || (link_ && !failure && !finished)) {
      // Wakes at every tick, because the kernel drops SIGCHLD if it is unblocked in the main thread and this is another
      // thread.
      wait(streams, std::min(next_signal, Clock::now() + kTick));
      if (const int error = server_ ? server_->accept_error() : 0; error != std::exchange(accept_error_, error)) {
        say(fmt::format("the store cannot accept all ranks: {}", describe_descriptor_error(error)));
      }
      for (const int signal : take_signals()) {
        // Tells the other nodes first, so that they know why ranks stop.
        attempt([](NodeLink& link) { link.interrupt(); });
        children.send(signal);
      }
      const std::vector<ChildExit> ends = children.reap();
      // Reads the last lines of failed ranks, which say why they failed.
      if (std::ranges::any_of(ends, [](const ChildExit& end) { return !end.ok(); })) read(streams);
      for (const ChildExit& end : ends) {
        if (!end.ok() && !sent_signal) own_ends.emplace(end.rank, end);
      }
      for (const ChildExit& end : ends) {
        if (end.ok() || failure) continue;
        reports.read();
        const JobFailure what = blame(reports, own_ends, failure_of(end));
        attempt([&](NodeLink& link) { link.fail_all(what); });
        fail_with(what);
      }
      // Looks for hanging ranks even if no rank ended here: the ranks that lost a hanging rank may be on other nodes.
      if (failure && escalation.size() > 1 && (link_ || !ends.empty())) {
        reports.read();
        const auto silent = [&](int rank) { return reports.is_silent(rank); };
        if (std::ranges::all_of(children.running_ranks(), silent)) {
          next_signal = std::min(next_signal, Clock::now() + kShortGrace);
          escalation = {SIGKILL};
        }
      }
      if (link_ && !failure) {
        try {
          if (!children.running()) link_->finish();
          finished = link_->all_finished();
          if (const std::optional<JobFailure> other = link_->failure()) fail_with(*other);
          silence = milliseconds(0);
        } catch (const NoAnswer& error) {
          // Like a slow rank, a slow node is not lost.
          silence += std::min(timeout_, kNodeStoreTimeout);
          if (silence > timeout_) lose_link(error);
        } catch (const ConnectionError& error) {
          lose_link(error);
        } catch (const Error& error) {
          // The job cannot continue without one of its nodes.
          const JobFailure what{1, error.what()};
          attempt([&](NodeLink& link) { link.fail_all(what); });
          fail_with(what);
        }
      }
      if (Clock::now() >= next_signal) {
        children.send(escalation.back());
        sent_signal = true;
        if (escalation.size() > 1) escalation.pop_back();
        next_signal = Clock::now() + options_.grace;
      }
    }
    // Processes that ranks have started may outlive them and hold the output open.
    auto soon = Clock::now() + kOutputTime;
    const auto is_open = [](const OutputPipe& stream) { return static_cast<bool>(stream.pipe); };
    while (std::ranges::any_of(streams, is_open) && Clock::now() < soon) {
      wait(streams, soon);
      take_signals();
      // While the writer is full, nothing is read, so that time does not count.
      if (output_.full()) soon = Clock::now() + kOutputTime;
    }
    for (OutputPipe& stream : streams) {
      if (is_open(stream)) stream.finish();
    }
    // With several nodes, the launchers have already told each other the failure.
    if (failure && options_.nnodes == 1) {
      reports.read();  // the last ranks may have reported since
      failure = blame(reports, own_ends, *failure);
    }
    return failure;
  }

  // Prefers the reports: the rank that other ranks have lost says more than the rank that ended first.
  JobFailure blame(const FailureReports& reports, const std::map<int, ChildExit>& own_ends,
                   const JobFailure& first) const {
    const std::optional<RankFailure> culprit = reports.culprit();
    if (!culprit) return first;
    const auto end = own_ends.find(culprit->culprit);
    if (end == own_ends.end()) return {first.status, culprit->reason};
    return failure_of(end->second);
  }

  JobFailure failure_of(const ChildExit& end) const {
    JobFailure failure{end.exit_status(), end.describe()};
    if (const auto last = last_errors_.find(end.rank); last != last_errors_.end() && !end.by_signal()) {
      if (names_step(last->second)) failure.cause = last->second;
    }
    return failure;
  }

  // If the store is unreachable, this node continues without the link. The other nodes notice by themselves.
  template <typename Action>
  void attempt(const Action& action) {
    try {
      if (link_) action(*link_);
    } catch (const Error&) {
      link_.reset();
    }
  }

  // Waits for signals and for output of the ranks, and passes the output on. Output that nobody reads stays in the
  // pipes.
  void wait(std::vector<OutputPipe>& streams, Clock::time_point until) {
    const bool full = output_.full();
    if (full) until = std::min(until, Clock::now() + kOutputPause);
    std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}};
    for (const OutputPipe& stream : streams) polled.push_back({full ? -1 : stream.pipe.get(), POLLIN, 0});
    wait_for_any(polled, until);
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (polled[i + 1].revents && !output_.full()) streams[i].read();
    }
  }

  // Reads what has arrived, without waiting.
  void read(std::vector<OutputPipe>& streams) {
    for (OutputPipe& stream : streams) {
      if (stream.pipe && !output_.full()) stream.read();
    }
  }

  // Returns the signals to pass on. SIGCHLD only wakes the launcher.
  std::vector<int> take_signals() {
    std::vector<int> taken;
    while (const std::optional<int> signal = signals_.take()) {
      switch (*signal) {
        case SIGCHLD:
        case SIGPIPE: break;
        case SIGTSTP: suspend(); break;
        case SIGHUP: taken.push_back(SIGTERM); break;
        case SIGINT:
          // A wrapper, a scheduler, and a terminal may each send one SIGINT at the same time. Only a user sends a third
          // one later.
          if (++interrupts_ == 1) first_interrupt_ = Clock::now();
          taken.push_back(interrupts_ > 2 && Clock::now() - first_interrupt_ >= kKillAfter ? SIGKILL : SIGINT);
          break;
        default: taken.push_back(*signal);
      }
    }
    if (const std::optional<std::string> gone = output_.gone(); gone && !std::exchange(output_is_gone_, true)) {
      say(fmt::format("{}: the output is gone, so the ranks are told to end", *gone));
      taken.push_back(SIGTERM);
    }
    if (interrupted_ == 0 && !taken.empty()) interrupted_ = taken.front();
    return taken;
  }

  // Stops the ranks, too: a terminal's Ctrl-Z stops only this process, because each rank leads a group of its own.
  void suspend() {
    if (children_) children_->send(SIGSTOP);
    // Takes the default action, which does nothing if no shell could continue this process.
    sigset_t stop, before;
    ::sigemptyset(&stop);
    ::sigaddset(&stop, SIGTSTP);
    ::raise(SIGTSTP);
    ::pthread_sigmask(SIG_UNBLOCK, &stop, &before);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (children_) children_->send(SIGCONT);
  }

  const LauncherOptions& options_;
  const milliseconds timeout_;
  // Comes before the writer and the server, so that their threads inherit the mask that blocks the signals.
  SignalDescriptor signals_{signals_to_take()};
  OutputWriter output_;
  bool output_is_gone_ = false;
  int interrupted_ = 0;  // the first signal that was passed on
  int interrupts_ = 0;   // the number of SIGINTs
  Clock::time_point first_interrupt_;
  ChildProcesses* children_ = nullptr;  // set while the ranks run
  std::string secret_;
  bool made_secret_ = false;
  std::unique_ptr<TcpStoreServer> server_;
  int port_ = 0;
  int accept_error_ = 0;                    // the last error that was reported
  std::map<int, std::string> last_errors_;  // the last line of error output of each rank here
  std::unique_ptr<NodeLink> link_;
};

}  // namespace

LaunchResult launch(const LauncherOptions& options) { return Launcher(options).run(); }

}  // namespace lockstep
