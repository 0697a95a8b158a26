#include "lockstep/launch/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch_variables.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using LaunchEnvironmentTest = LaunchVariables;

TEST_F(LaunchEnvironmentTest, NothingWhereNobodySaysARank) {
  EXPECT_FALSE(read_launch_environment().has_value());
  set("SLURM_PROCID", "0");  // a batch script's shell has this variable, too
  EXPECT_FALSE(read_launch_environment().has_value());
}

TEST_F(LaunchEnvironmentTest, Torchrun) {
  set({{"RANK", "5"},
       {"WORLD_SIZE", "8"},
       {"LOCAL_RANK", "1"},
       {"LOCAL_WORLD_SIZE", "4"},
       {"MASTER_ADDR", "node0"},
       {"MASTER_PORT", "1234"},
       {"TORCHELASTIC_RESTART_COUNT", "2"}});
  LaunchEnvironment e = read_launch_environment().value();
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.world_size, 8);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world_size, 4);
  EXPECT_EQ(e.master_addr, "node0");
  EXPECT_EQ(e.master_port, 1234);
  EXPECT_EQ(e.store_port, std::nullopt);
  EXPECT_EQ(e.restart_count, 2);
  EXPECT_FALSE(e.launcher_has_store);
  EXPECT_FALSE(e.on_one_host());

  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  EXPECT_EQ(read_launch_environment()->store_port, 1235) << "the agent listens at MASTER_PORT";
  set("LOCKSTEP_PORT", "4321");
  EXPECT_EQ(read_launch_environment()->store_port, 4321);
}

TEST_F(LaunchEnvironmentTest, WhatALauncherSetsIsWhatARankReads) {
  set(environment_of_rank({.rank = 1,
                           .world_size = 4,
                           .local_rank = 1,
                           .local_world_size = 2,
                           .master_addr = "::1",
                           .master_port = 77,
                           .secret = "0123456789abcdef",
                           .restart_count = 3,
                           .max_restarts = 5}));
  const LaunchEnvironment e = read_launch_environment().value();
  EXPECT_EQ(e.rank, 1);
  EXPECT_EQ(e.world_size, 4);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world_size, 2);
  EXPECT_EQ(e.master_addr, "::1");
  EXPECT_EQ(e.master_port, 77);
  EXPECT_TRUE(e.launcher_has_store);
  EXPECT_EQ(e.restart_count, 3);
}

TEST_F(LaunchEnvironmentTest, OpenMpi) {
  set({{"OMPI_COMM_WORLD_RANK", "1"},
       {"OMPI_COMM_WORLD_SIZE", "2"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
       {"SLURM_PROCID", "0"},
       {"SLURM_STEP_NUM_TASKS", "1"}});
  const LaunchEnvironment e = read_launch_environment().value();
  EXPECT_EQ(e.rank, 1) << "mpirun's, although it runs in a step of Slurm";
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_TRUE(e.on_one_host());
  EXPECT_EQ(e.master_addr, "127.0.0.1");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "1");
  set("OMPI_COMM_WORLD_LOCAL_RANK", "0");
  EXPECT_ERROR(read_launch_environment(), "MASTER_ADDR is not set, expected the host of rank 0: the 2 ranks");
}

TEST_F(LaunchEnvironmentTest, Slurm) {
  set({{"SLURM_PROCID", "6"},
       {"SLURM_STEP_NUM_TASKS", "7"},
       {"SLURM_LOCALID", "0"},
       {"SLURM_NODEID", "2"},
       {"SLURM_STEP_TASKS_PER_NODE", "3(x2),1"},
       {"SLURM_STEP_NODELIST", "gpu[07-08],cpu1"},
       {"SLURM_JOB_ID", "15001"}});
  LaunchEnvironment e = read_launch_environment().value();
  EXPECT_EQ(e.rank, 6);
  EXPECT_EQ(e.world_size, 7);
  EXPECT_EQ(e.local_rank, 0);
  EXPECT_EQ(e.local_world_size, 1);
  EXPECT_EQ(e.master_addr, "gpu07");
  EXPECT_EQ(e.master_port, 15001);
  set("RANK", "0");
  set("WORLD_SIZE", "1");
  EXPECT_EQ(read_launch_environment()->rank, 0) << "torchrun's stand above";
}

