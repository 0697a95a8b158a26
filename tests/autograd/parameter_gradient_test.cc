#include "lockstep/autograd/parameter_gradient.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "lockstep/base/tree.h"
#include "lockstep/ops/copy.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/tensors.h"

namespace lockstep::testing {
namespace {

using Sum = std::optional<std::vector<float>>;

std::vector<float> plus(std::vector<float> a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// Magnitudes so different that every other order of adding gives other bits.
std::vector<float> rough(Random& random) {
  std::vector<float> v(33);
  for (float& x : v) x = static_cast<float>(random.uniform(-1, 1) * std::exp(random.uniform(-8, 8)));
  return v;
}

Sum in_tree(const std::vector<Sum>& leaves) {
  return tree_fold(
      0, leaves.size(), [&](std::size_t i) { return leaves[i]; },
      [](const auto& a, const auto& b) { return Sum(plus(a, b)); });
}

std::vector<float> values_of(const Array& x) { return ops::host_readable(x).to_vector<float>(); }

class ParameterGradientTest : public ::testing::Test {
 protected:
  Array on(std::size_t device, const std::vector<float>& v) {
    return ops::to_device(Array::from(v, {static_cast<std::int64_t>(v.size())}), runtime_.devices()[device]);
  }
  Device device(std::size_t i) { return runtime_.devices()[i]; }

  // Any subset of the shards, anywhere, in any order.
  Sum add_round(ParameterGradient& tree, Random& random, std::size_t shards) {
    std::vector<Sum> leaves(shards);
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t s = 0; s < shards; ++s) {
      if (random.integer(0, 3) > 0) order.emplace_back(random.uniform(0, 1), s);
    }
    // All on one device, or each somewhere.
    std::int64_t devices = random.integer(1, 8);
    std::ranges::sort(order);
    for (auto& [when, s] : order) {
      leaves[s] = rough(random);
      tree.add({}, static_cast<int>(s), on(static_cast<std::size_t>(random.integer(0, devices - 1)), *leaves[s]));
    }
    return in_tree(leaves);
  }

  Runtime runtime_{[] {
    RuntimeOptions options{.cpu_devices = 8, .cores_per_device = 1, .threads_per_shard = 1};
    options.serial = true;
    return options;
  }()};
};

// Nobody reads the gradients of a parameter that no optimizer trains, so they add up for as long as a program runs.
TEST_F(ParameterGradientTest, FewLossesAreKept) {
  ParameterGradient tree;
  for (std::uint64_t pass = 1; pass <= 1000; ++pass) {
    const Array loss = on(0, {1});
    const auto failures = std::make_shared<FailureGroup>(std::vector{loss.resource()});
    tree.add({.number = pass, .failures = failures}, 0, on(0, {1}));
  }
  std::vector<Resource> losses;
  tree.passes().list_losses(losses);
  EXPECT_LE(losses.size(), 128U);
  EXPECT_EQ(values_of(tree.sum(device(0)).sum), std::vector<float>{1000});
}

TEST_F(ParameterGradientTest, SumsAreThoseOfTheShardsTree) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    ParameterGradient tree;
    Sum expected = add_round(tree, random, static_cast<std::size_t>(random.integer(1, 13)));
    EXPECT_EQ(tree.present(), expected.has_value());
    Device where = device(static_cast<std::size_t>(random.integer(0, 7)));
    Array sum = tree.sum(where).sum;
    ASSERT_EQ(sum.defined(), expected.has_value());
    if (!expected) continue;
    EXPECT_EQ(sum.device(), where);
    EXPECT_EQ(values_of(sum), *expected);
  }
}

TEST_F(ParameterGradientTest, RoundsAreAddedOneAfterTheOther) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    ParameterGradient tree;
    std::vector<float> expected;
    // Shard 0 is in every round, and first: it begins the next.
    for (int round = 0; round < 3; ++round) {
      std::vector<Sum> leaves(5);
      for (std::size_t s = 0; s < leaves.size(); ++s) {
        if (s > 0 && random.integer(0, 2) == 0) continue;
        leaves[s] = rough(random);
        tree.add({}, static_cast<int>(s), on(static_cast<std::size_t>(random.integer(0, 7)), *leaves[s]));
      }
      Sum sum = in_tree(leaves);
      expected = round == 0 ? *sum : plus(expected, *sum);
    }
    EXPECT_EQ(values_of(tree.sum(device(3)).sum), expected);
  }
}

// Shards are added up over micro-batches first, wherever they are, then the tree is taken.
TEST_F(ParameterGradientTest, WithoutSynchronizationShardsAreAddedFirst) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    ParameterGradient tree;
    std::vector<Sum> leaves(5);
    for (int round = 0; round < 3; ++round) {
      const BackwardPass pass{.sync = round == 2};
      for (std::size_t s = 0; s < leaves.size(); ++s) {
        if (random.integer(0, 2) == 0) continue;
        std::vector<float> v = rough(random);
        // A shard stays on its device.
        tree.add(pass, static_cast<int>(s), on(s % 3, v));
        leaves[s] = leaves[s] ? plus(*leaves[s], v) : v;
      }
    }
    Sum expected = in_tree(leaves);
    ASSERT_EQ(tree.present(), expected.has_value());
    if (!expected) continue;
    EXPECT_EQ(values_of(tree.sum(device(3)).sum), *expected);
  }
}

TEST_F(ParameterGradientTest, ASynchronizedRoundStaysApartFromLaterShards) {
  ParameterGradient tree;
  tree.add({}, 0, on(0, {1}));
  tree.add({}, 1, on(0, {2}));
  tree.add({.sync = false}, 0, on(0, {4}));
  tree.add({.sync = false}, 1, on(0, {8}));
  EXPECT_EQ(values_of(tree.sum(device(0)).sum).at(0), 15);
  tree.clear();
  EXPECT_FALSE(tree.sum(device(0)).sum.defined());
}

TEST_F(ParameterGradientTest, AMissingSiblingChangesNothing) {
  ParameterGradient tree;
  tree.add({}, 2, on(1, {-0.0F}));
  EXPECT_TRUE(std::signbit(values_of(tree.sum(device(0)).sum).at(0)));
}

TEST_F(ParameterGradientTest, TheSumStaysUntilMoreIsAdded) {
  ParameterGradient tree;
  EXPECT_FALSE(tree.sum(device(0)).sum.defined());
  tree.add({}, 0, on(0, {1}));
  tree.add({}, 1, on(1, {2}));
  Array sum = tree.sum(device(0)).sum;
  EXPECT_EQ(tree.sum(device(0)).sum.storage(), sum.storage());
  EXPECT_EQ(tree.sum(device(1)).sum.device(), device(1));
  tree.add({}, 0, on(0, {4}));
  EXPECT_EQ(values_of(tree.sum(device(0)).sum).at(0), 7);
  EXPECT_EQ(values_of(sum).at(0), 3);
  tree.clear();
  EXPECT_FALSE(tree.present());
}

// 64 shards on one device leave at most one tensor for each bit of their number.
TEST_F(ParameterGradientTest, FewTensorsWait) {
  ParameterGradient tree;
  std::vector<float> v(1024, 1);
  for (int s = 0; s < 64; ++s) {
    tree.add({}, s, on(0, v));
    auto waiting = runtime_.memory(device(0)).used_bytes / (1024 * sizeof(float));
    EXPECT_EQ(waiting, static_cast<std::size_t>(std::popcount(static_cast<unsigned>(s) + 1)));
  }
}

}  // namespace
}  // namespace lockstep::testing
