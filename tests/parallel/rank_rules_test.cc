// User code around a model gives the same result on two ranks as on one, or throws on both.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/split.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

using Numbers = std::vector<double>;

// The results of one rank and of each of two ranks.
Numbers on_one_and_two_ranks(const std::function<Numbers(Rank&)>& find) {
  Numbers one;
  for (int world : {1, 2}) {
    expect_fine(run_ranks(world, [&](Rank& r) {
      const Numbers found = find(r);
      if (world == 1) {
        one = found;
      } else {
        EXPECT_EQ(found, one) << "rank " << r.rank();
      }
    }));
  }
  return one;
}

// A model, its parameters 1, and batches in two shards.
template <typename Net>
struct Wrapped {
  template <typename Options>
  Wrapped(Rank& r, Options options)
      : net(options), ddp(initialized(net, r), r.runtime.devices(), r.communicator, {.split = {.shards = 2}}) {}
  static Net& initialized(Net& net, Rank& r) {
    net.initialize(Constant{1}, r.runtime.devices());
    return net;
  }
  Tensor rows(const Tensor& x) {
    const auto [first, last] = ddp.rows_of(x.size(0));
    return x.narrow(0, first, last - first);
  }
  Tensor cut(const Tensor& x) { return ddp.split(std::array{rows(x)}, x.size(0))[0]; }
  Numbers gradient() { return testing::values(net.weight.gradient()); }

  Net net;
  DistributedDataParallel<Net> ddp;
};

LinearOptions features(std::int64_t n) { return {.in_features = n, .out_features = 1, .bias = false}; }

// first, first + 1, ...
Tensor counted(const Shape& shape, float first = 1) {
  std::vector<float> all(static_cast<std::size_t>(shape.numel()));
  std::iota(all.begin(), all.end(), first);
  return Tensor::from(all, shape);
}

// The second rank has no sample of the small batch.
TEST(RankRules, ALossOfTwoBatchesOneOfWhichLeavesARankIdle) {
  for (bool small_first : {false, true}) {
    for (bool small_made_first : {false, true}) {
      EXPECT_EQ(on_one_and_two_ranks([&](Rank& r) {
                  Wrapped<Linear> m(r, features(1));
                  const Tensor small = m.cut(counted({1, 1}, 2)), large = m.cut(counted({4, 1}));
                  Tensor of_small, of_large;
                  if (small_made_first) of_small = mean(m.net(small));
                  of_large = mean(m.net(large));
                  if (!small_made_first) of_small = mean(m.net(small));
                  (small_first ? of_small + of_large : of_large + of_small).backward();
                  return m.gradient();
                }),
                Numbers{4.5});
    }
  }
}

// Nor has it statistics.
TEST(RankRules, BatchNormOfTwoBatchesOneOfWhichLeavesARankIdle) {
  for (bool small_first : {false, true}) {
    const Numbers found = on_one_and_two_ranks([&](Rank& r) {
      Wrapped<BatchNorm2d> m(r, BatchNorm2dOptions{.channels = 1});
      const Tensor small = m.cut(counted({1, 1, 1, 2}, 2)), large = m.cut(counted({4, 1, 1, 2}));
      Tensor loss;
      for (bool first : {true, false}) {
        const Tensor part = mean(square(m.net(first == small_first ? small : large)));
        loss = first ? part : loss + part;
      }
      loss.backward();
      return Numbers{m.gradient()[0], testing::values(m.net.bias.gradient())[0]};
    });
    // mean(xhat^2) is nearly 1 for each; the mean of xhat is 0.
    EXPECT_NEAR(found[0], 4, 1e-3);
    EXPECT_NEAR(found[1], 0, 1e-5);
  }
}

