// Tests guarantees that the emulator gives and a GPU does not.
#include "tests/gpu/gpu_testing.h"

#ifdef LOCKSTEP_CUDA_EMULATED

#include "lockstep/backend/backend.h"
#include "lockstep/backend/copy.h"
#include "lockstep/base/error.h"
#include "lockstep/device/cuda/cuda_status.h"
#include "lockstep/device/gpu.h"
#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/stream.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/process_limits.h"

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

TEST(Emulator, KernelsReachOnlyTheMemoryOfConnectedGpus) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 2) GTEST_SKIP() << "fewer than 2 GPUs";
  cuda_emulator::forget_peers();
  GpuMemory here(0), there(1);
  const auto backend = make_cuda_backend({});
  const float x[] = {1, 2, 3};
  View from{there.upload(x, sizeof x), DType::f32, Layout::plain, {3}};
  View to{here.allocate(sizeof x), DType::f32, Layout::plain, {3}};
  there.synchronize();
  ASSERT_TRUE(connect_gpus(0, 1));
  float y[3] = {};
  backend->run(here.context(), kernels::Copy{from, to});
  here.download(y, to.data, sizeof y);
  EXPECT_EQ(y[2], 3);
  cuda_emulator::forget_peers();
  backend->run(here.context(), kernels::Copy{from, to});
  EXPECT_ERROR(here.synchronize(), "an illegal memory access was encountered");
  cuda_emulator::fail_device(0, cudaSuccess);
  cudaGetLastError();
}

TEST(Emulator, OldGpusHaveNoKernels) {
  if (!has_gpu()) GTEST_SKIP() << kNoGpu;
  GpuMemory memory;
  View x{memory.allocate(16), DType::f32, Layout::plain, {4}}, y{memory.allocate(16), DType::f32, Layout::plain, {4}};
  const EnvironmentVariable capability("LOCKSTEP_EMULATED_CAPABILITY", "7.5");
  EXPECT_ERROR(make_cuda_backend({})->run(memory.context(), kernels::Copy{x, y}), "no kernel image is available");
}

TEST(Emulator, CudaDoesNotSurviveAFork) {
  if (!has_gpu()) GTEST_SKIP() << kNoGpu;
  const int status = status_of_process([] {
    int count = 0;
    return static_cast<int>(cudaGetDeviceCount(&count));
  });
  EXPECT_EQ(status, static_cast<int>(cudaErrorInitializationError));
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
