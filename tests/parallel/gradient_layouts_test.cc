// Gradients that a program reads, sets, maps, or hooks mean the same in one process and in many: the weights have the
// same bits on every layout.
#include <gtest/gtest.h>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/split.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

// One layer is frozen, one is used from the third step on, and one is never used.
struct PartlyUsedNet : Module {
  Linear& first = make<Linear>("first", {.in_features = 4, .out_features = 6});
  Linear& frozen = make<Linear>("frozen", {.in_features = 6, .out_features = 6});
  Linear& late = make<Linear>("late", {.in_features = 6, .out_features = 6});
  Linear& last = make<Linear>("last", {.in_features = 6, .out_features = 2});
  Linear& never = make<Linear>("never", {.in_features = 6, .out_features = 2});
  bool uses_late = false;
  Tensor forward(const Tensor& x) override {
    const Tensor h = frozen(dropout(relu(first(x)), 0.2));
    return last(uses_late ? h + late(h) : h);
  }
};

struct Action {
  std::string name;
  // Before the first step, at the beginning of each step, and between backward() and step().
  std::function<void(PartlyUsedNet&)> before = [](PartlyUsedNet&) {}, begin = before;
  std::function<void(PartlyUsedNet&, Optimizer&)> between = [](PartlyUsedNet&, Optimizer&) {};
  // Micro-batches of a step.
  int passes = 1;
  bool sync = true;
};

constexpr std::int64_t kRows = 24;
constexpr int kSteps = 4;

std::string train(const Action& action, const std::vector<Device>& devices, int shards,
                  const std::shared_ptr<Communicator>& communicator) {
  PartlyUsedNet net;
  net.initialize(Xavier{}, devices);
  net.frozen.freeze();
  std::unique_ptr<DistributedModel> ddp;
  if (communicator) {
    ddp =
        std::make_unique<DistributedModel>(net, devices, communicator, DistributedOptions{.split = {.shards = shards}});
  }
  Adam adam(net.parameters(), {.lr = 0.05, .weight_decay = 0.1});
  action.before(net);
  testing::Random random(5);
  for (int step = 0; step < kSteps; ++step) {
    net.uses_late = step >= 2;
    action.begin(net);
    for (int pass = 0; pass < action.passes; ++pass) {
      Example batch{random.floats({kRows, 4}), random.floats({kRows, 2})};
      const bool sync = action.sync || pass + 1 == action.passes;
      if (ddp) {
        const auto [first, last] = ddp->rows_of(kRows);
        for (Tensor& part : batch) part = part.narrow(0, first, last - first);
        batch = ddp->split(batch, kRows);
      } else {
        for (Tensor& part : batch) part = split_and_load(part, devices, {.shards = shards});
      }
      mse_loss(net(batch[0]), batch[1]).backward({.share = 1.0 / action.passes, .sync = sync});
    }
    action.between(net, adam);
    adam.step();
  }
  return weights_sha256(net);
}

std::vector<std::string> on_ranks(const Action& action, int world, int shards) {
  std::vector<std::string> hashes(static_cast<std::size_t>(world));
  expect_fine(run_ranks(world, [&](Rank& r) {
    hashes[static_cast<std::size_t>(r.rank())] = train(action, r.runtime.devices(), shards, r.communicator);
  }));
  return hashes;
}

std::string in_one_process(const Action& action, int devices, int shards) {
  Runtime runtime({.cpu_devices = devices, .cores_per_device = 1, .threads_per_shard = 1});
  return train(action, runtime.devices(), shards, nullptr);
}

// Returns the hash of each number of shards.
std::vector<std::string> expect_equal_bits(const Action& action) {
  std::vector<std::string> all;
  for (const int shards : {1, 8}) {
    SCOPED_TRACE(fmt::format("{}, {} shards", action.name, shards));
    const std::string expected = in_one_process(action, 1, shards);
    EXPECT_EQ(on_ranks(action, 1, shards), std::vector(1, expected));
    if (shards > 1) {
      EXPECT_EQ(in_one_process(action, 2, shards), expected);
      EXPECT_EQ(on_ranks(action, 2, shards), std::vector(2, expected));
    }
    all.push_back(expected);
  }
  return all;
}

// Noise that the step and the parameter decide.
Tensor noise(const Tensor& g) { return g + randn(g.shape(), like(g)) * 0.01; }

