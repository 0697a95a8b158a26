// Distributed data parallel with ranks as threads, each with its own runtime. lockstep_property_test.cc shows that
// training has the bits of one process.
#include "lockstep/parallel/distributed_data_parallel.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/bucket_reducer.h"
#include "lockstep/parallel/split.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

TEST(DistributedDataParallel, EveryRankStartsWithTheValuesOfRankZero) {
  std::vector<std::string> hashes(3);
  expect_fine(run_ranks(3, [&](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices(), {.seed = static_cast<std::uint64_t>(r.rank())});
    std::string own = weights_sha256(*net);
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
    hashes[static_cast<std::size_t>(r.rank())] = weights_sha256(*net);
    EXPECT_EQ(weights_sha256(*net) == own, r.rank() == 0);
  }));
  EXPECT_EQ(hashes[1], hashes[0]);
  EXPECT_EQ(hashes[2], hashes[0]);
}

// Rows of unequal number, on ranks of two devices, one without any: the gradient is that of all samples together.
TEST(DistributedDataParallel, EverySampleCountsTheSame) {
  const std::vector<std::int64_t> rows{5, 0, 3};
  testing::Random random(7);
  Tensor x = random.floats({8, 4}), y = random.floats({8, 2});
  Runtime alone({.cpu_devices = 1, .threads_per_shard = 1});
  auto net = two_layers();
  net->initialize(Xavier{}, alone.devices());
  mse_loss((*net)(split_and_load(x, alone.devices())), split_and_load(y, alone.devices())).backward();
  const std::vector<float> x_values = x.to_vector<float>(), y_values = y.to_vector<float>();
  std::vector<std::vector<float>> expected;
  for (const Parameter& p : net->parameters()) expected.push_back(p.gradient().to_vector<float>());

  expect_fine(run_ranks(
      3,
      [&](Rank& r) {
        auto copy = two_layers();
        copy->initialize(Xavier{}, r.runtime.devices());
        DistributedDataParallel ddp(*copy, r.runtime.devices(), r.communicator);
        EXPECT_EQ(ddp.shards(), 6);
        std::int64_t first = r.rank() == 2 ? 5 : 0;
        std::int64_t count = rows[static_cast<std::size_t>(r.rank())];
        // Copies: a host tensor takes part in one runtime's work at a time.
        Tensor own_x = Tensor::from(x_values, {8, 4}), own_y = Tensor::from(y_values, {8, 2});
        auto [mine, targets] = ddp.split<2>({own_x.narrow(0, first, count), own_y.narrow(0, first, count)});
        EXPECT_EQ(mine.size(0), 8);
        mse_loss(ddp(mine), targets).backward();
        std::size_t i = 0;
        for (const Parameter& p : copy->parameters()) {
          std::vector<float> gradient = p.gradient().to_vector<float>();
          for (std::size_t j = 0; j < gradient.size(); ++j) EXPECT_NEAR(gradient[j], expected[i][j], 1e-6);
          ++i;
        }
      },
      2));
}

// A branch that the data decides about: a parameter that some ranks, or none, have used.
struct Branches : Module {
  Linear always{{.in_features = 4, .out_features = 2}}, sometimes{{.in_features = 4, .out_features = 2}};
  Linear never{{.in_features = 4, .out_features = 2}};
  bool use = false;
  Branches() { add("always", always), add("sometimes", sometimes), add("never", never); }
  Tensor forward(const Tensor& x) override {
    Tensor y = always(x);
    return use ? y + sometimes(x) : y;
  }
};

