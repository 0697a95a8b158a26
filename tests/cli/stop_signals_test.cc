// Signals that come several times, from several senders, or when nobody reads: to `train`, and to `launch` and its
// ranks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/base/file_descriptor.h"
#include "tests/cli/train_testing.h"
#include "tests/wait_until.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> children;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), gone)) {
    std::ifstream file(task.path() / "children");
    for (pid_t child; file >> child;) children.push_back(child);
  }
  return children;
}

// The word after `lockstep`.
std::string command_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", process));
  std::string word;
  std::getline(file, word, '\0');
  std::getline(file, word, '\0');
  return word;
}

class StopSignals : public Train {
 protected:
  Arguments endless() const { return train_arguments(data_, {"--epochs", "1000000", "--log", log_, "--save", save_}); }
  Arguments launched() const {
    Arguments all = endless();
    all.insert(all.begin(), {"launch", "--nproc-per-node", "2", "--max-restarts", "3", "--", "lockstep"});
    return all;
  }
  [[nodiscard]] bool trains() const {
    return wait_until([&] { return events(log_, "step").size() >= 3; });
  }
  // A checkpoint of the last step that was made.
  void expect_checkpoint() const {
    const std::size_t steps = events(log_, "step").size();
    EXPECT_TRUE(std::filesystem::exists(save_ / fmt::format("step-{:08}", steps))) << steps << " steps";
  }
  // The launcher, its ranks, and its guard.
  static std::vector<pid_t> processes_of(const Tool& tool) {
    std::vector<pid_t> all = children_of(tool.process());
    all.push_back(tool.process());
    return all;
  }
  static std::vector<pid_t> ranks_of(const Tool& tool) {
    std::vector<pid_t> ranks = children_of(tool.process());
    std::erase_if(ranks, [](pid_t process) { return command_of(process) != "train"; });
    return ranks;
  }

  const std::filesystem::path log_ = folder_ / "log", save_ = folder_ / "save";
};

TEST_F(StopSignals, RepeatedOnesDoNotEndTheProcessBeforeItHasSaved) {
  Tool tool(endless());
  ASSERT_TRUE(trains());
  for (int i = 0; i < 20; ++i) {
    tool.send(i % 3 == 2 ? SIGHUP : SIGTERM);
    std::this_thread::sleep_for(1ms);
  }
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  expect_checkpoint();
}

