#include "lockstep/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"

namespace lockstep {
namespace {

using Block = std::array<std::uint32_t, 4>;

// The known answers that Random123 publishes for philox4x32-10 (kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0}, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_EQ(philox({ones, ones}, ones), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0: the digits of pi.
  EXPECT_EQ(philox({0x299f31d0a4093822, 0x0370734413198a2e}, 0x85a308d3243f6a88),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, DrawsAreTheWordsOfTheBlocks) {
  RandomKey key{1, 2};
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(random_bits(key, i), philox(key, i / 4)[i % 4]);
}

TEST(Random, UniformLiesInTheUnitInterval) {
  RandomKey key = random_key(7, {1});
  double sum = 0, squares = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    double u = random_uniform(key, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ASSERT_EQ(u, static_cast<float>(u));
    sum += u;
    squares += u * u;
  }
  // Five standard deviations of the means of u and u^2.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kDraws));
}

TEST(Random, NormalHasTheMomentsOfANormalDistribution) {
  RandomKey key = random_key(7, {2});
  constexpr int kDraws = 100000;
  double moments[5] = {};
  double products = 0;  // of the two numbers of a pair, which share a radius
  for (int i = 0; i < kDraws; ++i) {
    double z = random_normal(key, i);
    ASSERT_TRUE(std::isfinite(z));
    double power = 1;
    for (double& moment : moments) moment += power / kDraws, power *= z;
    if (i % 2 == 0) products += z * random_normal(key, i + 1) / (kDraws / 2);
  }
  double sigma = 1 / std::sqrt(kDraws);
  EXPECT_NEAR(moments[1], 0, 5 * sigma);
  EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2) * sigma);
  EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15) * sigma);
  EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96) * sigma);
  EXPECT_NEAR(products, 0, 5 * std::sqrt(2) * sigma);
}

TEST(Random, NormalIsBoxMullerOnAPairOfDraws) {
  RandomKey key{3, 4};
  for (std::uint64_t i = 0; i < 8; ++i) {
    double u = (random_bits(key, i / 2 * 2) + 0.5) / 4294967296.0;
    double angle = 2 * M_PI * (random_bits(key, i / 2 * 2 + 1) / 4294967296.0);
    double expected = std::sqrt(-2 * std::log(u)) * (i % 2 ? std::sin(angle) : std::cos(angle));
    EXPECT_NEAR(random_normal(key, i), expected, 1e-14);
  }
}

TEST(Random, BelowIsEvenlySpread) {
  RandomKey key = random_key(7, {3});
  constexpr int kBound = 7, kDraws = 70000;
  std::vector<int> counts(kBound);
  for (int i = 0; i < kDraws; ++i) ++counts.at(random_below(key, i, kBound));
  double chi2 = 0;
  for (int count : counts) chi2 += std::pow(count - kDraws / kBound, 2) / (kDraws / kBound);
  EXPECT_LT(chi2, 27.9);  // the 0.9999 quantile with six degrees of freedom
}

TEST(Random, BelowUsesAll64Bits) {
  RandomKey key{5, 6};
  for (std::uint64_t i = 0; i < 4; ++i) {
    std::uint64_t bits = random_bits(key, 2 * i) | std::uint64_t{random_bits(key, 2 * i + 1)} << 32;
    EXPECT_EQ(random_below(key, i, std::uint64_t{1} << 63), bits >> 1);
    EXPECT_EQ(random_below(key, i, 1), 0u);
  }
  EXPECT_THROW(random_below(key, 0, 0), Error);
}

TEST(RandomKey, EveryWordAndTheirOrderAndNumberCount) {
  auto id = [](RandomKey key) { return std::tuple(key.seed, key.stream); };
  std::set<std::tuple<std::uint64_t, std::uint64_t>> keys{
      id(random_key(0, {})),     id(random_key(0, {0})),   id(random_key(0, {0, 0})), id(random_key(0, {1})),
      id(random_key(1, {})),     id(random_key(1, {0})),   id(random_key(0, {1, 0})), id(random_key(0, {0, 1})),
      id(random_key(0, {0, 2})), id(random_key(0, {1, 1}))};
  EXPECT_EQ(keys.size(), 10u);
  EXPECT_EQ(random_key(3, {1, 4, 1}), random_key(3, {1, 4, 1}));
}

TEST(HashName, IsFnv1a) {
  EXPECT_EQ(hash_name(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_name("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_name("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace lockstep