TEST(DistributedDataParallel, ParametersWithoutGradientStayAsTheyAre) {
  std::vector<std::string> hashes(2);
  expect_fine(run_ranks(2, [&](Rank& r) {
    Branches net;
    net.initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(net, r.runtime.devices(), r.communicator);
    // With weight decay, a gradient of zero would change the weights.
    Sgd sgd(net.parameters(), {.lr = 0.1, .weight_decay = 0.5});
    testing::Random random(static_cast<std::uint64_t>(r.rank()));
    for (int step = 0; step < 3; ++step) {
      net.use = step == 1 && r.rank() == 1;
      auto sometimes = net.sometimes.weight.host_data().to_vector<float>();
      auto never = net.never.weight.host_data().to_vector<float>();
      auto [x, y] = ddp.split<2>({random.floats({4, 4}), random.floats({4, 2})});
      mse_loss(ddp(x), y).backward();
      sgd.step();
      EXPECT_EQ(net.never.weight.host_data().to_vector<float>(), never);
      EXPECT_EQ(net.sometimes.weight.host_data().to_vector<float>() == sometimes, step != 1);
    }
    hashes[static_cast<std::size_t>(r.rank())] = weights_sha256(net);
  }));
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(DistributedDataParallel, BucketsFollowBackward) {
  expect_fine(run_ranks(2, [](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator,
                                {.buckets = {.bytes = 130, .first_bytes = 10}});
    Sgd sgd(net->parameters(), {.lr = 0.1});
    // 2.bias (8 bytes) fits the first, 2.weight (64), 0.bias (32) and 0.weight (128) follow.
    EXPECT_EQ(ddp.reducer().buckets(), (std::vector<std::vector<std::size_t>>{{3}, {2, 1}, {0}}));
    testing::Random random(1);
    for (int step = 0; step < 3; ++step) {
      auto [x, y] = ddp.split<2>({random.floats({4, 4}), random.floats({4, 2})});
      mse_loss(ddp(x), y).backward();
      sgd.step();
    }
    // Backward of a linear layer finds the weight's gradient first.
    std::vector<std::size_t> order;
    for (const auto& bucket : ddp.reducer().buckets()) order.insert(order.end(), bucket.begin(), bucket.end());
    EXPECT_EQ(order, (std::vector<std::size_t>{2, 3, 0, 1}));
  }));
}

TEST(DistributedDataParallel, TwoOptimizersOnOneModel) {
  auto train = [](const std::vector<Device>& devices, Module& net, DistributedModel* ddp) {
    auto all = net.parameters();
    Sgd a({all[0], all[1]}, {.lr = 0.1}), b({all[2], all[3]}, {.lr = 0.2});
    testing::Random random(3);
    for (int step = 0; step < 4; ++step) {
      Tensor x = random.floats({4, 4}), y = random.floats({4, 2});
      Tensor bx, by;
      if (ddp) {
        auto [first, last] = ddp->rows_of(4);
        auto parts = ddp->split(std::vector{x.narrow(0, first, last - first), y.narrow(0, first, last - first)}, 4);
        bx = parts[0], by = parts[1];
      } else {
        bx = split_and_load(x, devices, {.shards = 2}), by = split_and_load(y, devices, {.shards = 2});
      }
      mse_loss(net(bx), by).backward();
      a.step();
      // The other one goes on adding up in every second step.
      if (step % 2 == 1) b.step();
    }
    return weights_sha256(net);
  };
  Runtime alone({.cpu_devices = 1, .threads_per_shard = 1});
  auto net = two_layers();
  net->initialize(Xavier{}, alone.devices());
  const std::string expected = train(alone.devices(), *net, nullptr);
  expect_fine(run_ranks(2, [&](Rank& r) {
    auto copy = two_layers();
    copy->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*copy, r.runtime.devices(), r.communicator);
    EXPECT_EQ(train(r.runtime.devices(), *copy, &ddp), expected);
  }));
}

// The reducer has taken the gradients out of their places before the first step.
TEST(DistributedDataParallel, TwoStepsOfOneGradientAreAnError) {
  expect_fine(run_ranks(2, [&](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
    const auto all = net->parameters();
    Sgd a({all[0], all[1]}, {.lr = 0.1}), b({all[0], all[2]}, {.lr = 0.2});
    auto [first, last] = ddp.rows_of(4);
    const auto parts = ddp.split(std::vector{ones({last - first, 4})}, 4);
    sum(square((*net)(parts[0]))).backward();
    a.step();
    EXPECT_ERROR(b.step(), "step: another optimizer's step has used and cleared the gradient of parameter");
  }));
}

