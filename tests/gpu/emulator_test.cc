// Tests guarantees that the emulator gives and a GPU does not.
#include "tests/gpu/gpu_testing.h"

#ifdef LOCKSTEP_CUDA_EMULATED

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/cuda_status.h"
#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/stream.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

TEST(EmulatorDeathTest, TheHostCannotTouchDeviceMemory) {
  if (!has_gpu()) GTEST_SKIP() << kNoGpu;
  if (!cuda_emulator::device_memory_is_protected()) GTEST_SKIP() << "this processor has no protection keys";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // streams are threads
  GpuMemory memory;
  auto* on_device = static_cast<volatile int*>(memory.allocate(sizeof(int)));
  memory.synchronize();
  EXPECT_DEATH(*on_device = 1, "");
}

TEST(Emulator, CopiesKnowWhichSideIsTheDevice) {
  if (!has_gpu()) GTEST_SKIP() << kNoGpu;
  GpuMemory memory;
  void* on_device = memory.allocate(16);
  memory.synchronize();
  char on_host[16];
  EXPECT_EQ(cudaMemcpy(on_host, on_device, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(on_host, on_device, 17, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(on_host, on_device, 16, cudaMemcpyDeviceToHost), cudaSuccess);
  cudaGetLastError();
}

TEST(Emulator, ADeviceThatFailedFailsAllThatFollows) {
  if (!has_gpu()) GTEST_SKIP() << kNoGpu;
  GpuMemory memory;
  void* on_device = memory.allocate(16);
  memory.synchronize();
  cuda_emulator::fail_device(0, cudaErrorIllegalAddress);
  char on_host[16];
  EXPECT_ERROR(memory.download(on_host, on_device, 16), "an illegal memory access was encountered");
  EXPECT_EQ(cudaStreamSynchronize(memory.stream()), cudaErrorIllegalAddress);
  cuda_emulator::fail_device(0, cudaSuccess);
  cudaGetLastError();
  memory.download(on_host, on_device, 16);
}

TEST(Emulator, DevicesHaveNoMoreMemoryThanTheySay) {
  if (!has_gpu()) GTEST_SKIP() << kNoGpu;
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, total + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(p, nullptr);
  cudaGetLastError();
}

}  // namespace
}  // namespace lockstep::testing

#endif
