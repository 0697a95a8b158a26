
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <string_view>

#include "lockstep/parallel/balance.h"
#include "tests/expect_error.h"
#include "tests/mutate.h"

namespace lockstep {
namespace {

using Shares = std::vector<int>;
using Costs = std::vector<ShardCost>;

TEST(Balance, IsAWordOrAListOfWeights) {
  EXPECT_EQ(Balance::parse("equal"), Balance());
  EXPECT_EQ(Balance::parse("auto"), Balance{.automatic = true});
  EXPECT_EQ(Balance::parse("2,1"), (Balance{.weights = {2, 1}}));
  EXPECT_EQ(Balance::parse("1"), (Balance{.weights = {1}}));
  EXPECT_EQ(Balance::parse("0.5,3,1e2"), (Balance{.weights = {0.5, 3, 100}}));
}

TEST(Balance, AWrongListNamesWhatIsWrong) {
  for (const auto& [text, found] : std::vector<std::pair<std::string, std::string>>{{"", "''"},
                                                                                    {"2,", "''"},
                                                                                    {",1", "''"},
                                                                                    {"2,,1", "''"},
                                                                                    {"2,0", "'0'"},
                                                                                    {"-1,2", "'-1'"},
                                                                                    {"2,x", "'x'"},
                                                                                    {"2 ,1", "'2 '"},
                                                                                    {"nan,1", "'nan'"},
                                                                                    {"1,inf", "'inf'"},
                                                                                    {"Auto", "'Auto'"},
                                                                                    {"2;1", "'2;1'"}}) {
    EXPECT_ERROR(Balance::parse(text),
                 "found " + found + ", expected auto, equal, or a list of weights above 0, such as 2,1");
  }
}

TEST(Balance, ADamagedListIsReadOrRefused) {
  constexpr std::array<std::string_view, 10> kPiecesOfBalances{",",   "-",   ".",   "e9",   "e999",
                                                               "nan", "inf", "0x1", "auto", "0"};
  int read = 0, refused = 0;
  for (unsigned round = 0; round < 20'000; ++round) {
    Dice dice(round);
    const std::string text = mutated("2,1,0.5,1e2", dice, {.pieces = kPiecesOfBalances});
    try {
      const Balance balance = Balance::parse(text);
      EXPECT_EQ(std::ssize(balance.weights), text == "auto" ? 0 : 1 + std::ranges::count(text, ',')) << text;
      for (const double weight : balance.weights) EXPECT_TRUE(std::isfinite(weight) && weight > 0) << text;
      ++read;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("found '")) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(EqualShares, DifferByOneAtMost) {
  for (int shards = 1; shards <= 20; ++shards) {
    for (std::size_t devices = 1; devices <= 9; ++devices) {
      const Shares shares = equal_shares(shards, devices);
      ASSERT_EQ(shares.size(), devices);
      const auto [fewest, most] = std::ranges::minmax(shares);
      EXPECT_LE(most - fewest, 1);
      // Shard s is device s * devices / shards's.
      for (int s = 0; s < shards; ++s) {
        EXPECT_EQ(device_of_shard(s, shares), static_cast<std::size_t>(s) * devices / static_cast<std::size_t>(shards));
      }
    }
  }
}

TEST(WeightedShares, AreInProportion) {
  EXPECT_EQ(weighted_shares(8, std::vector{2.0, 1.0}), Shares({5, 3}));
  EXPECT_EQ(weighted_shares(9, std::vector{2.0, 1.0}), Shares({6, 3}));
  EXPECT_EQ(weighted_shares(16, std::vector{2.0, 1.0}), Shares({11, 5}));
  EXPECT_EQ(weighted_shares(8, std::vector{1.0, 5.0, 2.0}), Shares({1, 5, 2}));
  EXPECT_EQ(weighted_shares(8, std::vector{3.0, 3.0}), Shares({4, 4}));
  EXPECT_EQ(weighted_shares(3, std::vector{100.0, 1.0, 1.0}), Shares({1, 1, 1}));
  EXPECT_EQ(weighted_shares(5, std::vector{7.0}), Shares({5}));
  // Shares are weights that give the same shares.
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::vector<double> shares(1 + random() % 9);
    for (double& share : shares) share = 1 + static_cast<double>(random() % 12);
    const auto shards = static_cast<int>(std::accumulate(shares.begin(), shares.end(), 0.0));
    EXPECT_EQ(weighted_shares(shards, shares), Shares(shares.begin(), shares.end()));
  }
  EXPECT_ERROR(weighted_shares(1, std::vector{2.0, 1.0}), "1 shards for 2 devices, expected at least one for each");
  EXPECT_ERROR(weighted_shares(4, std::vector{2.0, -1.0}), "weight -1, expected a number above 0");
  EXPECT_ERROR(weighted_shares(4, std::vector{2.0, std::nan("")}), "weight nan");
}

TEST(FastestShares, NoOthersHaveAShorterStep) {
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    Costs costs(3);
    for (ShardCost& cost : costs)
      cost = {0.1 + static_cast<double>(random() % 100) / 25, 1 + static_cast<int>(random() % 4)};
    const int shards = 3 + static_cast<int>(random() % 14);
    const Shares found = fastest_shares(shards, costs);
    EXPECT_EQ(std::accumulate(found.begin(), found.end(), 0), shards);
    for (int a = 1; a <= shards - 2; ++a) {
      for (int b = 1; a + b < shards; ++b) {
        EXPECT_LE(step_seconds(found, costs), step_seconds(Shares{a, b, shards - a - b}, costs));
      }
    }
  }
}

TEST(FastestShares, FillTheLanesOfADevice) {
  EXPECT_EQ(fastest_shares(8, Costs{{1, 3}, {1, 1}}), Shares({6, 2}));
  EXPECT_EQ(fastest_shares(4, Costs{{1, 4}, {1, 1}}), Shares({3, 1}));
  EXPECT_EQ(step_seconds(Shares{5, 2}, Costs{{2, 4}, {1, 1}}), 4);
}

TEST(FastestShares, ADeviceOfUnknownSpeedIsTakenToBeFast) {
  EXPECT_EQ(fastest_shares(8, Costs{{1}, {3}, {0}}), Shares({4, 1, 3}));
  EXPECT_EQ(fastest_shares(6, Costs{{0}, {0}}), Shares({3, 3}));
}

TEST(RebalancedShares, FollowTheSpeed) {
  EXPECT_EQ(rebalanced_shares(Shares{8, 8}, Costs{{1}, {2}}), Shares({11, 5}));
  EXPECT_EQ(rebalanced_shares(Shares{4, 4}, Costs{{1}, {3}}), Shares({6, 2}));
  EXPECT_EQ(rebalanced_shares(Shares{6, 2}, Costs{{1}, {1}}), Shares({4, 4}));
  // However slow, it keeps one shard, so that it is seen when it gets fast again.
  EXPECT_EQ(rebalanced_shares(Shares{4, 4}, Costs{{1}, {1000}}), Shares({7, 1}));
}

TEST(RebalancedShares, StayWhereLittleIsToBeWon) {
  // 31 of 1.08 s each instead of 32: a step would be 3 % shorter.
  EXPECT_EQ(rebalanced_shares(Shares{32, 32}, Costs{{1}, {1.08}}), Shares({32, 32}));
  EXPECT_EQ(rebalanced_shares(Shares{32, 32}, Costs{{1}, {1.2}}), Shares({35, 29}));
  // And do not swing back.
  EXPECT_EQ(rebalanced_shares(Shares{35, 29}, Costs{{1}, {1.12}}), Shares({35, 29}));
  EXPECT_EQ(rebalanced_shares(Shares{4, 4}, Costs{{1}, {1.3}}), Shares({4, 4}));
  EXPECT_EQ(rebalanced_shares(Shares{5, 3}, Costs{{0}, {0}}), Shares({5, 3}));
  // Equal steps: 4 lanes are through with 3 shards when they are with 4.
  EXPECT_EQ(rebalanced_shares(Shares{3, 3}, Costs{{1, 4}, {1, 4}}), Shares({3, 3}));
}

TEST(RebalancedShares, EveryDeviceGetsATry) {
  EXPECT_EQ(rebalanced_shares(Shares{2, 1, 0}, Costs{{1}, {1}, {0}}), Shares({1, 1, 1}));
}

TEST(JobShares, AreRunsByRankAndDevice) {
  const JobShares shares({{1, 4}, {2}, {3, 1}});
  EXPECT_EQ(shares.shards(), 11);
  EXPECT_EQ(shares.ranks(), 3);
  EXPECT_EQ(shares.of_rank(0), std::pair(0, 5));
  EXPECT_EQ(shares.of_rank(1), std::pair(5, 7));
  EXPECT_EQ(shares.of_rank(2), std::pair(7, 11));
  EXPECT_EQ(shares.devices_of(2), Shares({3, 1}));
  EXPECT_EQ(shares.devices_of_ranks(), Shares({2, 1, 2}));
  EXPECT_EQ(shares.all(), Shares({1, 4, 2, 3, 1}));
  EXPECT_EQ(shares.with(Shares{3, 2, 2, 2, 2}), JobShares({{3, 2}, {2}, {2, 2}}));
}

TEST(JobShares, WithoutWeightsRanksHaveTheSame) {
  EXPECT_EQ(JobShares(8, Shares{1, 3}), JobShares({{4}, {2, 1, 1}}));
  EXPECT_EQ(JobShares(8, Shares{1, 3}, std::vector{1.0, 1.0, 1.0, 1.0}), JobShares({{2}, {2, 2, 2}}));
  for (int world = 1; world <= 9; ++world) {
    for (int shards = world; shards <= 20; ++shards) {
      const JobShares shares(shards, Shares(static_cast<std::size_t>(world), 1));
      for (int r = 0; r < world; ++r) {
        const auto [first, last] = shares.of_rank(r);
        EXPECT_LT(first, last);
        for (int s = first; s < last; ++s) EXPECT_EQ(s * world / shards, r);
      }
    }
  }
}

TEST(JobShares, NeedAWeightForEachDevice) {
  EXPECT_ERROR(JobShares(8, Shares{1, 2}, std::vector{2.0, 1.0}),
               "balance 2,1: 2 weights for 3 devices of 2 ranks, expected one for each");
  EXPECT_ERROR(JobShares(8, Shares{1}, std::vector{2.0, 1.5}),
               "balance 2,1.5: 2 weights for 1 device, expected one for each");
}

}  // namespace
}  // namespace lockstep
