#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <system_error>

#include "apps/lockstep/commands.h"
#include "apps/lockstep/options/common_options.h"
#include "apps/lockstep/ranks.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/launch_environment.h"
#include "lockstep/launch/launcher.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep::app {
namespace {

struct LaunchCommand : LauncherOptions {
  std::optional<double> timeout_seconds;
  double restart_delay_seconds = 1;
};

int run(LaunchCommand options) {
  if (options.command.empty())
    throw UsageError("launch: expected a command: lockstep launch --nproc-per-node 2 -- COMMAND");
  if (options.node_rank >= options.nnodes) {
    throw UsageError(fmt::format("--node-rank: {} is not in [0 - {}]", options.node_rank, options.nnodes - 1));
  }
  if (options.nproc_per_node > kMaxRanks / options.nnodes) {
    throw UsageError(fmt::format("launch: {} nodes of {} ranks, expected at most {} ranks in all", options.nnodes,
                                 options.nproc_per_node, kMaxRanks));
  }
  if (options.nnodes > 1 && options.master_port == 0)
    throw UsageError("--nnodes needs --master-addr and --master-port");
  if (options.command[0] == "lockstep") options.command[0] = own_program();
  if (const auto seconds = options.timeout_seconds) {
    options.timeout = read_timeout(*seconds);
  }
  options.restart_delay = std::chrono::milliseconds(static_cast<std::int64_t>(options.restart_delay_seconds * 1000));
  options.color_output = ::isatty(STDOUT_FILENO);
  options.color_errors = ::isatty(STDERR_FILENO);
  options.output = [](bool is_error, std::string_view line) {
    std::FILE* stream = is_error ? stderr : stdout;
    const bool written = std::fwrite(line.data(), 1, line.size(), stream) == line.size() && std::fflush(stream) == 0;
    // Goes on after other errors: a full disk may have room again. EIO: the terminal is gone.
    if (!written && (errno == EPIPE || errno == EIO)) {
      fail("standard {}: {}", is_error ? "error" : "output", std::generic_category().message(errno));
    }
  };
  const LaunchResult result = launch(options);
  // Ignores SIGPIPE, so that the exit status counts even if nobody reads the message below.
  std::signal(SIGPIPE, SIG_IGN);
  if (!result.message.empty()) notice(result.message);
  return result.status;
}

}  // namespace

Command add_launch(CLI::App& parent) {
  auto* app =
      parent.add_subcommand("launch", "Run a command as several ranks: lockstep launch --nproc-per-node 2 -- COMMAND");
  auto options = std::make_shared<LaunchCommand>();
  app->add_option("-n,--nproc-per-node,--nproc_per_node", options->nproc_per_node,
                  "Ranks on this host; auto: one per GPU, or a single rank if there is no GPU")
      ->check(CLI::Range(1, 4096))
      ->transform([](const std::string& n) { return n == "auto" ? std::to_string(find_devices().count) : n; })
      ->capture_default_str();
  app->add_option("--nnodes", options->nnodes, "Number of hosts; run `lockstep launch` on each")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app->add_option("--node-rank", options->node_rank, "Number of this host, from 0")
      ->check(CLI::Range(0, (1 << 16) - 1))
      ->capture_default_str();
  app->add_option("--master-addr", options->master_addr,
                  "Address of node 0 as the other hosts reach it; needed with several hosts")
      ->capture_default_str();
  app->add_option("--master-port", options->master_port,
                  "Port of node 0's launcher; required with several hosts [a free port]")
      ->check(CLI::Range(1, 65535));
  app->add_option("--max-restarts", options->max_restarts,
                  "Restart all ranks after a failure, at most N times; exit status 2 (invalid arguments) ends the job")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app->add_option("--restart-delay", options->restart_delay_seconds,
                  "Seconds before the first restart; each further one waits twice as long, up to a minute")
      ->check(number_in(0, 86'400))
      ->capture_default_str();
  app->add_option("--timeout", options->timeout_seconds,
                  "Seconds without a sign of life after which a rank counts as lost [LOCKSTEP_TIMEOUT, or 60]");
  app->add_option("COMMAND", options->command, "The program and its arguments, after --");
  app->allow_extras();
  return [options, app] {
    std::vector<std::string> others = app->remaining();
    std::erase(others, "--");  // remaining() has the separator, too
    if (!others.empty()) {
      throw UsageError(
          fmt::format("launch: unknown option {}; the command and its options come after --: "
                      "lockstep launch --nproc-per-node 2 -- COMMAND",
                      others.front()));
    }
    return run(*options);
  };
}

}  // namespace lockstep::app
