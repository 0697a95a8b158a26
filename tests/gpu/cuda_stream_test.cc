#include "lockstep/device/cuda/cuda_stream.h"

#include <atomic>

#include "lockstep/device/cuda/cuda_status.h"
#include "tests/gpu/gpu_testing.h"

namespace lockstep::testing {
namespace {

// Code that asks for the last error after its own launch would take the leftover error for the launch's.
TEST(CudaStreamTest, AskingForWorkThatIsNotOverLeavesNoError) {
  if (!has_gpu()) GTEST_SKIP() << kNoGpu;
  CudaStream stream(0, false);
  std::atomic<bool> go{false};
  check_cuda(cudaLaunchHostFunc(
                 stream.handle(), [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); }, &go),
             "cudaLaunchHostFunc");
  const std::uint64_t ticket = stream.record(false);
  EXPECT_EQ(stream.finished(), 0U);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  go = true;
  go.notify_all();
  stream.synchronize(ticket);
  EXPECT_EQ(stream.finished(), ticket);
}

}  // namespace
}  // namespace lockstep::testing
