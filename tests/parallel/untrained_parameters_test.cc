// With several processes, ranks do not exchange gradients of parameters that are frozen or that no optimizer has.
// lockstep_property_test.cc shows that the bits of the others are those of one process.
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/bucket_reducer.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/split.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

std::vector<std::size_t> in_buckets(const DistributedModel& ddp) {
  std::vector<std::size_t> all;
  for (const auto& bucket : ddp.reducer().buckets()) all.insert(all.end(), bucket.begin(), bucket.end());
  std::ranges::sort(all);
  return all;
}

void learn(DistributedModel& ddp, Optimizer& optimizer, testing::Random& random) {
  auto [x, y] = ddp.split<2>({random.floats({4, 4}), random.floats({4, 2})});
  mse_loss(ddp.module()(x), y).backward();
  optimizer.step();
}

// Frozen from the start, later, and no longer.
TEST(UntrainedParameters, FrozenParametersAreInNoBucket) {
  using Numbers = std::vector<std::size_t>;
  std::vector<std::string> hashes(2);
  expect_fine(run_ranks(2, [&](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    const std::vector<Parameter> all = net->parameters();
    all[0].set_trainable(false);
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
    EXPECT_EQ(in_buckets(ddp), (Numbers{1, 2, 3}));
    Sgd sgd(all, {.lr = 0.1, .weight_decay = 0.1});
    testing::Random random(static_cast<std::uint64_t>(r.rank()));
    const auto value = [&](std::size_t i) { return all[i].host_data().to_vector<float>(); };
    const auto start = value(0);
    for (int step = 0; step < 2; ++step) learn(ddp, sgd, random);
    EXPECT_EQ(value(0), start);
    all[1].set_trainable(false);
    const auto one = value(1), two = value(2);
    for (int step = 0; step < 2; ++step) learn(ddp, sgd, random);
    EXPECT_EQ(in_buckets(ddp), (Numbers{2, 3}));
    EXPECT_EQ(value(1), one);
    EXPECT_NE(value(2), two);
    net->unfreeze();
    for (int step = 0; step < 2; ++step) learn(ddp, sgd, random);
    EXPECT_EQ(in_buckets(ddp), (Numbers{0, 1, 2, 3}));
    EXPECT_NE(value(0), start);
    hashes[static_cast<std::size_t>(r.rank())] = weights_sha256(*net);
  }));
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(UntrainedParameters, WhatNoOptimizerHasDoesNotTravelNorStay) {
  expect_fine(run_ranks(2, [&](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    const std::vector<Parameter> all = net->parameters();
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
    testing::Random random(static_cast<std::uint64_t>(r.rank()));
    const auto find_gradients = [&] {
      auto [x, y] = ddp.split<2>({random.floats({4, 4}), random.floats({4, 2})});
      mse_loss(ddp(x), y).backward();
    };
    // Without any optimizer the gradients are the caller's.
    find_gradients();
    for (const Parameter& p : all) EXPECT_TRUE(p.gradient().defined());
    Sgd sgd({all[2], all[3]}, {.lr = 0.1});
    sgd.step();
    for (int step = 0; step < 3; ++step) {
      find_gradients();
      EXPECT_EQ(in_buckets(ddp), (std::vector<std::size_t>{2, 3}));
      for (std::size_t i : {0, 1}) {
        EXPECT_FALSE(all[i].gradient_state().present());
        EXPECT_FALSE(all[i].gradient().defined());
      }
      EXPECT_TRUE(all[2].gradient().defined());
      sgd.step();
    }
  }));
}

TEST(UntrainedParameters, RanksThatFreezeOtherParametersAreToldSo) {
  for (const std::string& error : run_ranks(2, [](Rank& r) {
         auto net = two_layers();
         net->initialize(Xavier{}, r.runtime.devices());
         if (r.rank() == 1) net->parameters()[2].set_trainable(false);
         DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
       })) {
    EXPECT_EQ(error,
              "rank 1: has 'frozen parameter 2.weight [2, 8] f32' where rank 0 has 'parameter 2.weight [2, 8] f32': "
              "all ranks need the same model and recipe");
  }
}

// A net with a part that its first steps do not use.
struct LateNet : Module {
  Linear& early = make<Linear>("early", {.in_features = 4, .out_features = 2});
  Linear& late = make<Linear>("late", {.in_features = 4, .out_features = 2});
  bool uses_late = false;
  Tensor forward(const Tensor& x) override { return uses_late ? early(x) + late(x) : early(x); }
};

// Adam counts the steps of each parameter, where a rank sees zeros instead of no gradient.
TEST(UntrainedParameters, OneThatIsUsedLateHasTheBitsOfOneProcess) {
  const auto train = [](const std::vector<Device>& devices, const std::shared_ptr<Communicator>& communicator) {
    LateNet net;
    net.initialize(Xavier{}, devices);
    std::unique_ptr<DistributedModel> ddp;
    if (communicator) {
      ddp = std::make_unique<DistributedModel>(net, devices, communicator, DistributedOptions{.split = {.shards = 2}});
    }
    Adam adam(net.parameters(), {.lr = 0.1});
    testing::Random random(5);
    for (int step = 0; step < 6; ++step) {
      net.uses_late = step >= 3;
      Example batch{random.floats({8, 4}), random.floats({8, 2})};
      if (ddp) {
        const auto [first, last] = ddp->rows_of(8);
        for (Tensor& part : batch) part = part.narrow(0, first, last - first);
        batch = ddp->split(batch, 8);
      } else {
        for (Tensor& part : batch) part = split_and_load(part, devices, {.shards = 2});
      }
      mse_loss(net(batch[0]), batch[1]).backward();
      adam.step();
    }
    return weights_sha256(net);
  };
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  const std::string expected = train(runtime.devices(), nullptr);
  std::vector<std::string> hashes(2);
  expect_fine(run_ranks(
      2, [&](Rank& r) { hashes[static_cast<std::size_t>(r.rank())] = train(r.runtime.devices(), r.communicator); }));
  EXPECT_EQ(hashes, std::vector(2, expected));
}

// Gradients that wait to be summed would be lost.
TEST(UntrainedParameters, AParameterJoinsBetweenStepsOnly) {
  for (const std::string& error : run_ranks(2, [](Rank& r) {
         auto net = two_layers();
         net->initialize(Xavier{}, r.runtime.devices());
         net->parameters()[0].set_trainable(false);
         DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
         Sgd sgd(net->parameters(), {.lr = 0.1});
         testing::Random random(1);
         for (int round = 0; round < 2; ++round) {
           auto [x, y] = ddp.split<2>({random.floats({4, 4}), random.floats({4, 2})});
           mse_loss(ddp(x), y).backward();
           net->unfreeze();
         }
       })) {
    EXPECT_NE(error.find("parameter 0.weight is now trained, but gradients of an earlier backward() are still waiting"),
              std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace lockstep
