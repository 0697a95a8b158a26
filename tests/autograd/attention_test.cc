// Attention in one pass beside the operations that it is composed of.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/autograd/gradient_testing.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/task_names.h"

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/ops/launch_observer.h"
#include "lockstep/runtime/default_runtime.h"

namespace lockstep::testing {
namespace {

struct Case {
  Shape query, key, value, mask;
  bool causal = false, hides = false;
  double dropout = 0;
  bool grouped = false;  // enable_gqa
};
const std::vector<Case> kCases{
    {{4, 2, 5, 8}, {4, 2, 7, 8}, {4, 2, 7, 6}, {}},
    {{4, 2, 150, 16}, {4, 2, 150, 16}, {4, 2, 150, 16}, {}, true},
    {{4, 2, 5, 8}, {4, 2, 7, 8}, {4, 2, 7, 8}, {5, 7}, false, true},
    {{4, 2, 5, 8}, {4, 2, 7, 8}, {4, 2, 7, 8}, {1, 1, 1, 7}, false, true},
    {{4, 2, 5, 8}, {4, 2, 7, 8}, {4, 2, 7, 8}, {2, 5, 7}},  // one for each head: composed
    {{4, 5, 8}, {4, 7, 8}, {4, 7, 8}, {5, 7}, true, false, 0.3},
    {{4, 2, 6, 8}, {4, 2, 8, 8}, {4, 2, 8, 8}, {}, false, false, 0.5},
    {{4, 2, 3, 5, 8}, {4, 2, 1, 7, 8}, {4, 2, 1, 7, 8}, {}, true},  // groups of queries share keys
    {{4, 2, 5, 8}, {4, 2, 7, 8}, {4, 1, 7, 6}, {}},                 // values alone are shared: composed
    {{4, 8, 5, 8}, {4, 1, 7, 8}, {4, 1, 7, 6}, {}, false, false, 0, true},
    {{4, 8, 5, 8}, {4, 2, 7, 8}, {4, 2, 7, 6}, {5, 7}, true, false, 0, true},
    {{4, 8, 5, 8}, {4, 2, 7, 8}, {4, 2, 7, 6}, {5, 7}, false, true, 0, true},
    {{4, 4, 150, 16}, {4, 2, 150, 16}, {4, 2, 150, 16}, {}, true, false, 0, true},
    {{4, 8, 5, 8}, {4, 4, 7, 8}, {4, 4, 7, 8}, {8, 5, 7}, false, false, 0, true},  // a mask for each head: composed
    {{4, 8, 5, 8}, {4, 8, 7, 8}, {4, 8, 7, 8}, {}, false, false, 0, true},
    {{4, 4, 6, 8}, {4, 2, 8, 8}, {4, 2, 8, 8}, {}, false, false, 0.5, true},
};

class AttentionTest : public ::testing::Test {
 protected:
  struct Result {
    std::vector<double> y, dq, dk, dv;
    bool operator==(const Result&) const = default;
  };
  Tensor numbers(const Shape& shape, int seed) {
    Random random(static_cast<std::uint64_t>(seed));
    return make_tensor(random.uniforms(shape.numel()), shape, devices_[0]);
  }
  Tensor cut(const Tensor& x, const std::vector<std::int64_t>& rows, int devices) {
    std::vector<Slot> slots;
    for (std::size_t s = 0; s < rows.size(); ++s)
      slots.push_back({static_cast<int>(s), devices_[s % static_cast<std::size_t>(devices)]});
    if (!at_) at_ = std::make_shared<Placement>(rows, slots);
    return scatter(x, at_).detach();
  }
  // rows: those of the shards, on `devices` devices; none: whole.
  Result run(const Case& c, bool composed, const std::vector<std::int64_t>& rows = {}, int devices = 1) {
    manual_seed(7);
    at_ = nullptr;
    const auto operand = [&](const Shape& shape, int seed) {
      const Tensor x = numbers(shape, seed);
      return rows.empty() ? as_leaf(x) : as_leaf(cut(x, rows, devices));
    };
    Tensor q = operand(c.query, 1), k = operand(c.key, 2), v = operand(c.value, 3);
    AttentionOptions options{.dropout_p = c.dropout, .is_causal = c.causal, .enable_gqa = c.grouped};
    if (c.mask.dim() > 0) {
      options.attn_mask = numbers(c.mask, 4);
      // Not all keys of a query: a bool mask shows those of the upper half, and the first.
      if (c.hides) options.attn_mask = gt(options.attn_mask, -0.5);
    }
    Tensor y;
    if (composed) {
      const Tensor repeated = c.grouped ? repeat_interleave(v, c.query[-3] / c.value[-3], -3) : v;
      y = matmul(attention_weights(q, k, options), repeated);
    } else {
      y = scaled_dot_product_attention(q, k, v, options);
    }
    const Tensor dy = operand(y.shape(), 5).detach();
    backward({&y, 1}, {&dy, 1});
    return {values(y), values(q.grad()), values(k.grad()), values(v.grad())};
  }

