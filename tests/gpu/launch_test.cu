// Tests what kernels rely on, both on a GPU and in the emulator.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "lockstep/backend/cuda/launch.h"
#include "lockstep/base/error.h"
#include "tests/gpu/gpu_testing.h"

namespace lockstep::testing {
inline namespace launch_test_cu {

constexpr int kThreads = 96;

// Every thread adds the values that all threads of the block wrote, then the values of its warp's lanes.
__global__ void sum_block(const int* x, int* of_block, int* of_warp) {
  __shared__ int values[kThreads];
  int* copies = shared_memory<int>();
  const int i = static_cast<int>(threadIdx.x), at = static_cast<int>(blockIdx.x) * kThreads + i;
  values[i] = x[at];
  __syncthreads();
  copies[kThreads - 1 - i] = values[i];
  __syncthreads();
  int sum = 0;
  for (int k = 0; k < kThreads; ++k) sum += copies[k];
  of_block[at] = sum;
  int lanes = x[at];
  for (int bits = 16; bits > 0; bits /= 2) lanes += __shfl_xor_sync(0xffffffffu, lanes, bits);
  of_warp[at] = lanes;
}

TEST(Launch, ThreadsOfABlockAndLanesOfAWarpMeet) {
  if (!has_gpu()) GTEST_SKIP() << kNoGpu;
  GpuMemory memory;
  constexpr int kBlocks = 3, kCount = kBlocks * kThreads;
  std::vector<int> x(kCount), of_block(kCount), of_warp(kCount);
  std::iota(x.begin(), x.end(), 1);
  auto* in = static_cast<int*>(memory.upload(x.data(), kCount * sizeof(int)));
  auto* block = static_cast<int*>(memory.allocate(kCount * sizeof(int)));
  auto* warp = static_cast<int*>(memory.allocate(kCount * sizeof(int)));
  launch(sum_block, dim3(kBlocks), dim3(kThreads), kThreads * sizeof(int), memory.stream(), in, block, warp);
  memory.download(of_block.data(), block, kCount * sizeof(int));
  memory.download(of_warp.data(), warp, kCount * sizeof(int));
  for (int i = 0; i < kCount; ++i) {
    auto sum = [&](int n) { return std::accumulate(x.begin() + i / n * n, x.begin() + i / n * n + n, 0); };
    EXPECT_EQ(of_block[i], sum(kThreads)) << i;
    EXPECT_EQ(of_warp[i], sum(32)) << i;
  }
}

__global__ void count_threads(unsigned* counter) { atomicAdd(counter, 1u); }

TEST(Launch, RefusesBlocksThatAreTooLarge) {
  if (!has_gpu()) GTEST_SKIP() << kNoGpu;
  GpuMemory memory;
  unsigned zero = 0, count = 0;
  auto* counter = static_cast<unsigned*>(memory.upload(&zero, sizeof zero));
  EXPECT_THROW(launch(count_threads, dim3(1), dim3(2048), 0, memory.stream(), counter), Error);
  launch(count_threads, dim3(2, 3, 4), dim3(8, 4, 2), 0, memory.stream(), counter);
  memory.download(&count, counter, sizeof count);
  EXPECT_EQ(count, 24u * 64u);
}

TEST(Launch, KernelsRunOnTheGpuOfTheirContext) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) GTEST_SKIP() << "there are no two GPUs here";
  for (int gpu : {1, 0, 1}) {
    GpuMemory memory(gpu);
    auto* counter = static_cast<unsigned*>(memory.allocate(sizeof(unsigned)));
    launch(count_threads, dim3(1), dim3(32), 0, cuda_context(memory.context()).stream(), counter);
    unsigned value = 0;
    memory.download(&value, counter, sizeof value);
    EXPECT_EQ(value, 31u);  // from 0xffffffff
  }
  cudaSetDevice(0);
}

}  // namespace launch_test_cu
}  // namespace lockstep::testing
