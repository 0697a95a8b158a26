// An optimizer of the program's own over ranks: the bits of one process, also where a rank has no gradient.
#include <gtest/gtest.h>

#include <array>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/recorded_step.h"
#include "lockstep/parallel/split.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

struct Lion : Optimizer {
  explicit Lion(const ParameterGroups& parameters) : Optimizer(parameters, 0.01, 0.1, {"exp_avg"}) {}
  Rule rule() const override { return {"lion", {}}; }
  void update(ParameterUpdate& u) override {
    Tensor& m = u.state("exp_avg");
    u.weight -= u.lr * (sign(0.9 * m + 0.1 * u.grad) + u.weight_decay * u.weight);
    m = 0.99 * m + 0.01 * u.grad;
  }
};

// The second layer is used in odd steps only.
struct Sometimes : Module {
  Linear& first = make<Linear>("first", LinearOptions{.in_features = 4, .out_features = 3});
  Linear& second = make<Linear>("second", LinearOptions{.in_features = 3, .out_features = 3});
  bool both = false;
  Tensor forward(const Tensor& x) override { return both ? second(first(x)) : first(x); }
};

template <typename Cut>
std::string train(Sometimes& net, const Cut& cut) {
  Lion lion(net.parameters());
  testing::Random random(1);
  for (int step = 0; step < 4; ++step) {
    net.both = step % 2 == 1;
    const Tensor x = cut(random.floats({6, 4})), y = cut(random.floats({6, 3}));
    mse_loss(net(x), y).backward();
    lion.clip_grad_norm(0.5);
    lion.step();
  }
  return weights_sha256(net);
}

std::string on_devices(int devices, bool records = false) {
  Runtime runtime({.cpu_devices = devices, .threads_per_shard = 1});
  Sometimes net;
  net.initialize(Xavier{}, runtime.devices());
  const auto cut = [&](const Tensor& x) { return split_and_load(x, runtime.devices(), {.shards = 2}); };
  if (!records) return train(net, cut);
  Lion lion(net.parameters());
  RecordedStep step([&](std::span<const Tensor> in) {
    const Tensor loss = mse_loss(net(in[0]), in[1]);
    loss.backward();
    lion.step();
    return std::vector<Tensor>{loss};
  });
  testing::Random random(1);
  for (int i = 0; i < 4; ++i) {
    const Tensor x = cut(random.floats({6, 4})), y = cut(random.floats({6, 3}));
    step.run({x, y});
  }
  EXPECT_EQ(step.why_not(), "the optimizer lion computes with numbers of the host");
  EXPECT_EQ(lion.steps(), 4);
  return weights_sha256(net);
}

TEST(OwnOptimizerRanksTest, HasTheBitsOfOneProcess) {
  const std::string expected = on_devices(1);
  EXPECT_EQ(on_devices(2), expected);
  expect_fine(run_ranks(2, [&](Rank& r) {
    Sometimes net;
    net.initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(net, r.runtime.devices(), r.communicator, {.split = {.shards = 2}});
    const auto cut = [&](const Tensor& x) {
      const auto [first, last] = ddp.rows_of(x.size(0));
      return ddp.split(std::array{x.narrow(0, first, last - first)}, x.size(0))[0];
    };
    EXPECT_EQ(train(net, cut), expected) << "rank " << r.rank();
  }));
}

TEST(OwnOptimizerRanksTest, ARecordedStepDescribesEachStep) { EXPECT_EQ(on_devices(1, true), on_devices(2, true)); }

}  // namespace
}  // namespace lockstep
