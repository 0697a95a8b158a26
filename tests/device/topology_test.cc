#include "lockstep/device/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <set>

#include "lockstep/device/machine.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Split = std::vector<std::vector<int>>;

const CpuNodes kTwoNodes = {{0, 1, 2, 3}, {4, 5, 6, 7}};

TEST(SplitNodes, DevicesAreAlikeAndStayInANode) {
  EXPECT_EQ(split_nodes({{0, 1}}, 2), (Split{{0}, {1}}));
  EXPECT_EQ(split_nodes(kTwoNodes, 1), (Split{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(split_nodes(kTwoNodes, 2), (Split{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(split_nodes(kTwoNodes, 4), (Split{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
}

TEST(SplitNodes, LeavesSparesFree) {
  EXPECT_EQ(split_nodes({{0, 1, 2, 3, 4}}, 2), (Split{{0, 1}, {2, 3}}));
  EXPECT_EQ(split_nodes({{5, 3, 1}}, 2), (Split{{5}, {3}}));
}

TEST(SplitNodes, TakesWholeNodesForADeviceOfSeveral) {
  EXPECT_EQ(split_nodes({{0, 1}, {2, 3}, {4, 5}, {6, 7}}, 2), (Split{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  // Small nodes are filled up last.
  EXPECT_EQ(split_nodes({{0}, {1, 2, 3}, {4, 5, 6}}, 2, 3), (Split{{1, 2, 3}, {4, 5, 6}}));
}

TEST(SplitNodes, CrossesNodesOnlyWhenItMust) {
  // 5 + 5 CPUs for three devices of 3: two fit into a node each, the third takes what is left of both.
  EXPECT_EQ(split_nodes({{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}}, 3), (Split{{0, 1, 2}, {3, 4, 8}, {5, 6, 7}}));
}

TEST(SplitNodes, SpreadsFewCoresOverTheNodes) {
  EXPECT_EQ(split_nodes(kTwoNodes, 2, 2), (Split{{0, 1}, {4, 5}}));
  EXPECT_EQ(split_nodes(kTwoNodes, 3, 2), (Split{{0, 1}, {2, 3}, {4, 5}})) << "neighbors share a node";
}

TEST(SplitNodes, MoreDevicesThanCpusTakeTurns) {
  EXPECT_EQ(split_nodes({{0, 1}}, 5), (Split{{0}, {1}, {0}, {1}, {0}}));
  EXPECT_EQ(split_nodes({{0, 1, 2}}, 2, 2), (Split{{0, 1}, {2, 0}}));
  EXPECT_EQ(split_nodes({{0, 1}}, 2, 2), (Split{{0, 1}, {0, 1}}));
}

TEST(SplitNodes, EveryDeviceGetsItsShareOfDistinctCpus) {
  for (const CpuNodes& nodes : {CpuNodes{{0, 1, 2}, {3, 4, 5, 6, 7, 8, 9}, {10}}, kTwoNodes, CpuNodes{{0}}}) {
    std::size_t total = 0;
    for (const auto& node : nodes) total += node.size();
    for (std::size_t devices = 1; devices <= total; ++devices) {
      std::multiset<int> used;
      for (const auto& cpus : split_nodes(nodes, static_cast<int>(devices))) {
        EXPECT_EQ(cpus.size(), total / devices);
        used.insert(cpus.begin(), cpus.end());
      }
      EXPECT_EQ(used.size(), total / devices * devices);
      EXPECT_EQ(std::set<int>(used.begin(), used.end()).size(), used.size());
    }
  }
}

TEST(SplitNodes, RefusesWhatMakesNoSense) {
  EXPECT_ERROR(split_nodes(kTwoNodes, 0), "0 devices requested, expected at least 1");
  EXPECT_ERROR(split_nodes(kTwoNodes, -1), "-1 devices requested");
  EXPECT_ERROR(split_nodes(kTwoNodes, 1, 9), "9 cores per device requested, expected at most 8");
  EXPECT_ERROR(split_nodes(kTwoNodes, 1, -1), "-1 cores per device requested");
  EXPECT_ERROR(split_nodes({}, 1), "there are no CPUs");
  EXPECT_ERROR(split_nodes({{}}, 1), "there are no CPUs");
}

// Two nodes of two cores of two hardware threads; the system numbers one thread of each core first. CPU 8 is off.
TEST(SystemCpus, AreReadFromTheKernelsFiles) {
  TemporaryFolder system;
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::string folder = fmt::format("cpu/cpu{}/", cpu);
    const int core = cpu % 4, node = core / 2;
    system.write(folder + fmt::format("node{}/cpulist", node), "");
    system.write(folder + "topology/core_siblings_list", "0-7\n");
    system.write(folder + "topology/thread_siblings_list", fmt::format("{},{}\n", core, core + 4));
    system.write(folder + "cache/index3/shared_cpu_list", node == 0 ? "0-1,4-5\n" : "2-3,6-7\n");
  }
  system.write("cpu/cpu8/online", "0\n");
  system.write("cpu/cpufreq/boost", "1\n");
  EXPECT_EQ(read_system_cpus(system.path()), (CpuNodes{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(read_system_cpus(system.path() / "missing"), CpuNodes{});
}

TEST(SystemCpus, HaveAModel) {
  EXPECT_EQ(model_in_cpuinfo("processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9B14\nstepping\t: 1\n"),
            "AMD EPYC 9B14");
  EXPECT_EQ(model_in_cpuinfo("processor\t: 0\nmodel name"), "");
}

TEST(ShareOfRank, TheMaskTheQuotaAndTheRanks) {
  EXPECT_THAT(share_of_rank(kTwoNodes, {}, {}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(share_of_rank(kTwoNodes, 3, {}), ElementsAre(0, 1, 2));
  EXPECT_THAT(share_of_rank(kTwoNodes, 100, {}).size(), 8u);
  EXPECT_THAT(share_of_rank(kTwoNodes, {}, {.rank = 0, .size = 2}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(share_of_rank(kTwoNodes, {}, {.rank = 1, .size = 2}), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(share_of_rank(kTwoNodes, 4, {.rank = 1, .size = 2}), ElementsAre(4, 5));
  EXPECT_THAT(share_of_rank(kTwoNodes, 1, {.rank = 1, .size = 2}), ElementsAre(4)) << "a rank needs a CPU";
  EXPECT_THAT(share_of_rank({{0, 1}}, {}, {.rank = 2, .size = 3}), ElementsAre(0)) << "ranks share CPUs";
}

TEST(ReadLocalRank, FromTheEnvironment) {
  EnvironmentVariable no_rank("LOCAL_RANK", nullptr);
  EnvironmentVariable no_size("LOCAL_WORLD_SIZE", nullptr);
  EXPECT_EQ(read_local_rank().size, 1);
  EXPECT_EQ(read_local_rank().rank, 0);
  EnvironmentVariable size("LOCAL_WORLD_SIZE", "4");
  EXPECT_ERROR(read_local_rank(), "LOCAL_WORLD_SIZE is set but LOCAL_RANK is not");
  EnvironmentVariable rank("LOCAL_RANK", "3");
  EXPECT_EQ(read_local_rank().size, 4);
  EXPECT_EQ(read_local_rank().rank, 3);
}

TEST(ReadLocalRank, NonsenseIsNamed) {
  EnvironmentVariable rank("LOCAL_RANK", "4");
  {
    EnvironmentVariable size("LOCAL_WORLD_SIZE", "4");
    EXPECT_ERROR(read_local_rank(), "LOCAL_RANK is \"4\", expected an integer from 0 to 3");
  }
  {
    EnvironmentVariable size("LOCAL_WORLD_SIZE", "four");
    EXPECT_ERROR(read_local_rank(), "LOCAL_WORLD_SIZE is \"four\"");
  }
  {
    EnvironmentVariable size("LOCAL_WORLD_SIZE", "0");
    EXPECT_ERROR(read_local_rank(), "LOCAL_WORLD_SIZE is \"0\", expected an integer from 1");
  }
  EnvironmentVariable size("LOCAL_WORLD_SIZE", nullptr);
  EXPECT_ERROR(available_cpus(), "LOCAL_RANK is set but LOCAL_WORLD_SIZE is not");
}

TEST(BindingNotice, TellsWhenOpenMpTookCpus) {
  EXPECT_THAT(binding_notice("OMP_PROC_BIND", "true", 1, 8),
              testing::StartsWith("OMP_PROC_BIND=true binds the main thread, and with it all devices, to 1 of 8"));
  EXPECT_THAT(binding_notice("OMP_PROC_BIND", "Close,spread", 2, 8), testing::HasSubstr("2 of 8"));
  EXPECT_THAT(binding_notice("OMP_PROC_BIND", "FALSE", 1, 8), IsEmpty());
  EXPECT_THAT(binding_notice("OMP_PROC_BIND", "", 1, 8), IsEmpty());
  EXPECT_THAT(binding_notice("OMP_PROC_BIND", "true", 8, 8), IsEmpty());
}

// The tests below ask the machine that they run on.

class AffinityMask {
 public:
  AffinityMask() { sched_getaffinity(0, sizeof old_, &old_); }
  ~AffinityMask() { sched_setaffinity(0, sizeof old_, &old_); }
  int first() const {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &old_)) return cpu;
    }
    return -1;
  }
  void set_to(int cpu) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(cpu, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
  }

 private:
  cpu_set_t old_;
};

TEST(ThisMachine, AvailableCpusKeepToTheMask) {
  EnvironmentVariable no_rank("LOCAL_RANK", nullptr);
  EnvironmentVariable no_size("LOCAL_WORLD_SIZE", nullptr);
  AffinityMask mask;
  EXPECT_THAT(available_cpus(), testing::Not(IsEmpty()));
  mask.set_to(mask.first());
  EXPECT_THAT(available_cpus(), ElementsAre(mask.first()));
  EXPECT_FALSE(limited_by_quota()) << "one CPU is within any quota";
  EnvironmentVariable rank("LOCAL_RANK", "1");
  EnvironmentVariable size("LOCAL_WORLD_SIZE", "2");
  EXPECT_THAT(available_cpus(), ElementsAre(mask.first())) << "two ranks share the only CPU";
}

TEST(ThisMachine, HasAModelAndMemory) {
  EXPECT_THAT(cpu_model_name(), testing::Not(IsEmpty()));
  EXPECT_GT(total_memory(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace lockstep
