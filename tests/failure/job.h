// Runs a job of failing_rank under the launcher and collects its output, files, and status.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/launcher.h"

namespace lockstep::testing {

struct RankEnd {
  std::optional<int> status;  // empty if the launcher had to end it
  std::vector<std::string> errors;
  // Time since the fault.
  std::chrono::milliseconds took{0};
};

struct JobEnd {
  std::vector<RankEnd> ranks;
  LaunchResult result;
  bool fault_came = false;
  // Processes, files, and shared memory that still exist.
  std::vector<std::string> left_behind;
  std::string output;  // all output, shown if a test fails
};

struct JobOptions {
  int ranks = 2;
  // Uses TCP instead of shared memory.
  bool tcp = false;
  std::chrono::milliseconds timeout{2'000};
  // Time for the others to end by themselves after the first has ended.
  std::chrono::milliseconds grace{10'000};
  std::vector<std::string> arguments;  // of failing_rank
};

JobEnd run_job(const JobOptions& options);

}  // namespace lockstep::testing
