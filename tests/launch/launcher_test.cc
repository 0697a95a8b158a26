#include "lockstep/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>

#include "lockstep/launch/launch_environment.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/free_port.h"
#include "tests/processes.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// A launch of a shell script, and all that came of it.
struct Outcome {
  LaunchResult result;
  std::vector<std::string> out, err;
};
Outcome launch_script(const std::string& script, LauncherOptions options = {}) {
  Outcome outcome;
  options.command = {"/bin/sh", "-c", script};
  options.output = [&](bool is_error, std::string_view line) {
    (is_error ? outcome.err : outcome.out).emplace_back(line);
  };
  outcome.result = launch(options);
  return outcome;
}

std::string read_line(const TemporaryFolder& folder, std::string_view name) {
  for (int i = 0; i < 2000; ++i) {
    const std::string text = folder.read(name);
    if (text.ends_with("\n")) return text.substr(0, text.size() - 1);
    std::this_thread::sleep_for(10ms);
  }
  return "nothing";
}

TEST(Launcher, MarksEveryLineWithItsRank) {
  const Outcome o =
      launch_script("echo out $RANK; printf 'a '; printf 'b'; printf 'c\\nno end'; echo err $RANK >&2",
                    {.nproc_per_node = 3});
  EXPECT_EQ(o.result.status, 0);
  EXPECT_EQ(o.result.message, "");
  EXPECT_THAT(o.out, UnorderedElementsAre("[rank 0] out 0\n", "[rank 1] out 1\n", "[rank 2] out 2\n",
                                          "[rank 0] a bc\n", "[rank 1] a bc\n", "[rank 2] a bc\n",
                                          "[rank 0] no end\n", "[rank 1] no end\n", "[rank 2] no end\n"));
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
  EXPECT_THAT(o.out, UnorderedElementsAre("[rank 0] 0 2 0 2 0 127.0.0.1 0 0 1.5\n",
                                          "[rank 1] 1 2 1 2 0 127.0.0.1 0 0 1.5\n"));
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
  const Outcome o = launch_script("[ $RANK = 1 ] && kill -KILL $$; sleep 0.2; echo rank 1 lost >&2; exit 1",
                                  {.nproc_per_node = 3, .grace = 20s});
  EXPECT_EQ(o.result.status, 128 + SIGKILL);
  EXPECT_THAT(o.err, UnorderedElementsAre("[rank 0] rank 1 lost\n", "[rank 2] rank 1 lost\n"));
}

TEST(Launcher, WhoDoesNotEndIsEnded) {
  // The one is asked, the other does not listen.
  const Outcome o = launch_script(
      "case $RANK in 0) exit 3;; 1) trap 'echo asked; exit' TERM;; 2) trap '' TERM;; esac; "
      "while :; do sleep 0.05; done",
      {.nproc_per_node = 3, .grace = 300ms});
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
  const Outcome o = launch_script(
      "echo $LOCKSTEP_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT; [ $LOCKSTEP_RESTART_COUNT = 2 ] || "
      "{ [ $RANK = 1 ] && exit 4; sleep 0.1; exit 1; }",
      {.nproc_per_node = 2, .max_restarts = 5});
  EXPECT_EQ(o.result.status, 0);
  EXPECT_THAT(o.out, UnorderedElementsAre("[rank 0] 0 0\n", "[rank 1] 0 0\n", "[rank 0] 1 1\n",
                                          "[rank 1] 1 1\n", "[rank 0] 2 2\n", "[rank 1] 2 2\n"));
  EXPECT_THAT(o.err, ElementsAre("lockstep: rank 1 exited with status 4; restart 1 of 5\n",
                                 "lockstep: rank 1 exited with status 4; restart 2 of 5\n"));
}

