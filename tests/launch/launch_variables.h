// The environment of a process that a launcher may have started.
#pragma once

#include <gtest/gtest.h>

#include <deque>

#include "lockstep/launch/launch_environment.h"
#include "tests/environment_variable.h"

namespace lockstep {

// Clears the variables with which the tests were started.
class LaunchVariables : public ::testing::Test {
 protected:
  LaunchVariables() {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "MPI_LOCALRANKID",
                             "MPI_LOCALNRANKS",
                             "PMIX_RANK",
                             "MV2_COMM_WORLD_RANK",
                             "JSM_NAMESPACE_RANK",
                             "PALS_RANKID",
                             "ALPS_APP_PE",
                             "SLURM_NTASKS",
                             "SLURM_STEP_ID",
                             "SLURM_PROCID",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_LOCALID",
                             "SLURM_NODEID",
                             "SLURM_STEP_TASKS_PER_NODE",
                             "SLURM_STEP_NODELIST",
                             "SLURM_JOB_ID",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "LOCKSTEP_PORT",
                             "LOCKSTEP_LAUNCHER_STORE",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "LOCKSTEP_RESTART_COUNT",
                             "TORCHELASTIC_RESTART_COUNT",
                             "LOCKSTEP_TIMEOUT",
                             "LOCKSTEP_PROGRESS_TIMEOUT",
                             "LOCKSTEP_SECRET",
                             "LOCKSTEP_SECRET_FILE"}) {
      set(name, nullptr);
    }
  }
  void set(const char* name, const char* value) { variables_.emplace_back(name, value); }
  void set(const EnvironmentVariables& variables) {
    for (const auto& [name, value] : variables) set(name.c_str(), value.c_str());
  }
  // Restored in reverse order, so that the first state comes back last.
  ~LaunchVariables() override {
    while (!variables_.empty()) variables_.pop_back();
  }

 private:
  std::deque<EnvironmentVariable> variables_;
};

}  // namespace lockstep
