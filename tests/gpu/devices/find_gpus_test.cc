// Which GPUs a process finds. A program that prefers GPUs takes the CPU only if there is no GPU to use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/device/gpu.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/runtime/runtime.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/process_limits.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(FindGpus, SpawnRefusesToForkAProcessThatHasCountedThem) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU";
  EXPECT_ERROR(spawn([](int) {}, {.nprocs = 2}), "spawn: this process has called CUDA, which does not survive fork()");
}

TEST(FindGpus, AForkedProcessDoesNotTakeTheCpuInstead) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU";
  const int status = status_of_process([] {
    EXPECT_TRUE(find_gpus().failed);
    EXPECT_ERROR(find_devices(), "this process was forked from one that had called CUDA");
    EXPECT_ERROR(Runtime({.devices = "auto"}), "this process was forked from one that had called CUDA");
    EXPECT_ERROR(Runtime({.cuda = {0}}), "this process was forked from one that had called CUDA");
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(status, 0);
}

#ifdef LOCKSTEP_CUDA_EMULATED

TEST(FindGpus, NoGpuAndNoDriverMeanTheCpu) {
  for (const auto& [name, value] : {std::pair{"LOCKSTEP_EMULATED_STATUS", "100"}, {"LOCKSTEP_EMULATED_DRIVER", "0"}}) {
    const EnvironmentVariable setting(name, value);
    EXPECT_EQ(device_count(), 0) << name;
    EXPECT_EQ(find_devices(2).options.cpu_devices, 2) << name;
    EXPECT_TRUE(find_devices(2).left_out.empty()) << name;
    EXPECT_ERROR(Runtime({.cuda = {0}}), "cuda:0 requested, but there is no GPU: ");
  }
}

// A host without its fabric manager.
TEST(FindGpus, ADriverThatIsNotReadyIsAnError) {
  const EnvironmentVariable status("LOCKSTEP_EMULATED_STATUS", "802");
  for (const char* why :
       {"looking for GPUs: system not yet initialized (cudaErrorSystemNotReady)", "name its devices"}) {
    EXPECT_ERROR(find_devices(), why);
    EXPECT_ERROR(device_count(), why);
    EXPECT_ERROR(Runtime({.devices = "auto"}), why);
    EXPECT_ERROR(Runtime({.devices = 2}), why);
  }
  EXPECT_ERROR(Runtime({.cuda = {0}}), "cuda:0 requested, but CUDA fails: system not yet initialized");
  EXPECT_EQ(str(Runtime({.devices = "cpu:0"}).devices()), "[cpu:0]");
}

TEST(FindGpus, ADriverThatIsTooOldIsAnError) {
  const EnvironmentVariable driver("LOCKSTEP_EMULATED_DRIVER", "11080");
  EXPECT_ERROR(find_devices(), "the driver supports CUDA 11.8, Lockstep was built with CUDA ");
}

TEST(FindGpus, GpusOfOlderGenerationsAreLeftOut) {
  if (find_gpus().gpus.size() < 3) GTEST_SKIP() << "fewer than 3 GPUs";
  const EnvironmentVariable capability("LOCKSTEP_EMULATED_CAPABILITY", "7.5,8.0,9.0");
  const std::string why = "cuda:0 (Emulated GPU 0) has compute capability 7.5, expected at least 8.0";
  EXPECT_EQ(device_count(), 2);
  EXPECT_THAT(find_devices().options.cuda, ElementsAre(1, 2));
  EXPECT_THAT(find_devices().left_out, ElementsAre(why));
  EXPECT_ERROR(Runtime({.devices = "cuda:0"}), "cuda:0 requested, but it cannot be used: " + why);
  EXPECT_EQ(str(Runtime({.devices = "auto"}).devices()), "[cuda:1, cuda:2]");
}

TEST(FindGpus, OnlyOlderGenerationsMeanTheCpuAndAReason) {
  const EnvironmentVariable capability("LOCKSTEP_EMULATED_CAPABILITY", "7.5");
  EXPECT_EQ(device_count(), 0);
  EXPECT_EQ(find_devices().options.cpu_devices, 1);
  EXPECT_THAT(find_devices().left_out.at(0), ::testing::HasSubstr("has compute capability 7.5"));
  EXPECT_ERROR(Runtime({.cuda = {0}}), "there is no GPU: cuda:0 (Emulated GPU 0) has compute capability 7.5");
}

#endif

}  // namespace
}  // namespace lockstep
