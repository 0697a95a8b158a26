// A job of failing_rank, under the launcher, and all that came of it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/launcher.h"

namespace lockstep::testing {

struct RankEnd {
  std::optional<int> status;  // none where the launcher had to end it
  std::vector<std::string> errors;
  // From the fault on.
  std::chrono::milliseconds took{0};
};

struct JobEnd {
  std::vector<RankEnd> ranks;
  LaunchResult result;
  bool fault_came = false;
  // Processes, files and shared memory that are still there.
  std::vector<std::string> left_behind;
  std::string output;  // all of it, to be shown with a failure
};

struct JobOptions {
  int ranks = 2;
  // TCP in place of shared memory.
  bool tcp = false;
  std::chrono::milliseconds timeout{2'000};
  // For the others to end by themselves, once one has.
  std::chrono::milliseconds grace{10'000};
  std::vector<std::string> arguments;  // of failing_rank
};

JobEnd run_job(const JobOptions& options);

}  // namespace lockstep::testing
