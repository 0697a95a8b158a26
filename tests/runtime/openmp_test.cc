// For any OpenMP settings, a Runtime computes correctly or throws. OpenMP reads the environment when a process starts,
// so each test runs in a separate process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/device/topology.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/copy.h"
#include "lockstep/runtime/runtime.h"
#include "tests/environment_variable.h"
#include "tests/tensors.h"

namespace lockstep::testing {
namespace {

std::vector<float> weight_gradient(Runtime& runtime) {
  Random random(1);
  const Device device = runtime.devices()[0];
  const Array x = ops::to_device(random.floats({8, 16, 14, 14}), device),
              dy = ops::to_device(random.floats({8, 32, 14, 14}), device);
  return ops::conv2d_backward_weights(x, dy, {32, 16, 3, 3}, false, {.padding = {1, 1}}).weight.to_vector<float>();
}

// Exits with 0 if a convolution on `threads` threads is right, with 3 if the runtime refuses, and does not wait
// forever.
void compute(int threads) {
  ::alarm(60);
  try {
    Runtime runtime({.cpu_devices = 1, .threads_per_shard = threads});
    Runtime reference({.cpu_devices = 1, .threads_per_shard = 1, .reference_backend = true});
    const std::vector<float> found = weight_gradient(runtime), expected = weight_gradient(reference);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!(std::abs(found[i] - expected[i]) < 1e-2F)) std::exit(1);
    }
    std::exit(0);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::exit(3);
  }
}

class OpenMp : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  // More than there are cores: OMP_DYNAMIC=true would give fewer.
  const int threads_ = static_cast<int>(available_cpus().size()) + 1;
};

TEST_F(OpenMp, GivesAllThreadsInSpiteOfOmpDynamic) {
  EnvironmentVariable variable("OMP_DYNAMIC", "true");
  EXPECT_EXIT(compute(threads_), ::testing::ExitedWithCode(0), "");
}

TEST_F(OpenMp, GivesAllThreadsInSpiteOfOmpMaxActiveLevels) {
  EnvironmentVariable variable("OMP_MAX_ACTIVE_LEVELS", "0");
  EXPECT_EXIT(compute(2), ::testing::ExitedWithCode(0), "");
}

TEST_F(OpenMp, GivesAllThreadsInSpiteOfOmpNumThreads) {
  EnvironmentVariable variable("OMP_NUM_THREADS", "1");
  EXPECT_EXIT(compute(2), ::testing::ExitedWithCode(0), "");
}

// Only oneDNN needs OpenMP's threads; other loops have threads of their own.
TEST_F(OpenMp, ThreadLimitBelowTheThreadsOfAShardIsAnErrorIfOnednnComputes) {
  EnvironmentVariable variable("OMP_THREAD_LIMIT", "1");
  if (has_native_bf16()) {
    EXPECT_EXIT(compute(2), ::testing::ExitedWithCode(3),
                "runtime: OpenMP gives 1 of the 2 threads that a shard needs; OMP_THREAD_LIMIT is 1");
  } else {
    EXPECT_EXIT(compute(2), ::testing::ExitedWithCode(0), "");
  }
  EXPECT_EXIT(compute(1), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep::testing
