// One training job on several layouts of devices and ranks, whose hashes must agree.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

struct JobLayout {
  int ranks = 1, devices = 1;  // devices: of each rank
};
inline void PrintTo(JobLayout layout, std::ostream* os) { *os << layout.ranks << "x" << layout.devices; }

// The result of `run` in all ranks, which are threads, or the first error's message. Without a group: the only rank.
using RunRank = std::function<std::string(int devices, const std::shared_ptr<ProcessGroup>& group)>;
inline std::string run_layout(JobLayout layout, const RunRank& run) {
  std::vector<std::string> results(static_cast<std::size_t>(layout.ranks));
  const auto run_rank = [&](std::size_t rank, const std::shared_ptr<ProcessGroup>& group) {
    try {
      results[rank] = run(layout.devices, group);
    } catch (const std::exception& error) {
      results[rank] = error.what();
      if (group) group->abort(error.what());
    }
  };
  if (layout.ranks == 1) {
    run_rank(0, nullptr);
    return results[0];
  }
  auto groups = make_local_groups(layout.ranks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) threads.emplace_back([&, r] { run_rank(r, groups[r]); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, results[0]);
  return results[0];
}

}  // namespace lockstep
