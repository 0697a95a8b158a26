// A launcher that waits for something goes on with the rest of its work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "launching.h"
#include "lockstep/net/tcp_store.h"
#include "tests/free_port.h"
#include "tests/process_limits.h"

namespace lockstep {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// Whether the process has a descriptor for signals. Only a launcher makes one; a test's process has none to inherit.
bool takes_signals(pid_t process) {
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process), gone)) {
    if (std::filesystem::read_symlink(entry, gone) == "anon_inode:[signalfd]") return true;
  }
  return false;
}

bool blocks(pid_t process, int signal) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string word; status >> word;) {
    if (word != "SigBlk:") continue;
    status >> word;
    return std::stoull(word, nullptr, 16) >> (signal - 1) & 1;
  }
  return false;
}

// Until the process is a launcher that has blocked its signals, which would end it before. The mask alone does not
// tell: since glibc 2.41, fork() itself blocks all signals in the child for a moment.
void await_launcher(pid_t process) {
  for (int i = 0; i < 2000; ++i) {
    if (takes_signals(process) && blocks(process, SIGINT) && blocks(process, SIGTERM)) return;
    std::this_thread::sleep_for(10ms);
  }
  ADD_FAILURE() << "the launcher never took its signals";
}

class LauncherWaits : public ::testing::Test {
 protected:
  int port_ = free_port();
  TemporaryFolder folders_[2];
  pid_t start(int node, int nnodes, const std::string& script) {
    return start_launcher(
        script, {.nproc_per_node = 1, .nnodes = nnodes, .node_rank = node, .master_port = port_, .timeout = 20s},
        folders_[node]);
  }
  std::string log(int node) const { return folders_[node].read("log"); }
};

TEST_F(LauncherWaits, ForNodeZeroUntilASignalComes) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const pid_t one = start(1, 2, "true");
    await_launcher(one);
    ::kill(one, signal);
    EXPECT_EQ(exit_status(one), 128 + signal);
    EXPECT_EQ(log(1), "interrupted before all nodes had joined\n");
  }
}

TEST_F(LauncherWaits, ForANodeUntilASignalComesToAnyOther) {
  for (const int interrupted : {0, 1}) {
    port_ = free_port();
    const pid_t nodes[] = {start(0, 3, "true"), start(1, 3, "true")};
    TcpStore store({.port = port_});
    for (const char* node : {"0", "1"}) store.get("launchers/1/job/" + std::string(node), 20s);
    ::kill(nodes[interrupted], SIGINT);
    for (const pid_t node : nodes) EXPECT_EQ(exit_status(node), 128 + SIGINT);
    EXPECT_EQ(log(interrupted), "interrupted before all nodes had joined\n");
    EXPECT_EQ(log(1 - interrupted), fmt::format("node {} was interrupted before all nodes had joined\n", interrupted));
  }
}

// Longer than one call of the store waits.
TEST_F(LauncherWaits, ForANodeThatStandsStillForAWhile) {
  const std::string end = (folders_[0] / "end").string();
  const std::string script = leave_number(folders_[0]) + fmt::format("while [ ! -e {} ]; do sleep 0.02; done", end);
  const pid_t zero = start(0, 2, script), one = start(1, 2, script);
  for (const char* rank : {"0", "1"}) read_line(folders_[0], rank);
  ::kill(zero, SIGSTOP);
  std::this_thread::sleep_for(12s);
  ::kill(zero, SIGCONT);
  folders_[0].write("end", "");
  EXPECT_EQ(exit_status(zero), 0) << log(0);
  EXPECT_EQ(exit_status(one), 0) << log(1);
}

// As a terminal after Ctrl-S, or a pager.
TEST_F(LauncherWaits, ForOutputToBeTakenAndStillHandsSignalsOn) {
  const TemporaryFolder& folder = folders_[0];
  const auto path = [&](const char* name) { return (folder / name).string(); };
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
    const std::string script = "trap 'echo > " + path("stopped") + "; exit 3' TERM; " + leave_number(folder) +
                               "seq 1 10000000; echo > " + path("all") + "; while :; do sleep 0.02; done";
    bool taken = false;
    LauncherOptions options{.command = {"/bin/sh", "-c", script}, .grace = 20s};
    options.output = [&](bool, std::string_view) {
      while (!taken && !(taken = std::filesystem::exists(path("taken")))) std::this_thread::sleep_for(10ms);
    };
    ::_exit(launch(options).status);
  }
  read_line(folder, "0");
  std::this_thread::sleep_for(1s);
  EXPECT_FALSE(std::filesystem::exists(path("all"))) << "the launcher keeps too much";
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(read_line(folder, "stopped"), "");
  folder.write("taken", "");
  EXPECT_EQ(exit_status(launcher), 3);
}

// The system refuses to wait for more descriptors than a process may open.
TEST(LauncherDescriptors, OutputArrivesWhereTheLimitIsLowered) {
  const TemporaryFolder folder;
  const std::string script =
      fmt::format("echo ready; until [ -e {}/go ]; do sleep 0.02; done; echo after", folder.path().string());
  EXPECT_EQ(status_of_process([&] {
              int ready = 0, after = 0;
              LauncherOptions options{.command = {"/bin/sh", "-c", script}, .nproc_per_node = 2};
              options.output = [&](bool, std::string_view line) {
                after += line.find("after") != line.npos;
                if (line.find("ready") == line.npos || ++ready < 2) return;
                limit_descriptors(4, 4);
                ::mkdir((folder / "go").c_str(), 0700);  // needs no descriptor
              };
              const int status = launch(options).status;
              return after != 2 ? 1 : status;
            }),
            0);
}

}  // namespace
}  // namespace lockstep
