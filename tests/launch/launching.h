// Launches shell scripts for tests.
#pragma once

#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/launch/launcher.h"
#include "tests/temporary_folder.h"

namespace lockstep {

using namespace std::chrono_literals;

// The result and the output of a launched shell script.
struct Outcome {
  LaunchResult result;
  std::vector<std::string> out, err;
};
inline Outcome launch_script(const std::string& script, LauncherOptions options = {}) {
  Outcome outcome;
  options.command = {"/bin/sh", "-c", script};
  options.output = [&](bool is_error, std::string_view line) {
    (is_error ? outcome.err : outcome.out).emplace_back(line);
  };
  outcome.result = launch(options);
  return outcome;
}

inline std::string read_line(const TemporaryFolder& folder, std::string_view name) {
  for (int i = 0; i < 2000; ++i) {
    const std::string text = folder.read(name);
    if (text.ends_with("\n")) return text.substr(0, text.size() - 1);
    std::this_thread::sleep_for(10ms);
  }
  return "nothing";
}

// Starts a launcher in its own process, which exits with the launch's status.
inline pid_t start_launcher(const std::string& script, LauncherOptions options, const TemporaryFolder& folder) {
  const pid_t launcher = ::fork();
  if (launcher != 0) return launcher;
  for (int number : {SIGINT, SIGTERM}) ::signal(number, SIG_DFL);  // a shell's & makes its jobs ignore SIGINT
  options.command = {"/bin/sh", "-c", script};
  std::ofstream log(folder / "log");
  options.output = [&](bool, std::string_view line) { log << line << std::flush; };
  int status = 99;
  try {
    const LaunchResult result = launch(options);
    status = result.status;
    log << result.message << std::endl;
  } catch (const std::exception& error) {
    log << error.what() << std::endl;
  }
  ::_exit(status);
}

inline int exit_status(pid_t process) {
  int status = 0;
  for (int i = 0; i < 3000; ++i) {
    if (::waitpid(process, &status, WNOHANG) == process) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    std::this_thread::sleep_for(10ms);
  }
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
  return -1;
}

// A script that leaves its number in a file.
inline std::string leave_number(const TemporaryFolder& folder) {
  return fmt::format("echo $$ > {0}/new$RANK; mv {0}/new$RANK {0}/$RANK; ", folder.path().string());
}

}  // namespace lockstep
