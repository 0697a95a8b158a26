// Checkpoints of modules: the same bits as without, also over shards and devices, in less memory.
#include "lockstep/autograd/checkpoint.h"

#include <functional>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/parameter_change.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/runtime/random_state.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

using Counts = std::vector<std::int64_t>;
using Call = std::function<Tensor(Module&, const Tensor&)>;
using Forward = std::function<Tensor(Sequential&, const Tensor&, const Call&)>;

const Call kPlain = [](Module& net, const Tensor& x) { return net(x); };
const Call kKept = [](Module& net, const Tensor& x) { return checkpoint(net, x); };

class CheckpointedNet : public ::testing::Test {
 protected:
  // The output, the gradients of the input and of all parameters, the buffers, and the next keys of random numbers.
  std::vector<std::vector<double>> bits(const Forward& forward, const Call& call, const Counts& counts, int devices,
                                        bool synchronized = false) {
    const std::vector<Device> on(runtime_.devices().begin(), runtime_.devices().begin() + devices);
    Sequential net(Linear(6, 8), BatchNorm1d(8, {.synchronized = synchronized}), ReLU(), Dropout(0.4), Linear(8, 6));
    net.initialize(Normal(0.5), on, {.seed = 3});
    runtime_.random().restart(7);
    Tensor x = as_leaf(Tensor::from(Random(5).uniforms(96), {16, 6}, {.dtype = DType::f32}));
    const Tensor y = forward(net, make_batch(x, counts, on), call);
    mean(square(y) * y + sin(y)).backward();
    std::vector<std::vector<double>> all{values(y), values(x.grad())};
    for (const Parameter& p : net.parameters()) all.push_back(values(p.gradient()));
    for (const auto& [name, buffer] : net.named_buffers()) {
      all.push_back(values(buffer.data(on[0])));
      EXPECT_EQ(values(buffer.data(on.back())), all.back()) << name;
    }
    for (const int shard : {-1, 0}) {
      const RandomKey next = runtime_.random().next(shard);
      all.push_back({static_cast<double>(next.seed), static_cast<double>(next.stream)});
    }
    return all;
  }

  void expect_same_bits(const Forward& forward) {
    for (const Counts& counts : {Counts{16}, Counts{8, 8}, Counts{2, 2, 2, 2, 2, 2, 2, 2}}) {
      for (const bool synchronized : {false, true}) {
        const auto expected = bits(forward, kPlain, counts, 1, synchronized);
        EXPECT_EQ(bits(forward, kKept, counts, 1, synchronized), expected) << counts.size() << " shards";
        if (counts.size() == 1) continue;
        EXPECT_EQ(bits(forward, kKept, counts, 2, synchronized), expected) << counts.size() << " shards, two devices";
      }
    }
  }

  Runtime runtime_{small_devices(2)};
};

TEST_F(CheckpointedNet, HasTheSameBits) {
  expect_same_bits([](Sequential& net, const Tensor& x, const Call& call) { return call(net, x); });
}

TEST_F(CheckpointedNet, SharedParametersAddTheirGradientsInTheSameOrder) {
  expect_same_bits([](Sequential& net, const Tensor& x, const Call& call) {
    const Tensor once = call(net, x);
    const Tensor twice = call(net, once) * sum(square(net["0.weight"].tensor()));
    return net(twice) + call(net, sin(twice)) + net(once);
  });
}

TEST_F(CheckpointedNet, ACheckpointMayContainOthers) {
  expect_same_bits([](Sequential& net, const Tensor& x, const Call& call) {
    const auto f = [n = &net, c = &call](const Tensor& in) { return (*c)(*n, (*c)(*n, in) + in) + (*n)(in); };
    return &call == &kKept ? checkpoint(f, sin(x)) : f(sin(x));
  });
}

TEST_F(CheckpointedNet, KeepsTheModeOfTheFirstCall) {
  expect_same_bits([](Sequential& net, const Tensor& x, const Call& call) {
    const Tensor y = call(net, x);
    net.eval();
    return y;
  });
}

TEST_F(CheckpointedNet, ParametersHaveGradientsWithoutAnInputThatNeedsOne) {
  expect_same_bits([](Sequential& net, const Tensor& x, const Call& call) { return x + call(net, x.detach()); });
}

class CheckpointErrors : public ::testing::Test {
 protected:
  CheckpointErrors() { net_.initialize(Normal(0.5), runtime_.devices()); }
  Runtime runtime_{small_devices(1)};
  Sequential net_{Linear(2, 2), BatchNorm1d(2)};
  const Tensor x_ = Tensor::from({1.0F, 2.0F, 3.0F, 5.0F}, {2, 2}).to(runtime_.devices()[0]);
};

TEST_F(CheckpointErrors, AParameterThatIsChangedBeforeBackward) {
  const Tensor loss = sum(checkpoint(net_, x_));
  net_["0.weight"].set_data(Tensor::from({0.0F, 0.0F, 0.0F, 0.0F}, {2, 2}));
  EXPECT_ERROR(loss.backward(), "checkpoint: parameter 0.weight, which ");
  EXPECT_FALSE(net_["0.bias"].gradient().defined());
  sum(checkpoint(net_, x_)).backward();
  EXPECT_TRUE(net_["0.bias"].gradient().defined());
}

TEST_F(CheckpointErrors, AParameterThatIsReplacedBeforeBackward) {
  const Tensor loss = sum(checkpoint(net_, x_));
  ParameterChange::load(net_["0.bias"], Tensor::from({7.0F, 7.0F}, {2})).commit();
  EXPECT_ERROR(loss.backward(), "was replaced after forward");
}

// In evaluation, running statistics decide the result.
TEST_F(CheckpointErrors, RunningStatisticsThatMoveBeforeBackward) {
  net_.eval();
  const Tensor loss = sum(checkpoint(net_, x_));
  net_.train();
  net_(x_);
  EXPECT_ERROR(loss.backward(), "checkpoint: parameter 1.running_");
}

// Bytes at the peak of a training step of a deep net, in sizes of one activation.
double peak_of_blocks(const Call& call) {
  constexpr std::int64_t kWidth = 32, kRows = 4096;
  constexpr int kBlocks = 8;
  Runtime runtime(small_devices(1));
  std::vector<std::unique_ptr<Sequential>> blocks;
  for (int i = 0; i < kBlocks; ++i) {
    blocks.push_back(std::make_unique<Sequential>(Linear(kWidth, kWidth), Tanh(), Linear(kWidth, kWidth), Sigmoid(),
                                                  Linear(kWidth, kWidth), Tanh()));
    blocks.back()->initialize(Normal(0.1), runtime.devices());
  }
  Tensor y = Tensor(Random(1).floats({kRows, kWidth})).to(runtime.devices()[0]);
  for (auto& block : blocks) y = call(*block, y);
  const Tensor loss = mean(square(y));
  y = {};
  loss.backward();
  runtime.synchronize();
  return static_cast<double>(runtime.memory(runtime.devices()[0]).peak_used_bytes) / (4 * kRows * kWidth);
}

TEST(CheckpointMemory, IsThatOfTheInputsAndOfOneBlock) {
  const double plain = peak_of_blocks(kPlain), kept = peak_of_blocks(kKept);
  EXPECT_GT(plain, 8 * 3);  // the results of three activations in each block
  EXPECT_LT(kept, plain / 2);
}

}  // namespace
}  // namespace lockstep::testing