// The samples give 3, 7, 11, 15 and 19.
TEST(RankRules, ReductionsOverTheBatchAreThoseOfAllRanks) {
  EXPECT_EQ(on_one_and_two_ranks([](Rank& r) {
              Wrapped<Linear> m(r, features(2));
              const Tensor y = m.net(m.cut(counted({5, 2}))), largest = amax(y), variance = var(y, {0, 1});
              (largest * 2 + variance).backward();
              const Numbers gradient = m.gradient();
              return Numbers{testing::values(largest)[0], testing::values(variance)[0], testing::values(amin(y, 0))[0],
                             gradient[0], gradient[1]};
            }),
            (Numbers{19, 40, 3, 58, 60}));
}

TEST(RankRules, AResultOfAnotherBatchIsRefused) {
  expect_fine(run_ranks(2, [&](Rank& r) {
    Wrapped<Linear> m(r, features(1));
    const Tensor small = m.cut(counted({1, 1})), result = mean(m.net(m.cut(counted({4, 1})))).reshape({1, 1});
    EXPECT_ERROR(small * result, "was computed from another batch");
  }));
}

TEST(RankRules, AParameterMayBeJoinedWithSamplesInPerShard) {
  EXPECT_EQ(on_one_and_two_ranks([](Rank& r) {
              Wrapped<Linear> m(r, features(1));
              const auto f = [&](const Tensor& t) {
                const Tensor joined = concatenate(std::array<Tensor, 2>{m.net.weight, t});
                return joined.narrow(0, 1, t.size(0)) * sum(joined.narrow(0, 0, 1));
              };
              sum(per_shard(f, m.cut(counted({4, 1})))).backward();
              return m.gradient();
            }),
            Numbers{10});
}

TEST(RankRules, AWholeLeafInPerShardHasTheGradientOfAllRanks) {
  EXPECT_EQ(on_one_and_two_ranks([](Rank& r) {
              Wrapped<Linear> m(r, features(1));
              Tensor w = testing::as_leaf(counted({1, 1}, 2).to(r.runtime.devices()[0]));
              const auto f = [&](const Tensor& t) {
                const Tensor joined = concatenate(std::array{t, w});
                return joined.narrow(0, 0, t.size(0)) * sum(joined.narrow(0, t.size(0), 1));
              };
              sum(per_shard(f, m.cut(counted({4, 1})))).backward();
              return testing::values(w.grad());
            }),
            Numbers{10});
}

TEST(RankRules, APenaltyOnConcatenatedParametersCountsOnce) {
  EXPECT_EQ(on_one_and_two_ranks([](Rank& r) {
              Wrapped<Linear> m(r, LinearOptions{.in_features = 1, .out_features = 1});
              sum(square(concatenate(std::array<Tensor, 2>{m.net.weight.tensor().reshape({1}), m.net.bias}) + 1.0))
                  .backward();
              return Numbers{m.gradient()[0], testing::values(m.net.bias.gradient())[0]};
            }),
            (Numbers{4, 2}));
}

// Each rank would have the gradient of its own rows alone.
TEST(RankRules, RowsWithAHistoryAreRefused) {
  for (int world : {1, 2}) {
    expect_fine(run_ranks(world, [](Rank& r) {
      Wrapped<Linear> m(r, features(1));
      const Tensor computed = m.net(m.rows(counted({4, 1})).to(r.runtime.devices()[0]));
      EXPECT_ERROR(m.ddp.split(std::array{computed}, 4),
                   "has a history, but other processes have other rows: expected data, rows that are computed after");
      EXPECT_EQ(m.ddp.split(std::array{computed.detach()}, 4)[0].shape(), (Shape{4, 1}));
    }));
  }
}

// Samples draw by shard, of which ranks have different ones.
TEST(RankRules, DropoutOfAParameterIsTheSameAfterOneOfSamples) {
  const Numbers mask = on_one_and_two_ranks([](Rank& r) {
    Wrapped<Linear> m(r, features(64));
    dropout(m.cut(counted({4, 1})), 0.5);
    return testing::values(dropout(m.net.weight.tensor(), 0.5));
  });
  EXPECT_GT(std::ranges::count(mask, 0), 0);
  EXPECT_GT(std::ranges::count(mask, 2), 0);
}

