#include <bit>
#include <cmath>
#include <limits>

#include "lockstep/backend/attention.h"
#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

struct Case {
  std::int64_t heads, key_heads, queries, keys, depth, width;
  bool causal = false;
  double keep = 1;
  Shape mask = {};
  std::int64_t heads_of_mask = 1;
};

// One and several blocks of 128 queries and keys, panels of 32 that are full or not, and rows of any size.
const std::vector<Case> kCases{
    {1, 1, 1, 1, 1, 1},
    {2, 2, 7, 5, 3, 2},
    {4, 2, 130, 200, 32, 48},
    {2, 2, 260, 260, 64, 64, true},
    {2, 2, 300, 150, 16, 32, true},
    {2, 1, 150, 300, 16, 32, true},
    {3, 3, 33, 40, 20, 13, true},
    {1, 1, 20, 17, 150, 200},
    {4, 4, 40, 128, 16, 16, false, 0.8},
    {6, 2, 45, 33, 64, 32, true, 0.7},
    {4, 4, 30, 140, 16, 16, false, 1, {1, 30, 140}},
    {4, 2, 30, 60, 8, 16, true, 0.9, {2, 1, 60}, 2},
    {4, 4, 20, 30, 8, 8, false, 1, {4, 20, 1}},
};

class AttentionTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (!IsSkipped() && !backend_->fuses_attention(dtype())) GTEST_SKIP() << "computed by other kernels";
  }

  // q, k, v, dy, and the mask.
  Tensors inputs(const Case& c) {
    Tensors in{input({c.heads, c.queries, c.depth}), input({c.key_heads, c.keys, c.depth}),
               input({c.key_heads, c.keys, c.width}), input({c.heads, c.queries, c.width})};
    if (c.mask.dim() == 0) return in;
    // Some keys are hidden, but not the first one, which a causal query needs.
    std::vector<double> mask = random_.tensor(c.mask).values();
    for (std::size_t i = 0; i < mask.size(); ++i) {
      if (i % static_cast<std::size_t>(c.mask[2]) > 0 && mask[i] > 1)
        mask[i] = -std::numeric_limits<double>::infinity();
    }
    in.emplace_back(c.mask, DType::f32, Layout::plain, mask);
    return in;
  }
  AttentionRule rule(const Case& c, Views in) const {
    AttentionRule rule{
        .scale = 0.7, .causal = c.causal, .keep = c.keep, .key = {5, 6}, .heads_of_mask = c.heads_of_mask};
    if (in.size() > 4) rule.mask = in[4];
    return rule;
  }
  // y, stats, dq, dk, dv.
  Tensors outputs(const Case& c) {
    return {output({c.heads, c.queries, c.width}), TestTensor({2, c.heads, c.queries}),
            output({c.heads, c.queries, c.depth}), output({c.key_heads, c.keys, c.depth}),
            output({c.key_heads, c.keys, c.width})};
  }
  Kernel both_passes(const Case& c) const {
    return [=, this](Backend& b, KernelContext& context, Views in, Views out) {
      const AttentionRule r = rule(c, in);
      b.run(context, kernels::Attention{r, in[0], in[1], in[2], out[0], out[1]});
      b.run(context, kernels::AttentionBackward{r, in[0], in[1], in[2], out[0], out[1], in[3], out[2], out[3], out[4]});
    };
  }
};

TEST_P(AttentionTest, EqualsTheReference) {
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    SCOPED_TRACE(i);
    expect_matches_reference(inputs(kCases[i]), outputs(kCases[i]), both_passes(kCases[i]));
  }
}

// Threads share heads, or the blocks of a head.
TEST_P(AttentionTest, HasTheBitsOfOneThread) {
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    SCOPED_TRACE(i);
    const Tensors in = inputs(kCases[i]);
    KernelContext one(1), five(5);
    std::vector<Tensors> results;
    for (KernelContext* context : {&one, &five}) {
      results.push_back(outputs(kCases[i]));
      std::vector<View> from, to;
      for (const TestTensor& t : in) from.push_back(t.view());
      for (const TestTensor& t : results.back()) to.push_back(t.view());
      both_passes(kCases[i])(*backend_, *context, from, to);
    }
    for (std::size_t k = 0; k < results[0].size(); ++k) EXPECT_TRUE(results[0][k].same_bits(results[1][k])) << k;
  }
}

// The same on every processor and instruction set.
TEST_P(AttentionTest, BitsArePinned) {
  if (backend_->name() != "cpu") GTEST_SKIP() << "of the CPU's kernels";
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const Case& c : kCases) {
    const Tensors found = run(inputs(c), outputs(c), both_passes(c));
    for (const TestTensor& t : found) {
      for (const double x : t.values()) {
        hash = (hash ^ std::bit_cast<std::uint32_t>(static_cast<float>(x))) * 0x100000001b3;
      }
    }
  }
  EXPECT_EQ(hash, 6257133511034449801u);
}

