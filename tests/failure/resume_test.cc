// Runs that are repeatedly killed and resumed end with the weights of an undisturbed run.
//
// Each is killed three times. LOCKSTEP_RESUME_RUNS=20 sets another number, at moments drawn with the seed
// LOCKSTEP_RESUME_SEED (or a random one, which is printed).
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "tests/cli/tool.h"
#include "tests/processes.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Resume : public ::testing::Test {
 protected:
  static constexpr int kSteps = 48;  // 12 epochs

  void SetUp() override {
    const auto seed = static_cast<unsigned>(
        environment_integer("LOCKSTEP_RESUME_SEED", 0, 1'000'000'000).value_or(std::random_device()() % 1'000'000'000));
    std::cout << "LOCKSTEP_RESUME_SEED=" << seed << std::endl;
    random_.seed(seed);
    EXPECT_EQ(run_tool(train({}, whole_)).status, 0);
  }

  // Four shards of one thread each, on `processes` processes; 0: without a launcher.
  Arguments train(const Arguments& more, const std::filesystem::path& log, int processes = 0) const {
    Arguments all{"--epochs", "12", "--optimizer", "adam", "--lr", "0.01", "--log", log};
    all.insert(all.end(), more.begin(), more.end());
    Arguments command = train_arguments(data_, all);
    if (processes == 0) return command;
    Arguments launch{"launch", "--timeout", "10", "--nproc-per-node", std::to_string(processes), "--", "lockstep"};
    launch.insert(launch.end(), command.begin(), command.end());
    return launch;
  }
  Arguments train_on(const std::filesystem::path& log, int processes) const {
    // Ranks outlive their launcher for a moment, in which they may save the first checkpoint.
    return train({"--save", save_, "--save-every", "1", "--resume", save_}, log, processes);
  }

  std::int64_t steps_saved() const {
    const auto latest = find_latest_checkpoint(save_).checkpoint;
    return latest ? latest->step : 0;
  }
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  // Kills the run after one or a few more steps, as soon as the next checkpoint begins, or at any time during its
  // start.
  void run_and_kill(int processes) {
    const std::int64_t before = steps_saved();
    Tool tool(train_on(part_, processes));
    const int moment = below(4);
    if (moment > 0) {
      for (int i = 0; i < 20'000 && steps_seen() < before + moment && !has_ended(); ++i)
        std::this_thread::sleep_for(500us);
    }
    if (moment == 1) {
      for (int i = 0; i < 1'000 && !is_being_written(); ++i) std::this_thread::sleep_for(50us);
      during_checkpoint_ += is_being_written();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(below(moment == 0 ? 200'000 : 10'000)));
    }
    tool.send(SIGKILL);
    const ToolResult result = tool.wait();
    ASSERT_THAT(result.status, ::testing::AnyOf(128 + SIGKILL, 0)) << result.err;
  }

  // Folders appear and disappear while this runs.
  std::vector<std::string> saved() const {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(save_, ignored))
      names.push_back(entry.path().filename());
    return names;
  }
  std::int64_t steps_seen() const {
    std::int64_t most = 0;
    for (const std::string& name : saved()) {
      if (name.starts_with("step-") && name.size() == 13)
        most = std::max<std::int64_t>(most, std::stoll(name.substr(5)));
    }
    return most;
  }
  bool is_being_written() const {
    return std::ranges::any_of(saved(), [](const std::string& name) { return name.starts_with(".tmp-"); });
  }
  bool has_ended() const { return steps_seen() >= kSteps; }

  void expect_the_same_end() {
    const auto end = events(part_, "end"), expected = events(whole_, "end");
    ASSERT_EQ(end.size(), 1u);
    ASSERT_EQ(expected.size(), 1u);
    EXPECT_EQ(end[0], expected[0]);  // steps, accuracy, and weights_sha256
    EXPECT_EQ(expected[0].at("steps"), kSteps);
  }

  const SmallData data_;
  const TemporaryFolder folder_;
  const std::filesystem::path whole_ = folder_ / "whole.log", part_ = folder_ / "part.log", save_ = folder_ / "save";
  std::mt19937 random_;
  int during_checkpoint_ = 0;
};

int kills() { return static_cast<int>(environment_integer("LOCKSTEP_RESUME_RUNS", 1, 1'000'000).value_or(3)); }

TEST_F(Resume, OneProcessThatIsKilledEndsWithTheSameWeights) {
  for (int i = 0; i < kills(); ++i) {
    if (i % 10 == 9) std::filesystem::remove_all(save_);
    run_and_kill(0);
  }
  ASSERT_EQ(run_tool(train_on(part_, 0)).status, 0);
  expect_the_same_end();
  std::cout << during_checkpoint_ << " of " << kills() << " kills while a checkpoint was written\n";
}

TEST_F(Resume, AJobThatIsKilledGoesOnWithAnyNumberOfProcesses) {
  for (int i = 0; i < kills(); ++i) {
    if (i % 10 == 9) std::filesystem::remove_all(save_);
    run_and_kill(i % 3 == 0 ? 2 : below(5));
  }
  ASSERT_EQ(run_tool(train_on(part_, 3)).status, 0);
  expect_the_same_end();
  std::cout << during_checkpoint_ << " of " << kills() << " kills while a checkpoint was written\n";
}

// The process of one rank.
pid_t process_of_rank(const std::string& rank, const std::string& mark) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const auto read = [&](const char* name) { return read_of_process(entry.path() / name); };
    if (read("cmdline").find(mark) == std::string::npos) continue;
    if (read("environ").find(std::string("\0RANK=", 6) + rank + '\0') == std::string::npos) continue;
    return std::stoi(entry.path().filename());
  }
  return -1;
}

TEST_F(Resume, ALauncherGoesOnByItselfWhenARankIsKilled) {
  const int restarts = kills();
  Arguments all = train({"--save", save_, "--save-every", "1"}, part_, 2);
  all.insert(all.begin() + 1, {"--max-restarts", std::to_string(restarts), "--restart-delay", "0"});
  Tool tool(all);
  int killed = 0;
  pid_t last = -1;
  for (int i = 0; i < restarts; ++i) {
    const std::int64_t before = steps_seen();
    // Found first, because the job takes its steps in a fraction of a second.
    const std::string rank = std::to_string(below(2));
    pid_t process = -1;
    for (int k = 0; k < 20'000 && (process <= 0 || process == last) && !has_ended(); ++k) {
      process = process_of_rank(rank, part_.string());
      std::this_thread::sleep_for(1ms);
    }
    const std::int64_t steps = before + 1 + below(3);
    for (int k = 0; k < 20'000 && steps_seen() < steps && !has_ended(); ++k) std::this_thread::sleep_for(1ms);
    if (has_ended()) break;
    if (process <= 0 || process == last) continue;
    if (::kill(process, SIGKILL) == 0) {
      last = process;
      ++killed;
    }
  }
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_GE(killed, 1);
  EXPECT_THAT(result.err, HasSubstr(fmt::format("was killed by signal 9 (Killed); restart 1 of {}", restarts)));
  EXPECT_THAT(result.err, HasSubstr("resumed from "));
  expect_the_same_end();
}

}  // namespace
}  // namespace lockstep