TEST(RankRules, DropoutOfAParameterInPerShardIsThatOfTheShard) {
  const Numbers masks = on_one_and_two_ranks([](Rank& r) {
    Wrapped<Linear> m(r, features(64));
    const auto f = [&](const Tensor& t) { return t * dropout(m.net.weight.tensor(), 0.5); };
    return testing::values(gather(per_shard(f, m.cut(Tensor::from<float>({1, 1}, {2, 1})))));
  });
  ASSERT_EQ(masks.size(), 128U);
  EXPECT_FALSE(std::equal(masks.begin(), masks.begin() + 64, masks.begin() + 64));
}

// A rank without samples holds a place for them, which draws nothing.
TEST(RankRules, DropoutIsTheSameAfterABatchThatLeavesARankIdle) {
  on_one_and_two_ranks([](Rank& r) {
    Wrapped<Linear> m(r, features(1));
    dropout(m.cut(counted({1, 1})), 0.5);
    return testing::values(gather(dropout(m.cut(counted({64, 1})), 0.5)));
  });
}

TEST(RankRules, TrainingWithDropoutOfSamplesAndOfParameters) {
  on_one_and_two_ranks([](Rank& r) {
    Wrapped<Linear> m(r, features(8));
    Sgd sgd(m.net.parameters(), {.lr = 0.001});
    Numbers found;
    for (int step = 0; step < 3; ++step) {
      const Tensor y = linear(dropout(m.cut(counted({4, 8})), 0.5), dropout(m.net.weight.tensor(), 0.5));
      const Tensor loss = mean(y) + sum(square(dropout(m.net.weight.tensor(), 0.5)));
      loss.backward();
      sgd.step();
      found.push_back(loss.item<float>());
    }
    for (float w : m.net.weight.host_data().to_vector<float>()) found.push_back(w);
    return found;
  });
}

TEST(RankRules, ASumOfNoSamplesIsZero) {
  EXPECT_EQ(on_one_and_two_ranks([](Rank& r) {
              Wrapped<Linear> m(r, features(1));
              const Tensor none = m.ddp.split(std::array{counted({4, 1}).narrow(0, 0, 0)})[0], total = sum(m.net(none));
              total.backward();
              // As in one process, no sample gives no gradient.
              const double has_gradient = m.net.weight.gradient().defined() ? 1 : 0;
              return Numbers{total.item<float>(), (total * 2 + 1).item<float>(), has_gradient};
            }),
            (Numbers{0, 1, 0}));
}

TEST(RankRules, GatherOfIntegersInUnevenShards) {
  EXPECT_EQ(on_one_and_two_ranks([](Rank& r) {
              Wrapped<Linear> m(r, features(1));
              return testing::values(gather(m.cut(Tensor::from<std::int64_t>({1, 2, 3}, {3}))));
            }),
            (Numbers{1, 2, 3}));
}

// A model that takes its batches apart itself.
struct Apart : Module {
  Linear layer{{.out_features = 2}};
  Apart() { add("layer", layer); }
  Tensor forward(const Tensor& x) override {
    const Tensor centered = x - mean(gather(x)).reshape({1, 1});
    return per_shard([&](const Tensor& t) { return layer(t); }, centered);
  }
};

TEST(RankRules, ShapesOfAModelWithPerShardAndGatherAreSettled) {
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  Apart net;
  net.initialize(Constant{1}, runtime.devices());
  settle_shapes(net, counted({4, 3}), runtime.devices()[0]);
  EXPECT_EQ(net.layer.weight.shape(), (Shape{2, 3}));
  EXPECT_EQ(net.forward(split_and_load(counted({4, 3}), runtime.devices(), {.shards = 2})).shape(), (Shape{4, 2}));
}

}  // namespace
}  // namespace lockstep
