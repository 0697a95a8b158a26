// A process that uses some of a machine's GPUs uses no memory of the others, not even for a context. Almost any call
// creates a context on the calling thread's GPU, and a context takes a few hundred megabytes.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>

#include "lockstep/device/cuda/cuda_status.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/trace.h"
#include "lockstep/models/lenet.h"
#include "lockstep/models/mlp.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/matmul.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/split.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#ifdef LOCKSTEP_CUDA_EMULATED
#include "tests/cuda_emulator/stream.h"
#endif

namespace lockstep {
namespace {

// Uses these two of at least three GPUs.
constexpr int kFirst = 1, kSecond = 2;

class OneOfSeveralGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpus() <= kSecond) GTEST_SKIP() << "fewer than 3 GPUs";
#ifdef LOCKSTEP_CUDA_EMULATED
    cuda_emulator::forget_contexts();
#endif
    if (!others().empty()) GTEST_SKIP() << "this process has contexts, of other tests";
  }

  static int gpus() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
  }

  // GPUs with a context, except the two.
  static std::vector<int> others() {
    std::vector<int> found;
    on_new_thread([&] {
      const GpuScope scope(kFirst);
      for (int gpu = 0; gpu < gpus(); ++gpu) {
        if (gpu != kFirst && gpu != kSecond && has_gpu_context(gpu)) found.push_back(gpu);
      }
    });
    return found;
  }

  // Runs the body on a thread that has never selected a GPU.
  static void on_new_thread(const std::function<void()>& body) { std::thread(body).join(); }
};

int gpu_of_thread() {
  int gpu = -1;
  check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
  return gpu;
}

TEST_F(OneOfSeveralGpus, AScopeGoesBackWhereThatMakesNoContext) {
  on_new_thread([] {
    check_cuda(cudaSetDevice(kFirst), "cudaSetDevice");
    { const GpuScope scope(kSecond); }
    EXPECT_EQ(gpu_of_thread(), kFirst);
  });
  on_new_thread([] {
    { const GpuScope scope(kSecond); }
    EXPECT_EQ(gpu_of_thread(), kSecond);
  });
  EXPECT_EQ(others(), std::vector<int>());
}

TEST_F(OneOfSeveralGpus, TrainingMakesNoContextElsewhere) {
  on_new_thread([] {
    Runtime runtime({.threads_per_shard = 1, .cuda = {kFirst}});
    const Device gpu = runtime.devices()[0];
    const auto trace = std::make_shared<Trace>();
    runtime.engine().set_trace(trace);
    auto net = lenet();
    net->initialize(Xavier{}, {gpu});
    Sgd sgd(net->parameters(), {.lr = 0.1});
    testing::Random random(1);
    for (int step = 0; step < 2; ++step) {
      const Tensor x = Tensor(random.floats({4, 1, 28, 28})).pin(gpu);
      const Tensor y = Tensor::from(std::vector<std::int64_t>{1, 2, 3, 4}, {4}).pin(gpu);
      const Tensor loss =
          cross_entropy((*net)(split_and_load(x, runtime.devices())), split_and_load(y, runtime.devices()));
      loss.backward();
      sgd.step();
      loss.wait();
    }
    EXPECT_THROW(ops::empty({std::int64_t{1} << 50}, DType::f32, gpu), Error);
    runtime.synchronize();
    runtime.engine().set_trace(nullptr);
    EXPECT_FALSE(trace->records().empty());
  });
  EXPECT_EQ(others(), std::vector<int>());
}

// A thread that has selected a GPU stays there, so each step runs on a new thread.
TEST_F(OneOfSeveralGpus, NorDoesAnyThreadThatUsesWhatOthersMade) {
  std::unique_ptr<Runtime> runtime;
  Device gpu;
  Array pinned, x, y;
  on_new_thread([&] {
    runtime = std::make_unique<Runtime>(RuntimeOptions{.threads_per_shard = 1, .cuda = {kFirst}});
    gpu = runtime->devices()[0];
  });
  EXPECT_EQ(others(), std::vector<int>()) << "made";
  on_new_thread([&] { pinned = ops::pin(testing::Random(1).floats({32, 32}), gpu); });
  EXPECT_EQ(others(), std::vector<int>()) << "pinned";
  on_new_thread([&] { x = ops::to_device(pinned, gpu, {.non_blocking = true}); });
  on_new_thread([&] { y = ops::matmul(x, x); });
  on_new_thread([&] { y.wait(); });
  EXPECT_EQ(others(), std::vector<int>()) << "waited";
  on_new_thread([&] { y = Array(); });
  on_new_thread([&] { EXPECT_THROW(ops::empty({std::int64_t{1} << 50}, DType::f32, gpu), Error); });
  EXPECT_EQ(others(), std::vector<int>()) << "gave memory back";
  on_new_thread([&] {
    pinned = x = Array();
    runtime.reset();
  });
  EXPECT_EQ(others(), std::vector<int>()) << "destroyed";
}

TEST_F(OneOfSeveralGpus, NorDoRanks) {
  auto groups = make_local_groups(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([rank, group = groups[static_cast<std::size_t>(rank)]] {
      Runtime runtime({.threads_per_shard = 1, .cuda = {rank == 0 ? kFirst : kSecond}});
      auto communicator = std::make_shared<Communicator>(runtime, group);
      EXPECT_EQ(communicator->backend_name(), "nccl");
      // On a new thread, as above.
      const std::shared_ptr<void> last(nullptr, [&](void*) { on_new_thread([&] { communicator.reset(); }); });
      auto net = mlp();
      net->initialize(Xavier{}, runtime.devices());
      settle_shapes(*net, Tensor::host({1, 1, 28, 28}), runtime.devices()[0]);
      DistributedDataParallel ddp(*net, runtime.devices(), communicator, {.split = {.shards = 2}});
      Sgd sgd(net->parameters(), {.lr = 0.1});
      const Tensor y = Tensor::from(std::vector<std::int64_t>{1, 2}, {2});
      auto parts = ddp.split(std::vector{Tensor::host({2, 1, 28, 28}), y}, 4);
      cross_entropy(ddp(parts[0]), parts[1]).backward();
      sgd.step();
      runtime.synchronize();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(others(), std::vector<int>());
}

}  // namespace
}  // namespace lockstep