// Queries at a position see earlier keys, and have the bits that they have among all queries.
TEST_P(AttentionTest, QueriesAtAPositionAreRowsOfAllQueries) {
  constexpr std::int64_t kHeads = 2, kKeys = 300, kDepth = 20, kWidth = 13;
  const Tensors all{input({kHeads, kKeys, kDepth}), input({kHeads, kKeys, kDepth}), input({kHeads, kKeys, kWidth})};
  const auto rows_at = [&](std::int64_t position, std::int64_t count, const TestTensor& x) {
    const std::vector<double> from = x.values();
    const std::int64_t row = x.shape()[2];
    std::vector<double> rows;
    for (std::int64_t head = 0; head < kHeads; ++head) {
      const auto begin = from.begin() + (head * kKeys + position) * row;
      rows.insert(rows.end(), begin, begin + count * row);
    }
    return TestTensor({kHeads, count, row}, x.dtype(), Layout::plain, rows);
  };
  const auto kernel = [](std::int64_t position) -> Kernel {
    return [position](Backend& b, KernelContext& c, Views in, Views out) {
      const AttentionRule rule{.scale = 0.7, .causal = true, .position = position};
      b.run(c, kernels::Attention{rule, in[0], in[1], in[2], out[0], out[1]});
    };
  };
  const auto outputs = [&](std::int64_t count) -> Tensors {
    return {output({kHeads, count, kWidth}), TestTensor({2, kHeads, count})};
  };
  const TestTensor y = run(all, outputs(kKeys), kernel(0))[0];
  for (const std::int64_t position : {0, 1, 31, 100, 127, 128, 160, 255, 256, 299}) {
    for (const std::int64_t count : {1, 2, 33, 140}) {
      if (position + count > kKeys) continue;
      SCOPED_TRACE(::testing::Message() << count << " at " << position);
      const Tensors in{rows_at(position, count, all[0]), all[1], all[2]};
      expect_matches_reference(in, outputs(count), kernel(position));
      EXPECT_TRUE(run(in, outputs(count), kernel(position))[0].same_bits(rows_at(position, count, y)));
    }
  }
}

// Dropout keeps the weights that kernels::Dropout keeps of all weights [B, L, S].
TEST_P(AttentionTest, DropsTheWeightsThatDropoutDrops) {
  for (const std::int64_t keys : {24, 25}) {
    // Values of 1 at one key each show the weights.
    std::vector<double> one_hot(static_cast<std::size_t>(keys * keys));
    for (std::int64_t j = 0; j < keys; ++j) one_hot[static_cast<std::size_t>(j * keys + j)] = 1;
    const Tensors in{TestTensor({2, 40, 4}, DType::f32, Layout::plain, std::vector<double>(2 * 40 * 4)),
                     input({1, keys, 4}), TestTensor({1, keys, keys}, DType::f32, Layout::plain, one_hot)};
    const RandomKey key{8, 9};
    const std::vector<double> y =
        run(in, {output({2, 40, keys}), TestTensor({2, 2, 40})},
            [&](Backend& b, KernelContext& c, Views from, Views to) {
              b.run(c, kernels::Attention{{.keep = 0.6, .key = key}, from[0], from[1], from[2], to[0], to[1]});
            })[0]
            .values();
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double expected = random_uniform(key, i) < 0.6 ? 1 / (0.6 * static_cast<double>(keys)) : 0;
      ASSERT_NEAR(y[i], expected, 1e-6) << i;
    }
  }
}

TEST_P(AttentionTest, AQueryThatSeesNoKeyIsNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  Tensors in{input({1, 2, 4}), input({1, 3, 4}), input({1, 3, 4}), input({1, 2, 4})};
  in.emplace_back(Shape{1, 2, 3}, DType::f32, Layout::plain,
                  std::vector<double>{0, 0, 0, -infinity, -infinity, -infinity});
  const Case c{1, 1, 2, 3, 4, 4, false, 1, {1, 2, 3}};
  const std::vector<double> y = run(in, outputs(c), both_passes(c))[0].values();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isfinite(y[i]));
  for (std::size_t i = 4; i < 8; ++i) EXPECT_TRUE(std::isnan(y[i]));
}

// Differences of scores decide, so large ones do not overflow.
TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const Case c{1, 1, 3, 300, 16, 16};
  Tensors in = inputs(c);
  std::vector<double> q = in[0].values();
  for (double& x : q) x *= 1000;
  in[0] = TestTensor(in[0].shape(), DType::f32, Layout::plain, q);
  for (const double x : run(in, outputs(c), both_passes(c))[0].values()) EXPECT_TRUE(std::isfinite(x));
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionTest, ::testing::ValuesIn(kernel_cases({DType::f32})), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
