// Backward passes over ranks that fail, that accumulate without exchanges, and that use a layer twice: the bits are
// those of one process.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "lockstep/autograd/function.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/split.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

// A model in one process, or with ddp in one rank of several.
struct Worker {
  Module& net;
  const std::vector<Device>& devices;
  int shards;
  DistributedModel* ddp = nullptr;

  // The worker's rows of x, in shards.
  Tensor cut(const Tensor& x) const {
    if (!ddp) return split_and_load(x, devices, {.shards = shards});
    const auto [first, last] = ddp->rows_of(x.size(0));
    return ddp->split(std::array{x.narrow(0, first, last - first)}, x.size(0))[0];
  }
};

using MakeNet = std::function<std::unique_ptr<Module>()>;
using TrainWorker = std::function<std::string(const Worker&)>;

std::string in_one_process(int shards, const MakeNet& make, const TrainWorker& run) {
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  const auto net = make();
  net->initialize(Xavier{}, runtime.devices());
  return run({*net, runtime.devices(), shards});
}

// Ranks of one shard write gradients into their bucket directly; those of several sum them before.
void expect_bits_of_one_process(const MakeNet& make, const TrainWorker& run) {
  for (const auto& [world, shards] : {std::pair{2, 2}, {2, 3}, {2, 4}, {4, 4}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} shards", world, shards));
    const std::string expected = in_one_process(shards, make, run);
    expect_fine(run_ranks(world, [&, shards = shards](Rank& r) {
      const auto net = make();
      net->initialize(Xavier{}, r.runtime.devices());
      DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator, {.split = {.shards = shards}});
      EXPECT_EQ(run({*net, r.runtime.devices(), shards, &ddp}), expected) << "rank " << r.rank();
    }));
  }
}

struct NoGradientToday : Function {
  Tensor forward(const Tensor& x) { return x * 1; }
  Tensor backward(const Tensor&) { fail("no gradient today"); }
};

// Each step has a pass, one that fails after it has found all gradients of the net, and another one.
std::string train_with_failures(const Worker& w, bool failures) {
  Sgd sgd(w.net.parameters(), {.lr = 0.1, .momentum = 0.9});
  testing::Random random(1);
  for (int step = 0; step < 3; ++step) {
    for (const bool fails : {false, true, false}) {
      const Tensor x = testing::as_leaf(w.cut(random.floats({6, 4}))), y = w.cut(random.floats({6, 2}));
      if (!fails) {
        mse_loss(w.net(x), y).backward();
      } else if (failures) {
        const Tensor broken = apply<NoGradientToday>(x);
        EXPECT_ERROR((mse_loss(w.net(x), y) + sum(broken)).backward(), "no gradient today");
      }
    }
    sgd.step();
  }
  return weights_sha256(w.net);
}

TEST(RankPasses, AFailedPassLeavesNoTrace) {
  const MakeNet make = [] { return two_layers(); };
  const TrainWorker with = [](const Worker& w) { return train_with_failures(w, true); };
  EXPECT_EQ(in_one_process(4, make, with),
            in_one_process(4, make, [](const Worker& w) { return train_with_failures(w, false); }));
  expect_bits_of_one_process(make, with);
}

// Three passes a step, the first two of them without an exchange.
std::string train_accumulating(const Worker& w, bool no_sync) {
  Sgd sgd(w.net.parameters(), {.lr = 0.1, .momentum = 0.9});
  testing::Random random(2);
  for (int step = 0; step < 3; ++step) {
    for (int pass = 0; pass < 3; ++pass) {
      const bool held = no_sync && pass < 2;
      // The second one begins while the first one's gradients wait.
      const auto guard = held && w.ddp ? w.ddp->no_sync() : nullptr;
      const Tensor x = w.cut(random.floats({7 - pass, 4})), y = w.cut(random.floats({7 - pass, 2}));
      mse_loss(w.net(x), y).backward({.sync = w.ddp || !held});
    }
    sgd.step();
  }
  return weights_sha256(w.net);
}

TEST(RankPasses, UnderNoSyncHaveTheBitsOfOneProcessThatAccumulates) {
  const MakeNet make = [] { return two_layers(); };
  const TrainWorker with = [](const Worker& w) { return train_accumulating(w, true); };
  // Other sums than those of three exchanges.
  EXPECT_NE(in_one_process(4, make, with),
            in_one_process(4, make, [](const Worker& w) { return train_accumulating(w, false); }));
  expect_bits_of_one_process(make, with);
}

struct NormedTwice : Module {
  Conv2d conv{{.in_channels = 2, .out_channels = 3, .kernel_size = 1}};
  BatchNorm2d norm;
  explicit NormedTwice(bool synchronized) : norm({.channels = 3, .synchronized = synchronized}) {
    add("conv", conv), add("norm", norm);
  }
  Tensor forward(const Tensor& x) override { return norm(relu(norm(conv(x)))); }
};

// The hash covers the running statistics.
TEST(RankPasses, ThatReachABatchNormTwiceMoveItsStatisticsTwice) {
  for (const bool synchronized : {false, true}) {
    SCOPED_TRACE(synchronized);
    expect_bits_of_one_process([=] { return std::make_unique<NormedTwice>(synchronized); },
                               [](const Worker& w) {
                                 Sgd sgd(w.net.parameters(), {.lr = 0.1});
                                 testing::Random random(3);
                                 for (int step = 0; step < 3; ++step) {
                                   mean(square(w.net(w.cut(random.floats({7, 2, 2, 3}))) - 0.5)).backward();
                                   sgd.step();
                                 }
                                 EXPECT_EQ(w.net.buffer("norm.num_batches_tracked").host_data().item<std::int64_t>(),
                                           6);
                                 return weights_sha256(w.net);
                               });
  }
}

}  // namespace
}  // namespace lockstep
