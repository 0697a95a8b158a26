// The ports of a Slurm job's steps.
#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "lockstep/launch/launch_environment.h"
#include "tests/environment_variable.h"

namespace lockstep {
namespace {

// Null: the variable is not set.
int port_of_step(const char* job, const char* step) {
  std::deque<EnvironmentVariable> variables;
  for (const char* name : {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
                           "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_PORT"}) {
    variables.emplace_back(name, nullptr);
  }
  variables.emplace_back("SLURM_PROCID", "0");
  variables.emplace_back("SLURM_STEP_NUM_TASKS", "2");
  variables.emplace_back("SLURM_STEP_TASKS_PER_NODE", "2");
  variables.emplace_back("SLURM_JOB_ID", job);
  variables.emplace_back("SLURM_STEP_ID", step);
  return read_launch_environment().value().master_port;
}

TEST(SlurmSteps, OfOneJobHaveDifferentPorts) {
  std::set<int> ports;
  for (int step = 0; step < 300; ++step) ports.insert(port_of_step("29990", std::to_string(step).c_str()));
  EXPECT_EQ(ports.size(), 300u);
  EXPECT_GE(*ports.begin(), 15000);
  EXPECT_LT(*ports.rbegin(), 30000);
}

TEST(SlurmSteps, TheFirstHasThePortOfTheJob) {
  EXPECT_EQ(port_of_step("15001", "0"), 15001);
  EXPECT_EQ(port_of_step("15001", nullptr), 15001);
  EXPECT_EQ(port_of_step("15001", "4294967291"), 15001) << "a batch script is no step";
  EXPECT_EQ(port_of_step("15001", "1"), 16010);
}

}  // namespace
}  // namespace lockstep
