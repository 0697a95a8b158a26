
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lockstep/data/sampler.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using Order = std::vector<std::int64_t>;

Order in_order(std::int64_t n) {
  Order order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Order sorted(Order order) {
  std::ranges::sort(order);
  return order;
}

TEST(SequentialSampler, KeepsTheOrder) {
  EXPECT_EQ(SequentialSampler(4).order(0), Order({0, 1, 2, 3}));
  EXPECT_EQ(SequentialSampler(4).order(7), Order({0, 1, 2, 3}));
  EXPECT_EQ(SequentialSampler(0).order(0), Order());
  EXPECT_ERROR(SequentialSampler(-1).order(0), "-1 examples");
}

TEST(RandomSampler, IsAnotherPermutationInEveryEpoch) {
  const RandomSampler sampler(1000, 3);
  const Order first = sampler.order(0);
  EXPECT_NE(first, in_order(1000));
  EXPECT_EQ(sorted(first), in_order(1000));
  EXPECT_EQ(sorted(sampler.order(1)), in_order(1000));
  EXPECT_NE(sampler.order(1), first);
  EXPECT_EQ(sampler.order(0), first);
  EXPECT_EQ(RandomSampler(1000, 3).order(0), first);
  EXPECT_NE(RandomSampler(1000, 4).order(0), first);
  EXPECT_EQ(RandomSampler(1).order(0), Order{0});
  EXPECT_EQ(RandomSampler(0).order(0), Order());
}

// Every example is as likely as any other at every place: 2,000 epochs of 8 examples, 250 expected each,
// standard deviation 15.
TEST(RandomSampler, FavorsNoPlace) {
  const RandomSampler sampler(8);
  int count[8][8] = {};
  for (int epoch = 0; epoch < 2000; ++epoch) {
    const Order order = sampler.order(epoch);
    for (std::size_t place = 0; place < 8; ++place) ++count[place][order[place]];
  }
  for (const auto& row : count) {
    for (const int n : row) EXPECT_NEAR(n, 250, 75);
  }
}

class Distributed : public ::testing::TestWithParam<std::tuple<int, int, bool>> {
 protected:
  // All ranks' parts.
  std::vector<Order> parts(DistributedSamplerOptions options, std::int64_t epoch = 0) const {
    const auto [size, world_size, shuffle] = GetParam();
    options.world_size = world_size;
    options.shuffle = shuffle;
    std::vector<Order> all;
    for (int rank = 0; rank < world_size; ++rank) {
      options.rank = rank;
      all.push_back(DistributedSampler(size, options).order(epoch));
    }
    return all;
  }
  static Order joined(const std::vector<Order>& parts) {
    Order all;
    for (const Order& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
};

TEST_P(Distributed, VisitsEveryExampleExactlyOnce) {
  const auto [size, world_size, shuffle] = GetParam();
  const auto all = parts({});
  EXPECT_EQ(sorted(joined(all)), in_order(size));
  const auto [least, most] = std::ranges::minmax(all, {}, &Order::size);
  EXPECT_LE(most.size() - least.size(), 1u);
}

TEST_P(Distributed, TakesTurnsInTheGlobalOrder) {
  const auto [size, world_size, shuffle] = GetParam();
  const Order global = DistributedSampler(size, {.rank = 0, .world_size = 1, .shuffle = shuffle, .seed = 2}).order(5);
  const auto all = parts({.seed = 2}, 5);
  for (std::size_t i = 0; i < global.size(); ++i) {
    EXPECT_EQ(all[i % all.size()][i / all.size()], global[i]);
  }
}

TEST_P(Distributed, PadsWithTheFirstExamples) {
  const auto [size, world_size, shuffle] = GetParam();
  const auto all = parts({.pad = true});
  const std::size_t each = static_cast<std::size_t>((size + world_size - 1) / world_size);
  for (const Order& part : all) EXPECT_EQ(part.size(), each);
  // The repeated examples are the first ones in the global order.
  const Order global = DistributedSampler(size, {.rank = 0, .world_size = 1, .shuffle = shuffle}).order(0);
  Order expected = in_order(size);
  for (std::size_t i = 0; expected.size() < each * all.size(); ++i) expected.push_back(global[i % global.size()]);
  EXPECT_EQ(sorted(joined(all)), sorted(expected));
}

TEST_P(Distributed, DropsTheLastExamples) {
  const auto [size, world_size, shuffle] = GetParam();
  const auto all = parts({.drop_last = true});
  for (const Order& part : all) EXPECT_EQ(part.size(), static_cast<std::size_t>(size / world_size));
  Order global = DistributedSampler(size, {.rank = 0, .world_size = 1, .shuffle = shuffle}).order(0);
  global.resize(static_cast<std::size_t>(size / world_size * world_size));
  EXPECT_EQ(sorted(joined(all)), sorted(global));
}

TEST_P(Distributed, KnowsHowManyExamplesTheRanksHave) {
  const auto [size, world_size, shuffle] = GetParam();
  for (const DistributedSamplerOptions& o : {DistributedSamplerOptions{}, DistributedSamplerOptions{.drop_last = true},
                                             DistributedSamplerOptions{.pad = true}}) {
    const auto all = parts(o);
    const auto [least, most] = std::ranges::minmax(all, {}, &Order::size);
    const auto sizes =
        DistributedSampler(size, {.world_size = world_size, .drop_last = o.drop_last, .pad = o.pad}).rank_sizes();
    ASSERT_TRUE(sizes.has_value());
    EXPECT_EQ(sizes->least, std::ssize(least));
    EXPECT_EQ(sizes->most, std::ssize(most));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Distributed,
                         ::testing::Combine(::testing::Values(2, 11, 12, 100), ::testing::Values(1, 3, 4, 7),
                                            ::testing::Bool()));

// torch.utils.data.DistributedSampler(range(11), 4, rank, shuffle=False), with and without drop_last.
TEST(DistributedSampler, WithoutShufflingIsPyTorchs) {
  auto part = [](int rank, bool pad) {
    return DistributedSampler(11, {.rank = rank, .world_size = 4, .shuffle = false, .drop_last = !pad, .pad = pad})
        .order(0);
  };
  EXPECT_EQ(part(0, true), Order({0, 4, 8}));
  EXPECT_EQ(part(2, true), Order({2, 6, 10}));
  EXPECT_EQ(part(3, true), Order({3, 7, 0}));
  EXPECT_EQ(part(0, false), Order({0, 4}));
  EXPECT_EQ(part(3, false), Order({3, 7}));
}

TEST(DistributedSampler, ShufflesAnewInEveryEpochAlikeOnAllRanks) {
  const DistributedSampler a(100, {.rank = 1, .world_size = 4}), b(100, {.rank = 1, .world_size = 4, .seed = 1});
  EXPECT_NE(a.order(0), a.order(1));
  EXPECT_NE(a.order(0), b.order(0));
  // One process visits the order that a RandomSampler has.
  EXPECT_EQ(DistributedSampler(100, {.seed = 9}).order(2), RandomSampler(100, 9).order(2));
}

TEST(DistributedSampler, RefusesRanksThatAreNotThere) {
  EXPECT_ERROR(DistributedSampler(4, {.rank = 2, .world_size = 2}), "rank 2 of 2");
  EXPECT_ERROR(DistributedSampler(4, {.rank = -1, .world_size = 2}), "rank -1 of 2");
  EXPECT_ERROR(DistributedSampler(4, {.rank = 0, .world_size = 0}), "rank 0 of 0");
  EXPECT_ERROR(DistributedSampler(4, {.drop_last = true, .pad = true}),
               "pad and drop_last are both set, expected at most one");
}

TEST(WeightedRandomSampler, WeightsHaveAFiniteSum) {
  EXPECT_ERROR(WeightedRandomSampler({1e308, 1e308}, 1), "the weights add up to inf, expected a finite sum");
}

TEST(WeightedRandomSampler, DrawsInProportion) {
  const WeightedRandomSampler sampler({1, 0, 3}, 4000, {.seed = 7});
  const Order drawn = sampler.order(0);
  ASSERT_EQ(drawn.size(), 4000U);
  EXPECT_EQ(std::ranges::count(drawn, 1), 0);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(drawn, 2)), 3000, 150);
  EXPECT_EQ(sampler.order(0), drawn);
  EXPECT_NE(sampler.order(1), drawn);
}

TEST(WeightedRandomSampler, WithoutReplacementDrawsEachOnce) {
  Order drawn = WeightedRandomSampler({1, 0, 3, 5, 2}, 4, {.replacement = false, .seed = 7}).order(0);
  std::ranges::sort(drawn);
  EXPECT_EQ(drawn, Order({0, 2, 3, 4}));
  EXPECT_ERROR(WeightedRandomSampler({1, 0}, 2, {.replacement = false}), "2 draws without replacement from 1 examples");
  EXPECT_ERROR(WeightedRandomSampler({1, -1}, 2), "weight -1 of example 1");
  EXPECT_ERROR(WeightedRandomSampler({0, 0}, 2), "no weight is above 0");
}

}  // namespace
}  // namespace lockstep