// The same weight in two places: only one of its two gradients can be computed where they are summed from.
struct Tied : Module {
  Linear layer{{.in_features = 4, .out_features = 4}};
  Tied() { add("layer", layer); }
  Tensor forward(const Tensor& x) override { return layer(relu(layer(x))); }
};

TEST(DistributedDataParallel, AParameterMayBeUsedTwice) {
  const auto train = [](Module& net, const std::function<std::vector<Tensor>(Tensor, Tensor)>& split) {
    Sgd sgd(net.parameters(), {.lr = 0.1});
    testing::Random random(5);
    for (int step = 0; step < 4; ++step) {
      // A round of two backward() calls, and every other time the first without synchronizing.
      for (int half : {0, 1}) {
        auto parts = split(random.floats({6, 4}), random.floats({6, 4}));
        mse_loss(net(parts[0]), parts[1]).backward({.sync = half == 1 || step % 2 == 0});
      }
      sgd.step();
    }
    return weights_sha256(net);
  };
  Runtime alone({.cpu_devices = 1, .threads_per_shard = 1});
  Tied net;
  net.initialize(Xavier{}, alone.devices());
  const std::string expected = train(net, [&](const Tensor& x, const Tensor& y) {
    return std::vector{split_and_load(x, alone.devices(), {.shards = 3}),
                       split_and_load(y, alone.devices(), {.shards = 3})};
  });
  // Two ranks: one has a subtree of two shards, which it sums, the other a single one.
  for (int world : {2, 3}) {
    expect_fine(run_ranks(world, [&](Rank& r) {
      Tied copy;
      copy.initialize(Xavier{}, r.runtime.devices());
      DistributedDataParallel ddp(copy, r.runtime.devices(), r.communicator, {.split = {.shards = 3}});
      EXPECT_EQ(
          train(copy,
                [&](const Tensor& x, const Tensor& y) {
                  auto [first, last] = ddp.rows_of(6);
                  return ddp.split(std::vector{x.narrow(0, first, last - first), y.narrow(0, first, last - first)}, 6);
                }),
          expected);
    }));
  }
}

TEST(DistributedDataParallel, AGradientIsTheCallersOwn) {
  expect_fine(run_ranks(2, [](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
    Sgd sgd(net->parameters(), {.lr = 0.1});
    testing::Random random(1);
    std::vector<Tensor> held;
    std::vector<std::vector<float>> values;
    for (int step = 0; step < 3; ++step) {
      auto [x, y] = ddp.split<2>({random.floats({4, 4}), random.floats({4, 2})});
      mse_loss(ddp(x), y).backward();
      held.push_back(net->parameters()[0].gradient());
      values.push_back(held.back().to_vector<float>());
      sgd.step();
    }
    for (std::size_t i = 0; i < held.size(); ++i) EXPECT_EQ(held[i].to_vector<float>(), values[i]);
    EXPECT_NE(values[0], values[1]);
  }));
}

// Both models' gradients are summed, whichever of the two cut the batch.
TEST(DistributedDataParallel, TwoModelsMayBeTrainedByOneLoss) {
  std::array<std::string, 2> weights;
  expect_fine(run_ranks(2, [&](Rank& r) {
    auto net = two_layers();
    Linear head({.in_features = 2, .out_features = 2});
    net->initialize(Xavier{}, r.runtime.devices());
    head.initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
    DistributedDataParallel other(head, r.runtime.devices(), r.communicator);
    Sgd sgd(net->parameters(), {.lr = 0.1}), head_sgd(head.parameters(), {.lr = 0.1});
    testing::Random random(static_cast<std::uint64_t>(r.rank()));
    for (int step = 0; step < 3; ++step) {
      auto [x, y] = ddp.split<2>({random.floats({3, 4}), random.floats({3, 2})});
      mse_loss(head(ddp(x)), y).backward();
      sgd.step();
      head_sgd.step();
    }
    weights[static_cast<std::size_t>(r.rank())] = weights_sha256(*net) + weights_sha256(head);
  }));
  EXPECT_EQ(weights[0], weights[1]);
}