  Runtime runtime_{{.cpu_devices = 3, .cores_per_device = 1}};
  const std::vector<Device>& devices_ = runtime_.devices();
  std::shared_ptr<const Placement> at_;
};

void expect_close(const std::vector<double>& a, const std::vector<double>& b) { EXPECT_LT(distance(a, b), 1e-5); }

TEST_F(AttentionTest, EqualsWhatItIsComposedOf) {
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    SCOPED_TRACE(i);
    for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{}, {1, 3}, {2, 0, 2}}) {
      const Result a = run(kCases[i], false, rows, 2), b = run(kCases[i], true, rows, 2);
      expect_close(a.y, b.y), expect_close(a.dq, b.dq), expect_close(a.dk, b.dk), expect_close(a.dv, b.dv);
    }
  }
}

TEST_F(AttentionTest, HasTheSameBitsOnAnyNumberOfDevices) {
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    SCOPED_TRACE(i);
    const Result one = run(kCases[i], false, {1, 1, 2}, 1);
    for (const int devices : {2, 3}) EXPECT_TRUE(run(kCases[i], false, {1, 1, 2}, devices) == one) << devices;
  }
}

// A plain loop in f64.
TEST_F(AttentionTest, GroupsOfHeadsShareAKey) {
  constexpr std::int64_t kSamples = 2, kHeads = 4, kQueries = 3, kKeys = 5, kSize = 4;
  const Tensor q = numbers({kSamples, kHeads, kQueries, kSize}, 1);
  const std::vector<double> query = values(q);
  const auto at = [](const std::vector<double>& x, std::int64_t i) { return x[static_cast<std::size_t>(i)]; };
  for (const std::int64_t shared : {1, 2, 4}) {
    const Tensor k = numbers({kSamples, shared, kKeys, kSize}, 2), v = numbers({kSamples, shared, kKeys, kSize}, 3);
    const std::vector<double> key = values(k), value = values(v);
    std::vector<double> expected;
    for (std::int64_t row = 0; row < kSamples * kHeads * kQueries; ++row) {
      const std::int64_t n = row / kQueries / kHeads, head = row / kQueries % kHeads;
      const std::int64_t first = (n * shared + head / (kHeads / shared)) * kKeys;
      std::vector<double> y(kSize);
      double total = 0;
      for (std::int64_t j = first; j < first + kKeys; ++j) {
        double score = 0;
        for (std::int64_t e = 0; e < kSize; ++e) score += at(query, row * kSize + e) * at(key, j * kSize + e);
        const double weight = std::exp(score / 2);  // sqrt(kSize)
        total += weight;
        for (std::int64_t e = 0; e < kSize; ++e) y[static_cast<std::size_t>(e)] += weight * at(value, j * kSize + e);
      }
      for (const double x : y) expected.push_back(x / total);
    }
    SCOPED_TRACE(shared);
    expect_close(values(scaled_dot_product_attention(q, k, v, {.enable_gqa = true})), expected);
    expect_close(
        values(matmul(attention_weights(q, k, {.enable_gqa = true}), repeat_interleave(v, kHeads / shared, 1))),
        expected);
  }
}

TEST_F(AttentionTest, GroupsOfHeadsTakeOnePass) {
  const Tensor q = numbers({2, 4, 5, 8}, 1), k = numbers({2, 2, 5, 8}, 2);
  const std::vector<std::string> names = task_names(
      runtime_.engine(), [&] { scaled_dot_product_attention(q, k, k, {.is_causal = true, .enable_gqa = true}); });
  EXPECT_EQ(names, std::vector<std::string>{"attention"});
}

TEST_F(AttentionTest, HeadsThatAreNoGroupsAreAnError) {
  const Tensor q = numbers({2, 6, 5, 8}, 1), k = numbers({2, 4, 5, 8}, 2), three = numbers({2, 3, 5, 8}, 3);
  const AttentionOptions grouped{.enable_gqa = true};
  EXPECT_ERROR(scaled_dot_product_attention(q, k, k, grouped),
               "attention: query [2, 6, 5, 8] f32 on cpu:0 and key [2, 4, 5, 8] f32 on cpu:0 with enable_gqa, expected "
               "[.., Hq, L, E] and [.., Hkv, S, E], where Hkv divides Hq");
  EXPECT_ERROR(attention_weights(three, q, grouped), "where Hkv divides Hq");
  EXPECT_ERROR(attention_weights(numbers({5, 8}, 1), numbers({5, 8}, 2), grouped), "where Hkv divides Hq");
  EXPECT_ERROR(scaled_dot_product_attention(q, three, q, grouped),
               "attention: key [2, 3, 5, 8] f32 on cpu:0 and value [2, 6, 5, 8] f32 on cpu:0 with enable_gqa, expected "
               "as many heads on axis -3");
  // Without the option, as in PyTorch.
  EXPECT_ERROR(scaled_dot_product_attention(q, three, three), "matmul");
}

