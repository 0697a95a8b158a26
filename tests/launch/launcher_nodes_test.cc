// Launchers of several hosts that act as one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "launching.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/free_port.h"
#include "tests/processes.h"

#include "lockstep/net/tcp_store.h"

namespace lockstep {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// Two launchers that act as if they ran on two hosts.
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
  const pid_t zero = start(0, script, {.max_restarts = 1, .restart_delay = 0ms, .grace = 50ms}),
              one = start(1, script, {.max_restarts = 1, .restart_delay = 0ms, .grace = 50ms});
  EXPECT_EQ(exit_status(zero), 0);
  EXPECT_EQ(exit_status(one), 0);
  for (const int node : {0, 1}) {
    EXPECT_THAT(log(node), HasSubstr("rank 0 exited with status 5; restart 1 of 1\n"));
    EXPECT_THAT(log(node), HasSubstr("start 1\n"));
  }
}

// Ranks that ignore SIGTERM keep their node longer than the timeout.
TEST_F(Nodes, StartAgainAfterANodeThatEndsItsRanksSlowly) {
  const std::string script =
      "[ $LOCKSTEP_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 0 ] && { sleep 0.3; exit 5; }; "
      "[ $GROUP_RANK = 0 ] || trap '' TERM; while :; do sleep 0.02; done";
  const LauncherOptions options{.max_restarts = 1, .restart_delay = 0ms, .timeout = 4s, .grace = 5s};
  const pid_t zero = start(0, script, options), one = start(1, script, options);
  EXPECT_EQ(exit_status(zero), 0) << log(0);
  EXPECT_EQ(exit_status(one), 0) << log(1);
}

TEST_F(Nodes, UnusableArgumentsAreTriedAgainNowhere) {
  const std::string script = "[ $RANK = 0 ] && exit 2; sleep 1000";
  const pid_t zero = start(0, script, {.max_restarts = 1, .restart_delay = 0ms, .grace = 50ms}),
              one = start(1, script, {.max_restarts = 1, .restart_delay = 0ms, .grace = 50ms});
  EXPECT_EQ(exit_status(zero), 2);
  EXPECT_EQ(exit_status(one), 2);
  for (const int node : {0, 1}) EXPECT_THAT(log(node), ::testing::Not(HasSubstr("restart")));
}

// Like `lockstep train`: ranks agree to stop, also on the node that was not interrupted.
TEST_F(Nodes, AnInterruptedJobStartsAgainNowhere) {
  const std::string stop = (folders_[0] / "stop").string();
  const std::string script = leave_number(folders_[1]) +
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
    const pid_t nodes[] = {start(0, script, {.timeout = 5s, .grace = 50ms}),
                           start(1, script, {.timeout = 5s, .grace = 50ms})};
    for (const char* rank : {"0", "1", "2", "3"}) read_line(folders_[killed], rank);
    ::kill(nodes[killed], SIGKILL);
    EXPECT_EQ(exit_status(nodes[killed]), 128 + SIGKILL);
    EXPECT_EQ(exit_status(nodes[1 - killed]), 1);
    EXPECT_THAT(log(1 - killed), HasSubstr(killed == 0 ? "lost the store" : "no answer from node 1's launcher"));
  }
}

// A batch system suspends jobs like this.
TEST_F(Nodes, LaunchersThatWereSuspendedGoOn) {
  const std::string end = (folders_[0] / "end").string();
  const std::string script = leave_number(folders_[1]) + fmt::format("while [ ! -e {} ]; do sleep 0.02; done", end);
  const pid_t nodes[] = {start(0, script, {.timeout = 4s}), start(1, script, {.timeout = 4s})};
  for (const char* rank : {"0", "1", "2", "3"}) read_line(folders_[1], rank);
  // In this order, node 0 has seen the other's last heartbeat and looks for the next one before it can arrive.
  for (const int node : {1, 0}) {
    std::this_thread::sleep_for(600ms);
    ::kill(nodes[node], SIGSTOP);
  }
  std::this_thread::sleep_for(10s);
  for (const int node : {0, 1}) {
    ::kill(nodes[node], SIGCONT);
    std::this_thread::sleep_for(600ms);
  }
  folders_[0].write("end", "");
  for (const int node : {0, 1}) EXPECT_EQ(exit_status(nodes[node]), 0) << log(node);
}

// Rank 3 hangs, and no other rank of its node ends after it was lost. It is killed without being asked to end.
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
  EXPECT_EQ(log(0), "launch: node 1 of 2 did not join within 0.3 s\n");
}

TEST_F(Nodes, ThatDisagreeAreTold) {
  const pid_t zero = start(0, "true", {.max_restarts = 1}), one = start(1, "true");
  EXPECT_EQ(exit_status(zero), 99);
  EXPECT_EQ(exit_status(one), 99);
  EXPECT_THAT(log(0), HasSubstr("node 0 has 2 nodes of 2 processes, start 1, max-restarts 1, node 1 has 2 nodes of 2 "
                                "processes, start 1, max-restarts 0"));
}

}  // namespace
}  // namespace lockstep