// The log is a pipe that nobody reads, so the step does not end.
TEST_F(StopSignals, ASecondInterruptEndsAStepThatHangs) {
  ASSERT_EQ(::mkfifo(log_.c_str(), 0600), 0);
  const FileDescriptor reader(::open(log_.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(static_cast<bool>(reader));
  Tool tool(endless());
  const auto hangs = [&] {
    std::ifstream file(fmt::format("/proc/{}/wchan", tool.process()));
    std::string where;
    std::getline(file, where);
    return where.find("pipe") != std::string::npos;
  };
  if (!wait_until(hangs)) GTEST_SKIP() << "this system does not say where a process waits";
  for (int i = 0; i < 3; ++i) tool.send(SIGTERM);
  const auto first = std::chrono::steady_clock::now();
  tool.send(SIGINT);
  std::this_thread::sleep_for(50ms);
  tool.send(SIGINT);  // a wrapper's duplicate
  std::this_thread::sleep_for(50ms);
  const bool is_duplicate = std::chrono::steady_clock::now() - first < 900ms;  // not where the machine is busy
  EXPECT_TRUE(!is_duplicate || wait_until(hangs)) << "it goes on waiting";
  std::this_thread::sleep_for(1s);
  tool.send(SIGINT);
  EXPECT_EQ(tool.wait().status, 128 + SIGINT);
}

TEST_F(StopSignals, NohupIsObeyed) {
  Tool tool(endless(), {.before = {"/usr/bin/nohup"}});
  ASSERT_TRUE(trains());
  tool.send(SIGHUP);
  const std::size_t steps = events(log_, "step").size();
  const bool goes_on = wait_until([&] { return events(log_, "step").size() > steps + 3; });
  tool.send(SIGTERM);
  const ToolResult result = tool.wait();
  EXPECT_TRUE(goes_on) << steps << " steps, then " << events(log_, "step").size() << "\n" << result.err;
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
}

TEST_F(StopSignals, ARunWhoseOutputNobodyReadsSavesAndEnds) {
  const std::filesystem::path out = folder_ / "out";
  ASSERT_EQ(::mkfifo(out.c_str(), 0600), 0);
  FileDescriptor reader(::open(out.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  Tool tool(endless(), {.out = out});
  ASSERT_TRUE(trains());
  reader.reset();
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 128 + SIGPIPE) << result.err;
  EXPECT_THAT(result.err, HasSubstr("interrupted at step "));
  expect_checkpoint();
}

// Process 1 of a container has no default actions, and the rank waits for another one that never comes.
TEST_F(StopSignals, Process1EndsWhileItWaitsForOthers) {
  const Arguments before{"/usr/bin/unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"};
  if (std::system("/usr/bin/unshare --user --map-root-user --pid --fork true 2> /dev/null") != 0) {
    GTEST_SKIP() << "no process namespaces here";
  }
  Tool tool(endless(), {.environment = {"PATH=/usr/bin:/bin", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                        "MASTER_PORT=9", "LOCKSTEP_TIMEOUT=1000"},
                        .before = before});
  pid_t first = 0;
  const auto takes_signals = [&] {
    for (const pid_t child : children_of(tool.process())) {
      std::ifstream file(fmt::format("/proc/{}/status", child));
      for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("SigCgt:")) continue;
        const bool caught = (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
        if (caught && command_of(child) == "train") first = child;
      }
    }
    return first != 0;
  };
  ASSERT_TRUE(wait_until(takes_signals));
  ::kill(first, SIGTERM);
  EXPECT_EQ(tool.wait().status, 128 + SIGTERM);
}

TEST_F(StopSignals, RanksThatAreSignaledBeforeTheirLauncherSave) {
  Tool tool(launched());
  ASSERT_TRUE(trains());
  for (const pid_t rank : ranks_of(tool)) ::kill(rank, SIGTERM);
  std::this_thread::sleep_for(30ms);
  tool.send(SIGTERM);
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  expect_checkpoint();
}

// As systemd ends a service, and a scheduler all processes of a job.
TEST_F(StopSignals, AllProcessesMayBeSignaledAtOnce) {
  Tool tool(launched());
  ASSERT_TRUE(trains());
  const std::vector<pid_t> all = processes_of(tool);
  ASSERT_EQ(all.size(), 4u);
  for (const int signal : {SIGTERM, SIGCONT, SIGHUP}) {
    for (const pid_t process : all) ::kill(process, signal);
  }
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  expect_checkpoint();
}

TEST_F(StopSignals, AnyOrderAndAnyNumberSaves) {
  Tool tool(launched());
  ASSERT_TRUE(trains());
  std::vector<pid_t> all = ranks_of(tool);
  ASSERT_EQ(all.size(), 2u);
  all.push_back(tool.process());
  for (std::size_t i = 0; i < 30; ++i) {
    ::kill(all[i * 7 % 3], SIGTERM);
    std::this_thread::sleep_for(1ms);
  }
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  expect_checkpoint();
}

class LaunchedStop : public StopSignals, public ::testing::WithParamInterface<int> {};

TEST_P(LaunchedStop, SavesAndIsNotRestarted) {
  Tool tool(launched());
  ASSERT_TRUE(trains());
  tool.send(GetParam());
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 128 + (GetParam() == SIGHUP ? SIGTERM : GetParam())) << result.err;
  EXPECT_THAT(result.err, HasSubstr("[rank 0] lockstep: interrupted at step "));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("restart")));
  expect_checkpoint();
}

INSTANTIATE_TEST_SUITE_P(Signals, LaunchedStop, ::testing::Values(SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2),
                         [](const auto& info) { return "SIG" + std::string(::sigabbrev_np(info.param)); });

TEST_F(StopSignals, AFileThatIsTooLargeIsAnError) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{100'000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const ToolResult result = train({"--max-steps", "1", "--export", folder_ / "weights"});
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("weights: File too large"));
}

TEST_F(StopSignals, ALauncherWhoseOutputNobodyReadsLetsItsRanksSave) {
  const std::filesystem::path out = folder_ / "out";
  ASSERT_EQ(::mkfifo(out.c_str(), 0600), 0);
  FileDescriptor reader(::open(out.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  Tool tool(launched(), {.out = out});
  ASSERT_TRUE(trains());
  reader.reset();
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  EXPECT_THAT(result.err, HasSubstr("lockstep: standard output: Broken pipe: the output is gone"));
  expect_checkpoint();
}

}  // namespace
}  // namespace lockstep