TEST_F(AttentionTest, AChangeOfAnOperandBeforeBackwardIsAnError) {
  for (int operand = 0; operand < 4; ++operand) {
    Tensor in[] = {as_leaf(numbers({2, 5, 8}, 1)), as_leaf(numbers({2, 5, 8}, 2)), as_leaf(numbers({2, 5, 8}, 3))};
    Tensor copies[] = {in[0] * 1, in[1] * 1, in[2] * 1, numbers({5, 5}, 4)};
    const Tensor y = scaled_dot_product_attention(copies[0], copies[1], copies[2], {.attn_mask = copies[3]});
    copies[operand].detach().add_(1);
    EXPECT_ERROR(sum(y).backward(), "attention: a tensor needed for its gradient was changed in place");
  }
}

TEST_F(AttentionTest, OneOperandAloneMayNeedAGradient) {
  for (std::size_t needed = 0; needed < 3; ++needed) {
    Tensor in[3], again[3];
    for (std::size_t i = 0; i < 3; ++i) {
      const Tensor x = numbers({2, 5, 8}, static_cast<int>(i + 1));
      in[i] = i == needed ? as_leaf(x) : x;
      again[i] = i == needed ? as_leaf(x) : x;
    }
    sum(square(scaled_dot_product_attention(in[0], in[1], in[2]))).backward();
    sum(square(matmul(attention_weights(again[0], again[1]), again[2]))).backward();
    expect_close(values(in[needed].grad()), values(again[needed].grad()));
  }
}

TEST_F(AttentionTest, OfOneTensorAddsItsGradients) {
  Tensor x = as_leaf(numbers({2, 5, 8}, 1)), z = as_leaf(numbers({2, 5, 8}, 1));
  sum(square(scaled_dot_product_attention(x, x, x))).backward();
  sum(square(matmul(attention_weights(z, z), z))).backward();
  expect_close(values(x.grad()), values(z.grad()));
}

TEST_F(AttentionTest, AMaskWithAGradientGetsIt) {
  Tensor q = numbers({2, 5, 8}, 1), mask = as_leaf(numbers({5, 5}, 2)), again = as_leaf(numbers({5, 5}, 2));
  sum(square(scaled_dot_product_attention(q, q, q, {.attn_mask = mask}))).backward();
  sum(square(matmul(attention_weights(q, q, {.attn_mask = again}), q))).backward();
  EXPECT_EQ(values(mask.grad()), values(again.grad()));
}

// Queries at a position are the last rows of all queries, with and without a gradient.
TEST_F(AttentionTest, QueriesAtAPositionSeeEarlierKeys) {
  const Tensor q = numbers({2, 9, 8}, 1), k = numbers({2, 9, 8}, 2), v = numbers({2, 9, 6}, 3);
  const Tensor all = scaled_dot_product_attention(q, k, v, {.is_causal = true});
  for (const std::int64_t position : {1, 6, 8}) {
    const Tensor last = narrow(q, 1, position, 9 - position), expected = narrow(all, 1, position, 9 - position);
    const AttentionOptions options{.is_causal = true, .position = position};
    EXPECT_EQ(values(scaled_dot_product_attention(last, k, v, options)), values(expected)) << position;
    expect_close(values(matmul(attention_weights(last, k, options), v)), values(expected));
    Tensor leaf = as_leaf(last * 1), whole = as_leaf(q * 1);
    sum(square(scaled_dot_product_attention(leaf, k, v, options))).backward();
    sum(square(narrow(scaled_dot_product_attention(whole, k, v, {.is_causal = true}), 1, position, 9 - position)))
        .backward();
    expect_close(values(leaf.grad()), values(narrow(whole.grad(), 1, position, 9 - position)));
  }
  EXPECT_ERROR(attention_weights(q, k, {.is_causal = true, .position = -1}), "attention: position -1 among ");
  EXPECT_ERROR(scaled_dot_product_attention(q, k, v, {.position = 3}),
               "attention: position 3 without is_causal, expected 0");
}

}  // namespace
}  // namespace lockstep::testing
