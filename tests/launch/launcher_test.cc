#include "lockstep/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>

#include "launching.h"
#include "lockstep/launch/launch_environment.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/free_port.h"
#include "tests/processes.h"
#include "tests/rank_scripts.h"
#include "tests/wait_until.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(Launcher, MarksEveryLineWithItsRank) {
  const Outcome o = launch_script("echo out $RANK; printf 'a '; printf 'b'; printf 'c\\nno end'; echo err $RANK >&2",
                                  {.nproc_per_node = 3});
  EXPECT_EQ(o.result.status, 0);
  EXPECT_EQ(o.result.message, "");
  EXPECT_THAT(o.out, UnorderedElementsAre("[rank 0] out 0\n", "[rank 1] out 1\n", "[rank 2] out 2\n", "[rank 0] a bc\n",
                                          "[rank 1] a bc\n", "[rank 2] a bc\n", "[rank 0] no end\n",
                                          "[rank 1] no end\n", "[rank 2] no end\n"));
  EXPECT_THAT(o.err, UnorderedElementsAre("[rank 0] err 0\n", "[rank 1] err 1\n", "[rank 2] err 2\n"));
}

TEST(Launcher, AllOfALargeOutputArrives) {
  const Outcome o = launch_script("seq 1 100000", {.nproc_per_node = 2});
  ASSERT_EQ(o.out.size(), 200'000u);
  EXPECT_EQ(std::ranges::count(o.out, "[rank 1] 100000\n"), 1);
}

TEST(Launcher, SetsTorchrunsEnvironment) {
  const Outcome o = launch_script(
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR "
      "$TORCHELASTIC_RESTART_COUNT "
      "$LOCKSTEP_RESTART_COUNT $LOCKSTEP_TIMEOUT",
      {.nproc_per_node = 2, .timeout = 1500ms});
  EXPECT_THAT(o.out,
              UnorderedElementsAre("[rank 0] 0 2 0 2 0 127.0.0.1 0 0 1.5\n", "[rank 1] 1 2 1 2 0 127.0.0.1 0 0 1.5\n"));
}

TEST(Launcher, HoldsAStoreThatNeedsTheSecretItMade) {
  const TemporaryFolder folder;
  auto job = std::async(std::launch::async, [&] {
    return launch_script(
        fmt::format("echo $MASTER_PORT $LOCKSTEP_SECRET > {0}/to-do; mv {0}/to-do {0}/where; "
                    "while [ ! -e {0}/end ]; do sleep 0.02; done",
                    folder.path().string()));
  });
  const std::string where = read_line(folder, "where");
  const int port = std::stoi(where.substr(0, where.find(' ')));
  const std::string secret = where.substr(where.find(' ') + 1);
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ(TcpStore({.port = port, .secret = secret}).add("count", 1), 1);
  EXPECT_ERROR(TcpStore({.port = port}), "does not accept a client without a secret");
  folder.write("end", "");
  EXPECT_EQ(job.get().result.status, 0);
  EXPECT_ERROR(TcpStore({.port = port, .secret = secret, .connect_timeout = 50ms}), "cannot reach");
}

TEST(Launcher, TheSecretOfItsOwnEnvironmentIsHandedOn) {
  const EnvironmentVariable secret("LOCKSTEP_SECRET", "the secret of this job");
  EXPECT_THAT(launch_script("echo $LOCKSTEP_SECRET").out, ElementsAre("[rank 0] the secret of this job\n"));
}

TEST(Launcher, ExitsWithTheStatusOfTheRankThatFails) {
  const Outcome o = launch_script("[ $RANK = 1 ] && exit 7; sleep 0.1", {.nproc_per_node = 3});
  EXPECT_EQ(o.result.status, 7);
  EXPECT_EQ(o.result.message, "rank 1 exited with status 7");
  const Outcome killed = launch_script("[ $RANK = 1 ] && kill -KILL $$; sleep 0.1", {.nproc_per_node = 2});
  EXPECT_EQ(killed.result.status, 128 + SIGKILL);
  EXPECT_EQ(killed.result.message, "rank 1 was killed by signal 9 (Killed)");
}

TEST(Launcher, OthersHaveTimeToSayWhyTheyFail) {
  const TemporaryFolder folder;
  const Outcome o =
      launch_script(rank_one_ends_first(folder.path().string(), "kill -KILL $$") + "echo rank 1 lost >&2; exit 1",
                    {.nproc_per_node = 3, .grace = 20s});
  EXPECT_EQ(o.result.status, 128 + SIGKILL);
  EXPECT_THAT(o.err, UnorderedElementsAre("[rank 0] rank 1 lost\n", "[rank 2] rank 1 lost\n"));
}

TEST(Launcher, WhoDoesNotEndIsEnded) {
  // One of them obeys SIGTERM, the other ignores it. Rank 0 waits until both are ready.
  const TemporaryFolder folder;
  const Outcome o = launch_script(
      fmt::format("cd {}; case $RANK in 0) while [ ! -e 1 ] || [ ! -e 2 ]; do sleep 0.02; done; exit 3;; "
                  "1) trap 'echo asked; exit' TERM;; 2) trap '' TERM;; esac; : > $RANK; while :; do sleep 0.05; done",
                  folder.path().string()),
      {.nproc_per_node = 3, .grace = 2s});
  EXPECT_EQ(o.result.status, 3);
  EXPECT_EQ(o.result.message, "rank 0 exited with status 3");
  EXPECT_THAT(o.out, ElementsAre("[rank 1] asked\n"));
}

TEST(Launcher, WhatARankHasStartedEndsWithIt) {
  const Outcome o = launch_script("sleep 1000 & echo $!", {.nproc_per_node = 2});
  EXPECT_EQ(o.result.status, 0);
  ASSERT_EQ(o.out.size(), 2u);
  for (const std::string& line : o.out) EXPECT_TRUE(ends(std::stoi(line.substr(9)))) << line;
}

TEST(Launcher, StartsAllRanksAgain) {
  const TemporaryFolder folder;
  const Outcome o = launch_script(
      "echo $LOCKSTEP_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT; [ $LOCKSTEP_RESTART_COUNT != 2 ] || exit 0; " +
          rank_one_ends_first(folder.path().string(), "exit 4") + "exit 1",
      {.nproc_per_node = 2, .max_restarts = 5, .restart_delay = 0ms, .grace = 20s});
  EXPECT_EQ(o.result.status, 0);
  EXPECT_THAT(o.out, UnorderedElementsAre("[rank 0] 0 0\n", "[rank 1] 0 0\n", "[rank 0] 1 1\n", "[rank 1] 1 1\n",
                                          "[rank 0] 2 2\n", "[rank 1] 2 2\n"));
  EXPECT_THAT(o.err, ElementsAre("lockstep: rank 1 exited with status 4; restart 1 of 5\n",
                                 "lockstep: rank 1 exited with status 4; restart 2 of 5\n"));
}

TEST(Launcher, GivesUpAfterTheLastRestart) {
  const Outcome o = launch_script("exit $((LOCKSTEP_RESTART_COUNT + 3))", {.max_restarts = 2, .restart_delay = 0ms});
  EXPECT_EQ(o.result.status, 5);
  EXPECT_EQ(o.result.message, "rank 0 exited with status 5");
  EXPECT_EQ(o.err.size(), 2u);
}

TEST(Launcher, UnusableArgumentsAreNotTriedAgain) {
  const Outcome o = launch_script("echo $RANK; exit 2", {.max_restarts = 2});
  EXPECT_EQ(o.result.status, 2);
  EXPECT_THAT(o.out, ElementsAre("[rank 0] 0\n"));
  EXPECT_TRUE(o.err.empty());
}

TEST(Launcher, PausesBeforeRestartsGrow) {
  const Outcome o = launch_script("exit 1", {.max_restarts = 3, .restart_delay = 1ms, .longest_restart_delay = 2ms});
  EXPECT_THAT(o.err, ElementsAre("lockstep: rank 0 exited with status 1; restart 1 of 3 in 0.001 s\n",
                                 "lockstep: rank 0 exited with status 1; restart 2 of 3 in 0.002 s\n",
                                 "lockstep: rank 0 exited with status 1; restart 3 of 3 in 0.002 s\n"));
}

TEST(Launcher, AHealthyStartBeginsTheCountAnew) {
  const Outcome o =
      launch_script("[ $LOCKSTEP_RESTART_COUNT = 3 ]", {.max_restarts = 1, .restart_delay = 1ms, .healthy_after = 0ms});
  EXPECT_EQ(o.result.status, 0);
  EXPECT_THAT(o.err, ElementsAre("lockstep: rank 0 exited with status 1; restart 1 of 1 in 0.001 s\n",
                                 "lockstep: rank 0 exited with status 1; restart 1 of 1 in 0.001 s\n",
                                 "lockstep: rank 0 exited with status 1; restart 1 of 1 in 0.001 s\n"));
}

TEST(Launcher, AFailureThatComesBackAtTheSameStepIsNotTriedAThirdTime) {
  const Outcome same = launch_script("echo start; echo lost at step 17 >&2; exit 3",
                                     {.nproc_per_node = 2, .max_restarts = 9, .restart_delay = 0ms});
  EXPECT_EQ(same.result.status, 3);
  EXPECT_EQ(same.out.size(), 4u);
  EXPECT_THAT(same.result.message, ::testing::EndsWith("; the same as before the restart: lost at step 17"));
  const Outcome other = launch_script("echo start; echo lost at step $LOCKSTEP_RESTART_COUNT >&2; exit 3",
                                      {.max_restarts = 3, .restart_delay = 0ms});
  EXPECT_EQ(other.out.size(), 4u);
  const Outcome no_step = launch_script("echo start; echo lost >&2; exit 3", {.max_restarts = 3, .restart_delay = 0ms});
  EXPECT_EQ(no_step.out.size(), 4u);
  // What the rank said last has nothing to do with that.
  const Outcome killed =
      launch_script("echo start; echo resumed at step 4 >&2; kill -KILL $$", {.max_restarts = 3, .restart_delay = 0ms});
  EXPECT_EQ(killed.out.size(), 4u);
}

TEST(Launcher, ASignalEndsThePauseBeforeARestart) {
  const TemporaryFolder folder;
  const pid_t launcher = start_launcher("exit 1", {.max_restarts = 1, .restart_delay = 3'600'000ms}, folder);
  ASSERT_TRUE(wait_until([&] { return folder.read("log").find("restart 1 of 1 in 3600 s") != std::string::npos; }));
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(exit_status(launcher), 128 + SIGTERM);
  EXPECT_THAT(folder.read("log"), HasSubstr("rank 0 exited with status 1; interrupted before the restart\n"));
}

// The guard kills the children of ranks if the launcher cannot. Without the guard, the launcher still works.
TEST(Launcher, TheLossOfTheGuardIsNotItsEnd) {
  const Outcome o = launch_script(
      "[ $RANK = 1 ] || exit 0; for child in $(cat /proc/$PPID/task/*/children); do "
      "[ \"$(cat /proc/$child/comm)\" = sh ] || { kill -KILL $child && echo killed; }; done",
      {.nproc_per_node = 2});
  EXPECT_EQ(o.result.status, 0) << o.result.message;
  EXPECT_THAT(o.out, ElementsAre("[rank 1] killed\n"));
}

TEST(Launcher, WhatCannotWorkIsSaid) {
  const auto silent = [](bool, std::string_view) {};
  EXPECT_ERROR(launch({.output = silent}), "launch: no command");
  EXPECT_ERROR(launch({.command = {"no-such-program"}, .output = silent}),
               "cannot start no-such-program: No such file or directory");
  EXPECT_ERROR(launch({.command = {"/etc/passwd"}, .output = silent}), "cannot start /etc/passwd: Permission denied");
  EXPECT_ERROR(launch_script("", {.nproc_per_node = 0}), "0 processes per node, expected from 1 to");
  EXPECT_ERROR(launch_script("", {.nproc_per_node = 201}), "1 nodes of 201 ranks, expected at most 200 ranks in all");
  EXPECT_ERROR(launch_script("", {.nnodes = 0}), "0 nodes, expected at least 1");
  EXPECT_ERROR(launch_script("", {.nnodes = 2, .node_rank = 2, .master_port = 1}), "node rank 2, expected from 0 to 1");
  EXPECT_ERROR(launch_script("", {.nnodes = 2}), "2 nodes need a master port, the same on all of them, found none");
  EXPECT_ERROR(launch_script("", {.max_restarts = -1}), "-1 restarts, expected at least 0");
  EXPECT_ERROR(launch_script("", {.restart_delay = -1ms}), "a pause of -1 ms before a restart, expected at least 0");
  const TcpStoreServer taken;
  EXPECT_ERROR(launch_script("", {.master_port = taken.port()}),
               "Address already in use; choose another port with --master-port");
  EXPECT_ERROR(launch_script("", {.nnodes = 2, .master_addr = "192.0.2.1", .master_port = 29500}),
               "set LOCKSTEP_SECRET");
}

class Signals : public ::testing::TestWithParam<int> {};

TEST_P(Signals, AreHandedOnOnce) {
  const TemporaryFolder folder;
  const pid_t launcher = start_launcher("trap 'n=$((n+1))' INT TERM; n=0; " + leave_number(folder) +
                                            "while [ $n = 0 ]; do sleep 0.02; done; sleep 0.3; echo $n; exit 130",
                                        {.nproc_per_node = 2, .max_restarts = 3, .grace = 20s}, folder);
  read_line(folder, "0"), read_line(folder, "1");
  ::kill(launcher, GetParam());
  EXPECT_EQ(exit_status(launcher), 130);
  EXPECT_THAT(folder.read("log"), AllOf(HasSubstr("[rank 0] 1\n"), HasSubstr("[rank 1] 1\n"),
                                        HasSubstr("exited with status 130\n"), ::testing::Not(HasSubstr("restart"))));
}

TEST_P(Signals, RanksThatEndWellMakeItASuccess) {
  const TemporaryFolder folder;
  const pid_t launcher =
      start_launcher("trap 'exit 0' INT TERM; " + leave_number(folder) + "while :; do sleep 0.02; done",
                     {.nproc_per_node = 2}, folder);
  read_line(folder, "0"), read_line(folder, "1");
  ::kill(launcher, GetParam());
  EXPECT_EQ(exit_status(launcher), 0);
}

INSTANTIATE_TEST_SUITE_P(Launcher, Signals, ::testing::Values(SIGINT, SIGTERM),
                         [](const auto& info) { return info.param == SIGINT ? "SIGINT" : "SIGTERM"; });

TEST(Signals, TheThirdOneIsFinal) {
  const TemporaryFolder folder;
  const pid_t launcher =
      start_launcher("trap 'echo no' INT TERM; " + leave_number(folder) + "while :; do sleep 0.02; done",
                     {.nproc_per_node = 1}, folder);
  read_line(folder, "0");
  const auto hears = [&](std::size_t times) {
    const auto count = [&] {
      const std::string log = folder.read("log");
      return static_cast<std::size_t>(std::ranges::count(log, '\n'));
    };
    return wait_until([&] { return count() == times; });
  };
  for (const std::size_t times : {1U, 2U}) {
    ::kill(launcher, SIGINT);
    ASSERT_TRUE(hears(times));
  }
  std::this_thread::sleep_for(1s);  // an impatient user, and not a wrapper's duplicate
  ::kill(launcher, SIGINT);
  EXPECT_EQ(exit_status(launcher), 128 + SIGKILL);
}

TEST(Signals, HangingUpTellsTheRanksToEnd) {
  const TemporaryFolder folder;
  const pid_t launcher = start_launcher("trap 'exit 7' TERM; " + leave_number(folder) + "while :; do sleep 0.02; done",
                                        {.nproc_per_node = 2, .max_restarts = 3}, folder);
  read_line(folder, "0"), read_line(folder, "1");
  ::kill(launcher, SIGHUP);
  EXPECT_EQ(exit_status(launcher), 7);
}

TEST(Signals, ManyRequestsToEndDoNotKill) {
  const TemporaryFolder folder;
  const pid_t launcher = start_launcher(
      "trap 'n=1' TERM; n=0; " + leave_number(folder) + "while [ $n = 0 ]; do sleep 0.02; done; sleep 1.5; exit 7",
      {.nproc_per_node = 1}, folder);
  read_line(folder, "0");
  for (int i = 0; i < 6; ++i) {
    ::kill(launcher, SIGTERM);
    std::this_thread::sleep_for(250ms);
  }
  EXPECT_EQ(exit_status(launcher), 7);
}

TEST(Signals, OfTheUserReachTheRanks) {
  const TemporaryFolder folder;
  const pid_t launcher = start_launcher("trap 'exit 3' USR1; trap 'exit 4' USR2; trap 'exit 5' QUIT; " +
                                            leave_number(folder) + "while :; do sleep 0.02; done",
                                        {.nproc_per_node = 1, .max_restarts = 3}, folder);
  read_line(folder, "0");
  ::kill(launcher, SIGUSR2);
  EXPECT_EQ(exit_status(launcher), 4);
}

TEST(Signals, AStoppedJobGoesOn) {
  const TemporaryFolder folder;
  const pid_t launcher = start_launcher("trap 'exit 0' TERM; " + leave_number(folder) + "while :; do sleep 0.02; done",
                                        {.nproc_per_node = 2}, folder);
  // The system ignores the signal in a group that no shell watches.
  ASSERT_EQ(::setpgid(launcher, launcher), 0);
  const std::vector<pid_t> ranks{std::stoi(read_line(folder, "0")), std::stoi(read_line(folder, "1"))};
  const auto state = [](pid_t process) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    std::string text;
    std::getline(file, text);
    return text.at(text.rfind(')') + 2);
  };
  ::kill(launcher, SIGTSTP);
  int status = 0;
  ASSERT_EQ(::waitpid(launcher, &status, WUNTRACED), launcher);
  ASSERT_TRUE(WIFSTOPPED(status));
  // A process that was told to stop runs on until it has its next turn. A shell whose vfork()ed child stops before its
  // exec() waits for it, in state D.
  const auto stopped = [&](pid_t rank) { return state(rank) == 'T' || state(rank) == 'D'; };
  for (const pid_t rank : ranks) EXPECT_TRUE(wait_until([&] { return stopped(rank); }));
  ::kill(launcher, SIGCONT);
  for (const pid_t rank : ranks) EXPECT_TRUE(wait_until([&] { return !stopped(rank); }));
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(exit_status(launcher), 0);
}