TEST(Launcher, GivesUpAfterTheLastRestart) {
  const Outcome o = launch_script("exit $((LOCKSTEP_RESTART_COUNT + 3))", {.max_restarts = 2});
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

// The guard kills what ranks have started when the launcher cannot; without it the launcher still does its own work.
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
  EXPECT_ERROR(launch({.output = silent}), "there is no command");
  EXPECT_ERROR(launch({.command = {"no-such-program"}, .output = silent}),
               "cannot start no-such-program: No such file or directory");
  EXPECT_ERROR(launch({.command = {"/etc/passwd"}, .output = silent}),
               "cannot start /etc/passwd: Permission denied");
  EXPECT_ERROR(launch_script("", {.nproc_per_node = 0}), "0 processes per node, expected from 1 to");
  EXPECT_ERROR(launch_script("", {.nnodes = 0}), "0 nodes, expected at least 1");
  EXPECT_ERROR(launch_script("", {.nnodes = 2, .node_rank = 2, .master_port = 1}),
               "node rank 2, expected from 0 to 1");
  EXPECT_ERROR(launch_script("", {.nnodes = 2}), "2 nodes need a master port");
  EXPECT_ERROR(launch_script("", {.max_restarts = -1}), "-1 restarts, expected at least 0");
  const TcpStoreServer taken;
  EXPECT_ERROR(launch_script("", {.master_port = taken.port()}), "cannot listen at 127.0.0.1");
  EXPECT_ERROR(launch_script("", {.nnodes = 2, .master_addr = "192.0.2.1", .master_port = 29500}),
               "set LOCKSTEP_SECRET");
}

// A launcher in a process of its own, which ends with its status.
pid_t start_launcher(const std::string& script, LauncherOptions options, const TemporaryFolder& folder) {
  const pid_t launcher = ::fork();
  if (launcher != 0) return launcher;
  for (int number : {SIGINT, SIGTERM}) ::signal(number, SIG_DFL);  // who starts a job with & has it ignore SIGINT
  options.command = {"/bin/sh", "-c", script};
  std::ofstream log(folder / "log");
  options.output = [&](bool, std::string_view line) { log << line << std::flush; };
  int status = 99;
  try {
    const LaunchResult result = launch(options);
    status = result.status;
    log << result.message << std::endl;
  } catch (const std::exception& error) {
    log << error.what() << std::endl;
  }
  ::_exit(status);
}

int exit_status(pid_t process) {
  int status = 0;
  for (int i = 0; i < 3000; ++i) {
    if (::waitpid(process, &status, WNOHANG) == process) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    std::this_thread::sleep_for(10ms);
  }
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
  return -1;
}

// A script that leaves its number in a file.
std::string leave_number(const TemporaryFolder& folder) {
  return fmt::format("echo $$ > {0}/new$RANK; mv {0}/new$RANK {0}/$RANK; ", folder.path().string());
}

class Signals : public ::testing::TestWithParam<int> {};