std::vector<Action> actions() {
  const auto clamped = [](const Tensor& g) { return clamp(g, -0.02, 0.02); };
  const auto hook = [](const Tensor& g) { return tanh(g * 3) + 0.001; };
  std::vector<Action> all;
  all.push_back({.name = "set", .between = [](PartlyUsedNet& net, Optimizer&) {
                   for (const Parameter& p : net.parameters()) {
                     const Tensor g = p.gradient();
                     if (g.defined()) p.set_gradient(g * g);
                   }
                   net.never.bias.set_gradient(Tensor::from<float>({0.5F, -0.0F}, {2}));
                 }});
  all.push_back({.name = "map", .between = [=](PartlyUsedNet& net, Optimizer&) {
                   for (const Parameter& p : net.parameters()) p.map_gradient(clamped);
                 }});
  all.push_back({.name = "value", .between = [](PartlyUsedNet&, Optimizer& adam) { adam.clip_grad_value(0.02); }});
  all.push_back({.name = "value and norm", .between = [](PartlyUsedNet&, Optimizer& adam) {
                   adam.clip_grad_norm(0.5);
                   adam.clip_grad_value(0.02);
                   adam.clip_grad_norm(0.05);
                 }});
  all.push_back({.name = "noise", .between = [](PartlyUsedNet&, Optimizer& adam) {
                   adam.map_gradients(
                       [](const Tensor& g, const Parameter& p) { return p.shape().dim() > 1 ? noise(g) : g; });
                 }});
  all.push_back({.name = "hooks", .before = [=](PartlyUsedNet& net) {
                   net.first.weight.register_hook(hook);
                   net.first.weight.register_hook(noise);
                   net.late.bias.register_hook(hook);
                   net.never.weight.register_hook(hook);
                 }});
  // The pass adds to it, or has no gradient to add.
  all.push_back({.name = "set, then a pass",
                 .before = [=](PartlyUsedNet& net) { net.late.bias.register_hook(hook); },
                 .begin =
                     [](PartlyUsedNet& net) {
                       net.late.bias.set_gradient(Tensor::from<float>({1, -0.0F, 3, -4, 5, -6}, {6}));
                     }});
  for (const bool sync : {true, false}) {
    all.push_back({.name = sync ? "rounds" : "no sync",
                   .before = [=](PartlyUsedNet& net) { net.last.weight.register_hook(hook); },
                   .between = [=](PartlyUsedNet& net, Optimizer&) { net.first.weight.map_gradient(clamped); },
                   .passes = 3,
                   .sync = sync});
  }
  return all;
}

TEST(GradientLayouts, EveryChangeHasTheBitsOfOneDevice) {
  const std::vector<std::string> plain = expect_equal_bits({.name = "nothing"});
  for (const Action& action : actions()) {
    const std::vector<std::string> changed = expect_equal_bits(action);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NE(changed[i], plain[i]) << action.name;
  }
}

// Reading is no change.
TEST(GradientLayouts, ReadingChangesNothing) {
  const auto read = [](PartlyUsedNet& net, Optimizer&) {
    for (const Parameter& p : net.parameters()) p.gradient();
  };
  EXPECT_EQ(expect_equal_bits({.name = "read", .between = read}), expect_equal_bits({.name = "nothing"}));
}

// A change in place would count in one process alone.
TEST(GradientLayouts, AChangeInPlaceIsAnErrorOnEveryLayout) {
  const auto change = [](PartlyUsedNet& net, Optimizer& adam) {
    const Tensor g = net.first.weight.gradient();
    EXPECT_ERROR(g.copy_from(zeros({6, 4})), "gradient: it cannot be changed in place");
    EXPECT_ERROR(g.copy_from(g * 2), "use set_gradient(), map_gradient(), or register_hook() of the parameter");
    EXPECT_ERROR(net.first.weight.map_gradient([](const Tensor& x) { return x.copy_from(x * 2), x; }),
                 "gradient: it cannot be changed in place");
    EXPECT_ERROR(adam.map_gradients([](const Tensor& x, const Parameter&) { return x.copy_from(x * 2), x; }),
                 "gradient: it cannot be changed in place");
  };
  EXPECT_EQ(expect_equal_bits({.name = "in place", .between = change}), expect_equal_bits({.name = "nothing"}));
}

// In one process the sum over shards, with several the sum over ranks, too, is made by the next pass with sync.
TEST(GradientLayouts, WhatIsNotSummedYetCannotBeSet) {
  const auto expect_errors = [](const std::vector<Device>& devices, const std::shared_ptr<Communicator>& communicator) {
    PartlyUsedNet net;
    net.initialize(Xavier{}, devices);
    DistributedModel ddp(net, devices, communicator, {.split = {.shards = 2}});
    Adam adam(net.parameters(), {});
    testing::Random random(5);
    const auto run = [&](bool sync) {
      const auto batch = ddp.split<2>({random.floats({4, 4}), random.floats({4, 2})});
      mse_loss(net(batch[0]), batch[1]).backward({.sync = sync});
    };
    run(false);
    const Parameter& p = net.first.weight;
    EXPECT_ERROR(p.set_gradient(zeros({6, 4})), "gradient: it is not summed yet: expected a backward() with sync");
    EXPECT_ERROR(p.map_gradient([](const Tensor& g) { return g; }), "gradient: it is not summed yet");
    EXPECT_ERROR(adam.clip_grad_value(1), "gradient: it is not summed yet");
    run(true);
    p.set_gradient(zeros({6, 4}));
    adam.clip_grad_value(1);
    adam.step();
  };
  expect_fine(run_ranks(2, [&](Rank& r) { expect_errors(r.runtime.devices(), r.communicator); }));
}

}  // namespace
}  // namespace lockstep