// A closed pipe, for example.
TEST(Launcher, LostOutputTellsTheRanksToEnd) {
  const TemporaryFolder folder;
  LauncherOptions options{.nproc_per_node = 2, .max_restarts = 3};
  // The first line ends the job, so each rank waits until both have set their traps.
  options.command = {"/bin/sh", "-c",
                     fmt::format("cd {}; trap 'exit 7' TERM; : > $RANK; while ! [ -e 0 -a -e 1 ]; do sleep 0.02; done; "
                                 "echo line; while :; do sleep 0.02; done",
                                 folder.path().string())};
  std::vector<std::string> errors;
  options.output = [&](bool is_error, std::string_view line) {
    if (!is_error) throw std::runtime_error("no reader");
    errors.emplace_back(line);
  };
  EXPECT_EQ(launch(options).status, 7);
  EXPECT_THAT(errors, Contains("lockstep: no reader: the output is gone, so the ranks are told to end\n"));
}

TEST(Orphans, AreNotLeftByALauncherThatIsKilled) {
  const TemporaryFolder folder;
  const pid_t launcher = start_launcher(
      leave_number(folder) +
          fmt::format("sleep 1000 & echo $! > {0}/c$RANK; mv {0}/c$RANK {0}/child$RANK; wait", folder.path().string()),
      {.nproc_per_node = 2}, folder);
  std::vector<pid_t> all;
  for (const char* name : {"0", "1", "child0", "child1"}) all.push_back(std::stoi(read_line(folder, name)));
  ::kill(launcher, SIGKILL);
  EXPECT_EQ(exit_status(launcher), 128 + SIGKILL);
  for (const pid_t process : all) EXPECT_TRUE(ends(process));
}

}  // namespace
}  // namespace lockstep