TEST_P(Signals, AreHandedOnOnce) {
  const TemporaryFolder folder;
  const pid_t launcher =
      start_launcher("trap 'n=$((n+1))' INT TERM; n=0; " + leave_number(folder) +
                         "while [ $n = 0 ]; do sleep 0.02; done; sleep 0.3; echo $n; exit 130",
                     {.nproc_per_node = 2, .max_restarts = 3, .grace = 20s}, folder);
  read_line(folder, "0"), read_line(folder, "1");
  ::kill(launcher, GetParam());
  EXPECT_EQ(exit_status(launcher), 130);
  EXPECT_THAT(folder.read("log"),
              AllOf(HasSubstr("[rank 0] 1\n"), HasSubstr("[rank 1] 1\n"),
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
  for (int i = 0; i < 3; ++i) {
    ::kill(launcher, SIGINT);
    std::this_thread::sleep_for(200ms);  // those that wait to be taken count once
  }
  EXPECT_EQ(exit_status(launcher), 128 + SIGKILL);
}

TEST(Orphans, AreNotLeftByALauncherThatIsKilled) {
  const TemporaryFolder folder;
  const pid_t launcher =
      start_launcher(leave_number(folder) +
                         fmt::format("sleep 1000 & echo $! > {0}/c$RANK; mv {0}/c$RANK {0}/child$RANK; wait",
                                     folder.path().string()),
                     {.nproc_per_node = 2}, folder);
  std::vector<pid_t> all;
  for (const char* name : {"0", "1", "child0", "child1"}) all.push_back(std::stoi(read_line(folder, name)));
  ::kill(launcher, SIGKILL);
  EXPECT_EQ(exit_status(launcher), 128 + SIGKILL);
  for (const pid_t process : all) EXPECT_TRUE(ends(process));
}

// Two hosts, as far as launchers can tell.
class Nodes : public ::testing::Test {
 protected:
  int port_ = free_port();
  TemporaryFolder folders_[2];
  pid_t start(int node, const std::string& script, LauncherOptions options = {}) {
    options.nproc_per_node = 2;
    options.nnodes = 2;
    options.node_rank = node;
    options.master_port = port_;
    if (options.timeout == 0ms) options.timeout = 20s;
    return start_launcher(script, options, folders_[node]);
  }
  std::string log(int node) const { return folders_[node].read("log"); }
};

TEST_F(Nodes, MakeOneWorld) {
  const std::string script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_PORT";
  const pid_t one = start(1, script), zero = start(0, script + "; sleep 0.5");
  EXPECT_EQ(exit_status(zero), 0);
  EXPECT_EQ(exit_status(one), 0);
  EXPECT_THAT(log(0), HasSubstr(fmt::format("[rank 1] 1 4 1 2 0 {}\n", port_)));
  EXPECT_THAT(log(1), HasSubstr(fmt::format("[rank 2] 2 4 0 2 1 {}\n", port_)));
}

TEST_F(Nodes, ARankThatFailsEndsAllNodes) {
  const std::string script = "[ $RANK = 3 ] && exit 5; sleep 1000";
  const pid_t zero = start(0, script, {.grace = 50ms}), one = start(1, script, {.grace = 50ms});
  EXPECT_EQ(exit_status(zero), 5);
  EXPECT_EQ(exit_status(one), 5);
  for (const int node : {0, 1}) EXPECT_THAT(log(node), EndsWith("rank 3 exited with status 5\n"));
}

TEST_F(Nodes, StartAgainTogether) {
  const std::string script =
      "echo start $LOCKSTEP_RESTART_COUNT; [ $LOCKSTEP_RESTART_COUNT = 1 ] && exit 0; "
      "[ $RANK = 0 ] && exit 5; sleep 1000";
  const pid_t zero = start(0, script, {.max_restarts = 1, .grace = 50ms}),
              one = start(1, script, {.max_restarts = 1, .grace = 50ms});
  EXPECT_EQ(exit_status(zero), 0);
  EXPECT_EQ(exit_status(one), 0);
  for (const int node : {0, 1}) {
    EXPECT_THAT(log(node), HasSubstr("rank 0 exited with status 5; restart 1 of 1\n"));
    EXPECT_THAT(log(node), HasSubstr("start 1\n"));
  }
}

TEST_F(Nodes, UnusableArgumentsAreTriedAgainNowhere) {
  const std::string script = "[ $RANK = 0 ] && exit 2; sleep 1000";
  const pid_t zero = start(0, script, {.max_restarts = 1, .grace = 50ms}),
              one = start(1, script, {.max_restarts = 1, .grace = 50ms});
  EXPECT_EQ(exit_status(zero), 2);
  EXPECT_EQ(exit_status(one), 2);
  for (const int node : {0, 1}) EXPECT_THAT(log(node), ::testing::Not(HasSubstr("restart")));
}

// As `lockstep train` does: ranks agree to stop, also on the node that nobody has interrupted.
TEST_F(Nodes, AnInterruptedJobStartsAgainNowhere) {
  const std::string stop = (folders_[0] / "stop").string();
  const std::string script =
      leave_number(folders_[1]) +
      fmt::format("trap ': > {0}' INT; while [ ! -e {0} ]; do sleep 0.02; done; exit 130", stop);
  const pid_t zero = start(0, script, {.max_restarts = 3}), one = start(1, script, {.max_restarts = 3});
  for (const char* rank : {"0", "1", "2", "3"}) read_line(folders_[1], rank);
  ::kill(zero, SIGINT);
  EXPECT_EQ(exit_status(zero), 130);
  EXPECT_EQ(exit_status(one), 130);
  for (const int node : {0, 1}) EXPECT_THAT(log(node), ::testing::Not(HasSubstr("restart")));
}

TEST_F(Nodes, ALauncherThatIsKilledEndsTheOthers) {
  for (const int killed : {0, 1}) {
    port_ = free_port();
    const std::string script = leave_number(folders_[killed]) + "sleep 1000";
    const pid_t nodes[] = {start(0, script, {.timeout = 2s, .grace = 50ms}),
                           start(1, script, {.timeout = 2s, .grace = 50ms})};
    for (const char* rank : {"0", "1", "2", "3"}) read_line(folders_[killed], rank);
    ::kill(nodes[killed], SIGKILL);
    EXPECT_EQ(exit_status(nodes[killed]), 128 + SIGKILL);
    EXPECT_EQ(exit_status(nodes[1 - killed]), 1);
    EXPECT_THAT(log(1 - killed),
                HasSubstr(killed == 0 ? "lost the store" : "nothing was heard of node 1's launcher"));
  }
}

// As a batch system suspends a job.
TEST_F(Nodes, LaunchersThatWereSuspendedGoOn) {
  const std::string end = (folders_[0] / "end").string();
  const std::string script = leave_number(folders_[1]) + fmt::format("while [ ! -e {} ]; do sleep 0.02; done", end);
  const pid_t nodes[] = {start(0, script, {.timeout = 2s}), start(1, script, {.timeout = 2s})};
  for (const char* rank : {"0", "1", "2", "3"}) read_line(folders_[1], rank);
  // In this order node 0 has seen the other's last sign of life, and then looks for the next one before it can come.
  for (const int node : {1, 0}) {
    std::this_thread::sleep_for(600ms);
    ::kill(nodes[node], SIGSTOP);
  }
  std::this_thread::sleep_for(6s);
  for (const int node : {0, 1}) {
    ::kill(nodes[node], SIGCONT);
    std::this_thread::sleep_for(600ms);
  }
  folders_[0].write("end", "");
  for (const int node : {0, 1}) EXPECT_EQ(exit_status(nodes[node]), 0) << log(node);
}

// Rank 3 stands still, and no other rank of its node ends after it was lost: it is not asked to end first.
TEST_F(Nodes, ARankThatStandsStillAloneOnItsNodeIsKilled) {
  const std::string fail = (folders_[0] / "fail").string();
  const std::string script =
      leave_number(folders_[1]) + "[ $RANK = 2 ] && exit 0; [ $RANK = 3 ] && trap 'echo was asked' TERM && " +
      "while :; do sleep 0.02; done; " + fmt::format("while [ ! -e {} ]; do sleep 0.02; done; exit 5", fail);
  const pid_t zero = start(0, script, {.grace = 10s}), one = start(1, script, {.grace = 10s});
  for (const char* rank : {"0", "1", "2", "3"}) read_line(folders_[1], rank);
  TcpStore store({.port = port_});
  store.set("failures/0/rank/0", "3 rank 3 lost (no answer within 2 s)");
  store.add("failures/0/count", 1);
  folders_[0].write("fail", "");
  EXPECT_EQ(exit_status(zero), 5);
  EXPECT_EQ(exit_status(one), 5);
  EXPECT_THAT(log(1), ::testing::Not(HasSubstr("was asked")));
}

TEST_F(Nodes, OneThatDoesNotComeIsNamed) {
  EXPECT_EQ(exit_status(start(0, "true", {.timeout = 300ms})), 99);
  EXPECT_EQ(log(0), "launch: node 1 of 2 did not come within 0.3 s\n");
}

TEST_F(Nodes, ThatDisagreeAreTold) {
  const pid_t zero = start(0, "true", {.max_restarts = 1}), one = start(1, "true");
  EXPECT_EQ(exit_status(zero), 99);
  EXPECT_EQ(exit_status(one), 99);
  EXPECT_THAT(log(0), HasSubstr("node 0 has 2 nodes of 2 processes, start 1 of 2, node 1 has 2 nodes of 2 "
                                "processes, start 1 of 1"));
}

}  // namespace
}  // namespace lockstep