TEST_F(LaunchEnvironmentTest, MpichAndIntelMpi) {
  set({{"PMI_RANK", "1"},
       {"PMI_SIZE", "2"},
       {"MPI_LOCALRANKID", "1"},
       {"MPI_LOCALNRANKS", "2"},
       // From the step that started one agent of mpiexec on each host.
       {"SLURM_PROCID", "0"},
       {"SLURM_STEP_NUM_TASKS", "4"}});
  const LaunchEnvironment e = read_launch_environment().value();
  EXPECT_EQ(e.rank, 1);
  EXPECT_EQ(e.world_size, 2);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.source, "PMI_SIZE");
  EXPECT_TRUE(e.on_one_host());
  set("MPI_LOCALNRANKS", "1");
  set("MPI_LOCALRANKID", "0");
  EXPECT_ERROR(read_launch_environment(), "MASTER_ADDR is not set, expected the host of rank 0: the 2 ranks");
  EXPECT_EQ(read_launched_rank()->rank, 1) << "MPI needs no address";
}

TEST_F(LaunchEnvironmentTest, NumbersOfSlurmsOwnPmiAreSlurms) {
  set({{"PMI_RANK", "5"},  // srun --mpi=pmi2
       {"PMI_SIZE", "6"},
       {"SLURM_PROCID", "5"},
       {"SLURM_STEP_NUM_TASKS", "6"},
       {"SLURM_LOCALID", "1"},
       {"SLURM_NODEID", "1"},
       {"SLURM_STEP_TASKS_PER_NODE", "4,2"},
       {"SLURM_STEP_NODELIST", "a[1-2]"},
       {"SLURM_JOB_ID", "15001"}});
  const LaunchEnvironment e = read_launch_environment().value();
  EXPECT_EQ(e.source, "SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world_size, 2);
  EXPECT_EQ(e.master_addr, "a1");
  EXPECT_EQ(e.master_port, 15001);
  set("SLURM_STEP_NUM_TASKS", nullptr);
  set({{"SLURM_NTASKS", "6"}, {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(read_launch_environment()->source, "SLURM_NTASKS") << "an old Slurm's";
  set({{"MPI_LOCALRANKID", "5"}, {"MPI_LOCALNRANKS", "6"}});
  EXPECT_EQ(read_launch_environment()->source, "PMI_SIZE") << "mpiexec's, called in a step of as many tasks";
}

TEST_F(LaunchEnvironmentTest, AnMpiOfOneRankHidesNoStepOfSeveral) {
  for (const std::string mpi : {"PMI_", "OMPI_COMM_WORLD_"}) {
    set({{mpi + "RANK", "0"}, {mpi + "SIZE", "1"}});  // from the shell in which srun was called
    EXPECT_EQ(read_launched_rank()->world_size, 1);
    set({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}});
    EXPECT_EQ(read_launched_rank()->rank, 3);
    EXPECT_EQ(read_launched_rank()->world_size, 4);
    set({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
    EXPECT_EQ(read_launched_rank()->world_size, 1);
    for (const char* name : {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) set(name, nullptr);
  }
}

TEST_F(LaunchEnvironmentTest, OnlyWhoIsToldSoIsAloneAmongSeveral) {
  set({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(read_launched_rank()->world_size, 2);
  EXPECT_FALSE(read_launched_rank()->is_told());
  set("WORLD_SIZE", "1");
  EXPECT_EQ(read_launched_rank()->world_size, 1);
  EXPECT_TRUE(read_launched_rank()->is_told());
  EXPECT_EQ(read_launch_environment()->rank, 0);
}

TEST_F(LaunchEnvironmentTest, APartOfWhatBelongsTogetherIsAnError) {
  set("PMI_SIZE", "2");
  EXPECT_ERROR(read_launched_rank(), "PMI_SIZE is set but PMI_RANK is not, expected both or neither");
  set("PMI_SIZE", nullptr);
  set("PMI_RANK", "1");
  EXPECT_ERROR(read_launched_rank(), "PMI_RANK is set but PMI_SIZE is not, expected both or neither");
  set("PMI_RANK", nullptr);
  set("OMPI_COMM_WORLD_SIZE", "2");
  EXPECT_ERROR(read_launched_rank(), "OMPI_COMM_WORLD_SIZE is set but OMPI_COMM_WORLD_RANK is not");
  set("OMPI_COMM_WORLD_SIZE", nullptr);
  set("SLURM_STEP_NUM_TASKS", "2");
  EXPECT_ERROR(read_launched_rank(), "SLURM_STEP_NUM_TASKS is set but SLURM_PROCID is not");
  set("SLURM_STEP_NUM_TASKS", nullptr);
  set("WORLD_SIZE", "2");
  EXPECT_ERROR(read_launched_rank(), "WORLD_SIZE is set but RANK is not");
  set("WORLD_SIZE", nullptr);
  set("PMIX_RANK", "0");
  EXPECT_ERROR(read_launch_environment(), "PMIX_RANK is set but nothing says how many ranks there are");
  EXPECT_FALSE(read_launched_rank()) << "MPI itself will say it";
}

TEST_F(LaunchEnvironmentTest, ATraceOfALauncherIsNotNothing) {
  EXPECT_FALSE(trace_of_launcher());
  set("SLURM_PROCID", "0");
  EXPECT_FALSE(trace_of_launcher()) << "a batch script's";
  set("SLURM_PROCID", nullptr);
  set("PALS_RANKID", "0");
  EXPECT_EQ(trace_of_launcher(), "PALS_RANKID");
  EXPECT_ERROR(read_launch_environment(), "PALS_RANKID is set but nothing says how many ranks there are");
  set("PALS_RANKID", nullptr);
  set("MASTER_ADDR", "a");
  EXPECT_ERROR(read_launch_environment(), "MASTER_ADDR is set but nothing says how many ranks there are");
}

TEST_F(LaunchEnvironmentTest, MpisThatContradictEachOtherAreNamed) {
  set({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  EXPECT_ERROR(read_launched_rank(),
               "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE say rank 0 of 4, PMI_RANK and PMI_SIZE "
               "rank 1 of 2");
  set("PMI_RANK", "0");
  set("PMI_SIZE", "1");
  EXPECT_EQ(read_launched_rank()->world_size, 4) << "a shell of srun's, in which mpirun was called";
  set("PMI_RANK", "1");
  set("PMI_SIZE", "2");
  set({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(read_launched_rank()->world_size, 4) << "PMI's are those of mpirun's daemon, started by srun --mpi=pmi2";
  set("SLURM_PROCID", "0");
  EXPECT_EQ(read_launched_rank()->world_size, 4) << "likewise, with Slurm's of the shell";
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) set(name, nullptr);
  set("RANK", "2");
  set("WORLD_SIZE", "3");
  EXPECT_EQ(read_launched_rank()->rank, 2);
}

TEST_F(LaunchEnvironmentTest, AShellOfSlurmsIsNoRank) {
  set("SLURM_NTASKS", "8");  // from salloc
  EXPECT_FALSE(read_launch_environment());
  set("SLURM_PROCID", "0");
  EXPECT_FALSE(read_launch_environment()) << "a batch script's";
  set("SLURM_STEP_ID", "4294967291");
  EXPECT_FALSE(read_launch_environment()) << "likewise";
  set("SLURM_STEP_ID", "4294967290");
  set("SLURM_STEP_NUM_TASKS", "1");
  EXPECT_EQ(read_launch_environment()->world_size, 1) << "an interactive step's";
  set("SLURM_STEP_NUM_TASKS", nullptr);
  set("SLURM_STEP_ID", "0");
  EXPECT_EQ(read_launched_rank()->world_size, 8) << "srun's";
}

TEST_F(LaunchEnvironmentTest, GivenNumbersStandAboveTheEnvironment) {
  EXPECT_EQ(read_launch_environment(1, 2)->rank, 1);
  EXPECT_EQ(read_launch_environment(1, 2)->master_addr, "127.0.0.1");
  set({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}});
  EXPECT_EQ(read_launch_environment(1, 2)->local_rank, 1);
  const LaunchEnvironment e = read_launch_environment(0, 3).value();
  EXPECT_EQ(e.rank, 0);
  EXPECT_EQ(e.world_size, 3);
  EXPECT_EQ(e.local_rank, std::nullopt);
  EXPECT_EQ(e.master_addr, "a");
  EXPECT_ERROR(read_launch_environment(3, 3), "rank 3 of world size 3");
  EXPECT_ERROR(read_launch_environment(-1, 3), "rank -1 of world size 3");
  EXPECT_ERROR(read_launch_environment(0, -1), "rank 0 of world size -1");
  EXPECT_ERROR(read_launch_environment(0, 0), "rank 0 of world size 0");
}

TEST_F(LaunchEnvironmentTest, NonsenseIsNamed) {
  set("RANK", "1");
  EXPECT_ERROR(read_launch_environment(), "RANK is set but WORLD_SIZE is not");
  set("WORLD_SIZE", "two");
  EXPECT_ERROR(read_launch_environment(), "WORLD_SIZE is \"two\", expected an integer from 1 to");
  set("WORLD_SIZE", "1");
  EXPECT_ERROR(read_launch_environment(), "RANK is \"1\", expected an integer from 0 to 0");
  set("WORLD_SIZE", "2");
  set("LOCAL_WORLD_SIZE", "3");
  EXPECT_ERROR(read_launch_environment(), "LOCAL_WORLD_SIZE is \"3\", expected an integer from 1 to 2");
  set("LOCAL_WORLD_SIZE", "1");
  set("LOCAL_RANK", "1");
  EXPECT_ERROR(read_launch_environment(), "LOCAL_RANK is \"1\", expected an integer from 0 to 0");
  set("LOCAL_RANK", "0");
  set("MASTER_ADDR", "");
  EXPECT_ERROR(read_launch_environment(), "MASTER_ADDR is empty");
  set("MASTER_ADDR", "a");
  set("MASTER_PORT", "0");
  EXPECT_ERROR(read_launch_environment(), "MASTER_PORT is \"0\", expected an integer from 1 to 65535");
  set("MASTER_PORT", "65536");
  EXPECT_ERROR(read_launch_environment(), "MASTER_PORT is \"65536\"");
  set("MASTER_PORT", "65535");
  set("TORCHELASTIC_USE_AGENT_STORE", "1");
  EXPECT_EQ(read_launch_environment()->store_port, 65534);
  set("LOCKSTEP_LAUNCHER_STORE", "maybe");
  EXPECT_ERROR(read_launch_environment(), "LOCKSTEP_LAUNCHER_STORE is \"maybe\", expected 1 or 0");
  set("LOCKSTEP_LAUNCHER_STORE", "0");
  set("LOCKSTEP_PORT", "x");
  EXPECT_ERROR(read_launch_environment(), "LOCKSTEP_PORT is \"x\"");
}

TEST_F(LaunchEnvironmentTest, Timeout) {
  using namespace std::chrono_literals;
  EXPECT_EQ(default_timeout(), 60s);
  set("LOCKSTEP_TIMEOUT", "2.5");
  EXPECT_EQ(default_timeout(), 2500ms);
  EXPECT_EQ(default_progress_timeout(2500ms), 75s);
  set("LOCKSTEP_PROGRESS_TIMEOUT", "3600");
  EXPECT_EQ(default_progress_timeout(2500ms), 3600s);
  set("LOCKSTEP_PROGRESS_TIMEOUT", "long");
  EXPECT_ERROR(default_progress_timeout(2500ms), "LOCKSTEP_PROGRESS_TIMEOUT is \"long\", expected seconds");
  for (const char* wrong : {"", "0", "-1", "nan", "inf", "1e9", "2s"}) {
    set("LOCKSTEP_TIMEOUT", wrong);
    EXPECT_ERROR(default_timeout(), fmt::format("LOCKSTEP_TIMEOUT is \"{}\", expected seconds", wrong));
  }
}

}  // namespace
}  // namespace lockstep
