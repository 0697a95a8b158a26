// Slurm's lists of hosts and of tasks.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>

#include "lockstep/launch/launch_environment.h"
#include "tests/expect_error.h"
#include "tests/mutate.h"

namespace lockstep {
namespace {

TEST(FirstSlurmHost, OfAllKindsOfLists) {
  EXPECT_EQ(first_slurm_host("node1"), "node1");
  EXPECT_EQ(first_slurm_host("node1,node2"), "node1");
  EXPECT_EQ(first_slurm_host("node[003-007,9],b"), "node003");
  EXPECT_EQ(first_slurm_host("node[9,11]"), "node9");
  EXPECT_EQ(first_slurm_host("node[1-2]-ib,b"), "node1-ib");
  EXPECT_EQ(first_slurm_host("a,node[1-2]"), "a");
  EXPECT_EQ(first_slurm_host("rack[1-2]node[3-4]"), "rack1node3");
  EXPECT_EQ(first_slurm_host("rack[1-2,4]node[03,5]x[7],b[1]"), "rack1node03x7");
  EXPECT_ERROR(first_slurm_host("rack[1-2]node[3"), "expected a ] after the [");
  EXPECT_ERROR(first_slurm_host("node[1-2"), "\"node[1-2\": expected a ]");
  EXPECT_ERROR(first_slurm_host(""), "expected a host at its start");
  EXPECT_ERROR(first_slurm_host("[\ng"), R"("[\ng": expected a ])");
}

TEST(SlurmTasksOfNode, OfAllKindsOfLists) {
  EXPECT_EQ(slurm_tasks_of_node("4", 0), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2),1", 0), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2),1", 1), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2),1", 2), 1);
  EXPECT_ERROR(slurm_tasks_of_node("4(x2),1", 3), "has no node 3");
  EXPECT_ERROR(slurm_tasks_of_node("4(x", 0), "\"4(x\"");
  EXPECT_ERROR(slurm_tasks_of_node("", 0), "has no node 0");
  EXPECT_ERROR(slurm_tasks_of_node("4\n", 0), R"("4\n", expected an integer)");
}

constexpr std::array<std::string_view, 12> kPiecesOfSlurmLists{
    "[", "]", ",", "-", "(x", ")", "0", "1", "-1", "1(x2)", "99999999999999999999", "node"};

TEST(SlurmLists, DamagedOnesAreReadOrRefused) {
  int hosts = 0, tasks = 0;
  for (unsigned round = 0; round < 20'000; ++round) {
    Dice dice(round);
    const std::string list = mutated("gpu[07-08,12],cpu1", dice, {.pieces = kPiecesOfSlurmLists});
    try {
      const std::string host = first_slurm_host(list);
      EXPECT_FALSE(host.empty());
      EXPECT_LE(host.size(), list.size());
      EXPECT_EQ(host.find(','), host.npos) << list;
      ++hosts;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("list of hosts \"")) << error.what();
    }
    const std::string counts = mutated("4(x2),1,12(x30)", dice, {.pieces = kPiecesOfSlurmLists});
    try {
      const int node = static_cast<int>(dice.below(40));
      const int found = slurm_tasks_of_node(counts, node);
      EXPECT_NE(counts.find(std::to_string(found)), counts.npos) << counts;
      EXPECT_NO_THROW(slurm_tasks_of_node(counts, node / 2)) << counts << ": a node before it";
      ++tasks;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("SLURM_STEP_TASKS_PER_NODE")) << error.what();
    }
  }
  // Both happen often, or the mutations test nothing.
  for (const int read : {hosts, tasks}) {
    EXPECT_GT(read, 500);
    EXPECT_LT(read, 19'500);
  }
}

}  // namespace
}  // namespace lockstep