// As in one process: it counts once, whatever number of ranks there is.
TEST(DistributedDataParallel, APenaltyOnParametersAloneHasTheBitsOfOneProcess) {
  const auto train = [](Module& net, const std::function<std::vector<Tensor>(Tensor, Tensor)>& split) {
    Sgd sgd(net.parameters(), {.lr = 0.1});
    testing::Random random(5);
    for (int step = 0; step < 4; ++step) {
      const auto parts = split(random.floats({6, 4}), random.floats({6, 2}));
      Tensor penalty;
      for (const Parameter& p : net.parameters()) {
        const Tensor squares = sum(square(p));
        penalty = penalty.defined() ? penalty + squares : squares;
      }
      // In the loss, and every other time by itself.
      const Tensor loss = mse_loss(net(parts[0]), parts[1]);
      if (step % 2 == 0) {
        (loss + penalty * 0.01).backward();
      } else {
        loss.backward();
        (penalty * 0.01).backward();
      }
      sgd.step();
    }
    return weights_sha256(net);
  };
  Runtime alone({.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1});
  std::vector<std::string> found;
  for (std::size_t devices : {1U, 2U}) {
    const std::vector<Device> some(alone.devices().begin(),
                                   alone.devices().begin() + static_cast<std::ptrdiff_t>(devices));
    auto net = two_layers();
    net->initialize(Xavier{}, some);
    found.push_back(train(*net, [&](const Tensor& x, const Tensor& y) {
      return std::vector{split_and_load(x, some, {.shards = 4}), split_and_load(y, some, {.shards = 4})};
    }));
  }
  EXPECT_EQ(found[0], found[1]);
  for (int world : {2, 4}) {
    expect_fine(run_ranks(world, [&](Rank& r) {
      auto net = two_layers();
      net->initialize(Xavier{}, r.runtime.devices());
      DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator, {.split = {.shards = 4}});
      EXPECT_EQ(
          train(*net,
                [&](const Tensor& x, const Tensor& y) {
                  auto [first, last] = ddp.rows_of(6);
                  return ddp.split(std::vector{x.narrow(0, first, last - first), y.narrow(0, first, last - first)}, 6);
                }),
          found[0]);
    }));
  }
}

// Two models, and a collective of the user's own, between what the lanes do.
TEST(DistributedDataParallel, SharesItsGroupWithOthers) {
  expect_fine(run_ranks(2, [](Rank& r) {
    auto a = two_layers(), b = two_layers(16);
    a->initialize(Xavier{}, r.runtime.devices());
    b->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp_a(*a, r.runtime.devices(), r.communicator);
    DistributedDataParallel ddp_b(*b, r.runtime.devices(), r.communicator);
    Sgd sgd_a(a->parameters(), {.lr = 0.1}), sgd_b(b->parameters(), {.lr = 0.1});
    testing::Random random(1);
    for (int step = 0; step < 5; ++step) {
      auto [x, y] = ddp_a.split<2>({random.floats({4, 4}), random.floats({4, 2})});
      mse_loss(ddp_a(x), y).backward();
      auto [u, v] = ddp_b.split<2>({random.floats({4, 4}), random.floats({4, 2})});
      mse_loss(ddp_b(u), v).backward();
      sgd_a.step();
      sgd_b.step();
      float metric = 1;
      r.group->all_reduce({&metric, 1, DType::f32}, ReduceOp::sum).wait();
      EXPECT_EQ(metric, 2);
    }
  }));
}

}  // namespace
}  // namespace lockstep
