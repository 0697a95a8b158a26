// Several GPUs in one Runtime, not logical devices of one. Only GPUs that were connected reach each other's memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <thread>

#include "lockstep/autograd/functions.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/device/gpu.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/trace.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/recorded_step.h"
#include "lockstep/parallel/split.h"
#include "lockstep/runtime/runtime.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#ifdef LOCKSTEP_CUDA_EMULATED
#include "tests/cuda_emulator/stream.h"
#endif

namespace lockstep::testing {
namespace {

class SeveralGpus : public ::testing::Test {
 protected:
  static constexpr int kGpus = 3;
  void SetUp() override {
    if (find_gpus().gpus.size() < kGpus) GTEST_SKIP() << "fewer than 3 GPUs";
    forget_peers();
  }
  void TearDown() override { forget_peers(); }

  static void forget_peers() {
#ifdef LOCKSTEP_CUDA_EMULATED
    cuda_emulator::forget_peers();
#endif
  }

  struct Trained {
    std::vector<float> losses;
    std::string weights;
    bool operator==(const Trained&) const = default;
  };

  // Data parallel, with batch norm over all shards and over one: sums, statistics, clipped norms, and updates cross
  // devices.
  static Trained train(std::vector<int> gpus) {
    const Runtime runtime({.threads_per_shard = 1, .cuda = std::move(gpus)});
    const std::vector<Device>& devices = runtime.devices();
    Sequential net;
    for (const bool synchronized : {true, false}) {
      net.append<Conv2d>(ConvLayerOptions{.out_channels = 4, .kernel_size = 3, .padding = 1});
      net.append<BatchNorm2d>(BatchNorm2dOptions{.synchronized = synchronized}).append<ReLU>();
    }
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 3});
    net.initialize(Xavier{}, devices, {.seed = 3});
    Sgd optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
    Random random(7);
    Trained found;
    for (int step = 0; step < 3; ++step) {
      const Tensor x = split_and_load(random.floats({13, 1, 6, 6}), devices, {.shards = 5});
      const Tensor y = split_and_load(random.floats({13, 3}), devices, {.shards = 5});
      const Tensor loss = mse_loss(net(x), y);
      loss.backward();
      optimizer.clip_grad_norm(1.0);
      optimizer.step();
      found.losses.push_back(loss.item<float>());
    }
    found.weights = weights_sha256(net);
    return found;
  }
};

TEST_F(SeveralGpus, TrainTogetherWithTheBitsOfOne) {
  const Trained one = train({0});
  EXPECT_EQ(train({0, 1, 2}), one);
  EXPECT_EQ(train({2, 0, 1}), one);
}

#ifdef LOCKSTEP_CUDA_EMULATED
TEST_F(SeveralGpus, TrainTogetherAlthoughSomeCannotReachOthers) {
  const Trained one = train({0});
  for (const char* pairs : {"0-1,0-2", "1-2", ""}) {
    SCOPED_TRACE(pairs);
    forget_peers();
    const EnvironmentVariable peers("LOCKSTEP_EMULATED_PEERS", pairs);
    EXPECT_EQ(train({0, 1, 2}), one);
  }
}

TEST_F(SeveralGpus, TrainTogetherAlthoughAGpuHasFewPeers) {
  const Trained one = train({0});
  const EnvironmentVariable most("LOCKSTEP_EMULATED_MOST_PEERS", "1");
  EXPECT_EQ(train({0, 1, 2}), one);
}
#endif

// Events belong to a GPU, and the thread that captures is at one GPU only.
TEST_F(SeveralGpus, TheTimelineHasThePartsOfARecordedStepOnEach) {
  Runtime runtime({.threads_per_shard = 1, .cuda = {0, 1}});
  const Device a = runtime.devices()[0], b = runtime.devices()[1];
  RecordedStep step([&](std::span<const Tensor> in) {
    const Tensor y = matmul(in[0], in[0]);
    return std::vector{relu(y.to(b, {.non_blocking = true}))};
  });
  const Tensor x = Tensor(Random(1).floats({8, 8})).to(a);
  for (int i = 0; i < 4; ++i) step.run(std::vector{x});
  ASSERT_EQ(step.why_no_graph(), "");
  runtime.synchronize();
  auto trace = std::make_shared<Trace>();
  runtime.engine().set_trace(trace);
  constexpr int kRounds = 7;  // more than the number of graphs with times
  for (int i = 0; i < kRounds; ++i) step.run(std::vector{x});
  runtime.synchronize();
  runtime.engine().set_trace(nullptr);
  std::map<std::string, int> count;
  std::map<std::string, std::string> device;
  for (const TraceRecord& r : trace->records()) {
    EXPECT_LE(r.begin_ns, r.end_ns) << r.name;
    device[r.name] = trace->lanes()[static_cast<std::size_t>(r.lane)].device;
    ++count[r.name];
  }
  EXPECT_EQ(count["matmul"], kRounds);
  EXPECT_EQ(count["relu"], kRounds);
  EXPECT_EQ(count["recorded step"], 0);
  EXPECT_EQ(device["matmul"], "cuda:0");
  EXPECT_EQ(device["relu"], "cuda:1");
}

}  // namespace
}  // namespace lockstep::testing
