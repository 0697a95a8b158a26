#include "lockstep/device/cuda/cuda_stream.h"

#include <atomic>
#include <chrono>
#include <thread>

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

// The base moves after 500 ms. Both times of a pair must be by the same one.
TEST(CudaStreamTest, TimesStayInOrderWhereTheBaseMoves) {
  if (!has_gpu()) GTEST_SKIP() << kNoGpu;
  CudaStream stream(0, false);
  TimeSpan before;
  for (int pair = 0; pair < 8; ++pair) {
    const auto begin = stream.record(true), end = stream.record(true);
    stream.synchronize(end);
    ASSERT_EQ(stream.finished(), end);
    const TimeSpan times = stream.times_of(begin, end);
    EXPECT_LE(times.begin_ns, times.end_ns);
    if (pair > 0) {
      EXPECT_GE(times.begin_ns, before.end_ns + 150'000'000);
    }
    before = times;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// Kernels select their GPU for the thread, such as those of a recording.
TEST(GpuScope, RestoresTheGpuIfACallSelectsAnother) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) GTEST_SKIP() << "fewer than 2 GPUs";
  const CudaStream stream(0, false);
  check_cuda(cudaSetDevice(0), "cudaSetDevice");
  {
    const GpuScope scope(0);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
  }
  int gpu = -1;
  check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
  EXPECT_EQ(gpu, 0);
}

}  // namespace
}  // namespace lockstep::testing
