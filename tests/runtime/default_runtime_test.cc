// Each test of the process's Runtime is a process of its own, since the Runtime lives until the process exits.
#include "lockstep/runtime/default_runtime.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/autograd/functions.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/living_runtimes.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

class DefaultRuntime : public ::testing::Test {
 protected:
  // Runs the test's program again, so that it has no threads yet.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Ends the process; its exit code is the number of failed expectations.
[[noreturn]] void leave() { std::exit(::testing::Test::HasFailure() ? 1 : 0); }

TEST_F(DefaultRuntime, IsMadeAtFirstNeedAndStays) {
  const auto program = [] {
    const std::vector<Device> all = devices();
    EXPECT_EQ(static_cast<int>(all.size()), std::max(1, device_count()));
    EXPECT_EQ(devices(), all);
    EXPECT_EQ(&default_runtime(), &default_runtime());
    EXPECT_EQ((ones({2}, {.device = all[0]}) + 1).to_vector<float>(), std::vector<float>(2, 2));
    EXPECT_ERROR(devices(7), "devices(7): the Runtime has 1 already, [cpu:0]: call devices(7) before anything else");
    EXPECT_ERROR(devices(0), "devices: 0 devices, expected at least 1");
    leave();
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "^$");
}

TEST_F(DefaultRuntime, HasAsManyDevicesAsAreAskedForFirst) {
  const auto program = [] {
    EXPECT_EQ(str(devices(2)), "[cpu:0, cpu:1]");
    EXPECT_EQ(devices().size(), 2U);
    EXPECT_ERROR(devices(1), "has 2 already");
    leave();
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "^$");
}

TEST_F(DefaultRuntime, IsTheProgramsOwnWhileOneLives) {
  Runtime own({.cpu_devices = 2, .cores_per_device = 1});
  EXPECT_EQ(&default_runtime(), &own);
  EXPECT_EQ(devices(), own.devices());
  EXPECT_EQ(devices(2), own.devices());
  EXPECT_ERROR(devices(1), "devices(1): the Runtime has 2 already, [cpu:0, cpu:1]");
  {
    Runtime other({.cpu_devices = 1});
    EXPECT_ERROR(devices(), "default runtime: this process has 2 Runtimes, [cpu:0, cpu:1], [cpu:0], expected one");
    EXPECT_ERROR(current_random("randn"), "randn: this process has 2 Runtimes");
  }
  EXPECT_EQ(&default_runtime(), &own);
}

// What a program with a Runtime of its own draws.
TEST_F(DefaultRuntime, DrawsAsARuntimeOfTheProgramDoes) {
  const auto draws = [](Device device) {
    return std::pair(rand({3}, {.device = device}).to_vector<float>(), rand({3}).to_vector<float>());
  };
  const auto program = [&] {
    const auto before = rand({3}).to_vector<float>();
    std::pair<std::vector<float>, std::vector<float>> own;
    {
      Runtime runtime({.cpu_devices = 1});
      own = draws(runtime.devices()[0]);
    }
    EXPECT_NE(own.first, before);
    EXPECT_EQ(draws(devices()[0]), own);
    manual_seed(0);
    EXPECT_EQ(rand({3}).to_vector<float>(), before);
    leave();
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "^$");
}

TEST_F(DefaultRuntime, ManualSeedIsTheSeedOfEveryRuntime) {
  const auto program = [] {
    Runtime before({.seed = 3});
    manual_seed(5);
    Runtime after, other({.seed = 6});
    EXPECT_EQ(before.random().seed(), 5U);
    EXPECT_EQ(after.random().seed(), 5U);
    EXPECT_EQ(other.random().seed(), 6U);
    leave();
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "^$");
}

TEST_F(DefaultRuntime, WritesAtExitAFailureThatNobodyHasRead) {
  const auto program = [](bool read) {
    const Device device = devices()[0];
    const Tensor bad =
        index_select(ones({2}, {.device = device}), 0, full({1}, 5, {.dtype = DType::i64, .device = device}));
    if (read) {
      EXPECT_THROW(bad.wait(), Error);
    }
    leave();
  };
  EXPECT_EXIT(program(false), ::testing::ExitedWithCode(0),
              "lockstep: at exit, a failure that nothing has waited for: .*5");
  EXPECT_EXIT(program(true), ::testing::ExitedWithCode(0), "^$");
}

struct OfStaticStorage {
  Tensor x;
  ~OfStaticStorage() {
    if (x.defined() && x.to_vector<float>() != std::vector<float>(4, 2)) ::_exit(3);
  }
};

TEST_F(DefaultRuntime, TensorsOfStaticStorageSurviveIt) {
  const auto program = [] {
    static OfStaticStorage kept;
    kept.x = ones({4}, {.device = devices()[0]}) + 1;
    leave();
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "^$");
}

TEST_F(DefaultRuntime, IsNotForked) {
  const auto program = [] {
    devices();
    EXPECT_ERROR(spawn([](int) {}, {.nprocs = 2}), "threads, expected one, since fork() would lose the others");
    const ::pid_t child = ::fork();
    if (child == 0) {
      EXPECT_ERROR(devices(), "made it, and fork() copied none of its threads");
      leave();  // waits for none of the parent's threads
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    leave();
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace lockstep::testing
