#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/device/machine.h"
#include "tests/environment_variable.h"

namespace lockstep {
namespace {

using Split = std::vector<std::vector<int>>;

TEST(GroupByNode, ReadsNodesAndCoreOrder) {
  // Two nodes of two cores of two hardware threads; the system numbers one thread of each core first.
  EnvironmentVariable synthetic("HWLOC_SYNTHETIC", "node:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
  EXPECT_EQ(group_by_node({0, 1, 2, 3, 4, 5, 6, 7}, machine_cpus()), (CpuNodes{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(group_by_node({7, 1, 4}, machine_cpus()), (CpuNodes{{4, 1}, {7}}));
  EXPECT_EQ(group_by_node({100, 0}, machine_cpus()), (CpuNodes{{0}, {100}})) << "a CPU that hwloc does not know";
  EXPECT_EQ(split_nodes(group_by_node({0, 1, 2, 3, 4, 5, 6, 7}, machine_cpus()), 4),
            (Split{{0, 4}, {1, 5}, {2, 6}, {3, 7}}))
      << "devices do not share a core";
}

// What a build without hwloc computes with.
TEST(GroupByNode, IsWhatTheKernelsFilesSay) {
  const CpuNodes all = read_system_cpus("/sys/devices/system");
  if (all.empty()) GTEST_SKIP() << "/sys describes no CPUs";
  const std::vector<int> cpus = available_cpus();
  CpuNodes expected;
  for (const std::vector<int>& node : all) {
    std::vector<int> mine;
    std::ranges::copy_if(node, std::back_inserter(mine), [&](int cpu) { return std::ranges::count(cpus, cpu) > 0; });
    if (!mine.empty()) expected.push_back(mine);
  }
  EXPECT_EQ(group_by_node(cpus, machine_cpus()), expected);
}

}  // namespace
}  // namespace lockstep
