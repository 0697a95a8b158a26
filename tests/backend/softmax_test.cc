#include <cmath>
#include <limits>

#include "tests/backend/kernel_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

const std::vector<Shape> kRows{{5, 10}, {1, 10}, {33, 7}, {3, 1000}, {2, 3000}, {2, 3, 17}, {4, 1}, {0, 10}};

class SoftmaxTest : public KernelTest {
 protected:
  TestTensor loss_output() { return master_output({1}); }
  TestTensor sums_output() { return master_output({3}); }
  // Of a batch in which no sample is ignored.
  TestTensor all_count() { return TestTensor({3}, master_dtype(), {1, 0, 1}); }
};

void softmax(Backend& b, KernelContext& c, Views in, Views out) { b.run(c, kernels::Softmax{in[0], out[0]}); }
void log_softmax(Backend& b, KernelContext& c, Views in, Views out) { b.run(c, kernels::LogSoftmax{in[0], out[0]}); }

Kernel cross_entropy(const LabelRules& rules = {}) {
  return [=](Backend& b, KernelContext& c, Views in, Views out) {
    b.run(c, kernels::CrossEntropy{in[0], in[1], rules, out[0]});
  };
}

Kernel cross_entropy_backward(const LabelRules& rules = {}) {
  return [=](Backend& b, KernelContext& c, Views in, Views out) {
    b.run(c, kernels::CrossEntropyBackward{in[0], in[1], rules, in[2], in[3], out[0]});
  };
}

void cross_entropy_mean(Backend& b, KernelContext& c, Views in, Views out) {
  b.run(c, kernels::CrossEntropyMean{in[0], out[0]});
}

TEST_P(SoftmaxTest, Softmax) {
  for (const Shape& shape : kRows) {
    SCOPED_TRACE(shape.str());
    TestTensor x = input(shape);
    expect_matches_reference({x}, {output(shape)}, softmax);
    expect_matches_reference({run({x}, {output(shape)}, softmax)[0], input(shape)}, {output(shape)},
                             [](Backend& b, KernelContext& c, Views in, Views out) {
                               b.run(c, kernels::SoftmaxBackward{in[0], in[1], out[0]});
                             });
  }
}

TEST_P(SoftmaxTest, LogSoftmax) {
  for (const Shape& shape : kRows) {
    SCOPED_TRACE(shape.str());
    TestTensor x = input(shape);
    expect_matches_reference({x}, {output(shape)}, log_softmax);
    expect_matches_reference({run({x}, {output(shape)}, log_softmax)[0], input(shape)}, {output(shape)},
                             [](Backend& b, KernelContext& c, Views in, Views out) {
                               b.run(c, kernels::LogSoftmaxBackward{in[0], in[1], out[0]});
                             });
  }
}

TEST_P(SoftmaxTest, LargeLogitsDoNotOverflow) {
  TestTensor x({2, 3}, dtype(), {1000, 990, -1000, -20000, -20000, -20000});
  expect_matches_reference({x}, {output({2, 3})}, softmax);
  expect_matches_reference({x}, {output({2, 3})}, log_softmax);
  TestTensor labels({2}, DType::i64, {1, 2});
  expect_matches_reference({x, labels}, {sums_output()}, cross_entropy({.smoothing = 0.1}));
  TestTensor dloss({1}, master_dtype(), {1});
  expect_matches_reference({x, labels, all_count(), dloss}, {output({2, 3})},
                           cross_entropy_backward({.smoothing = 0.1}));
}

TEST_P(SoftmaxTest, CrossEntropy) {
  for (const Shape& shape : std::vector<Shape>{{5, 10}, {1, 10}, {33, 7}, {3, 1000}, {3, 3000}, {200, 2}}) {
    for (double smoothing : {0.0, 0.1}) {
      SCOPED_TRACE(shape.str());
      TestTensor logits = input(shape), labels = random_.integers(0, shape[1] - 1, {shape[0]});
      expect_matches_reference({logits, labels}, {sums_output()}, cross_entropy({.smoothing = smoothing}));
      expect_matches_reference({logits, labels, all_count(), TestTensor({1}, master_dtype(), {0.75})}, {output(shape)},
                               cross_entropy_backward({.smoothing = smoothing}));
    }
  }
}

// Rows of ignored samples may hold anything.
TEST_P(SoftmaxTest, CrossEntropyIgnoresSamples) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::int64_t classes : {10, 3000}) {
    for (const double smoothing : {0.0, 0.1}) {
      SCOPED_TRACE(classes);
      TestTensor logits = input({5, classes}), labels({5}, DType::i64, {3, -100, 0, 9, -100});
      std::vector<double> values = logits.values();
      for (std::int64_t i = 0; i < classes; ++i) values[static_cast<std::size_t>(4 * classes + i)] = nan;
      logits = TestTensor({5, classes}, dtype(), Layout::plain, values);
      const LabelRules rules{.smoothing = smoothing, .ignored = -100};
      expect_matches_reference({logits, labels}, {sums_output()}, cross_entropy(rules));
      const TestTensor sums = run({logits, labels}, {sums_output()}, cross_entropy(rules))[0];
      EXPECT_NEAR(sums.values()[1], 0.4, 1e-6);
      EXPECT_NEAR(sums.values()[2], 0.6, 1e-6);
      const Tensors inputs{logits, labels, sums, TestTensor({1}, master_dtype(), {0.75})};
      expect_matches_reference(inputs, {output({5, classes})}, cross_entropy_backward(rules));
      const std::vector<double> found = run(inputs, {output({5, classes})}, cross_entropy_backward(rules))[0].values();
      for (const std::int64_t row : {1, 4}) {
        for (std::int64_t i = 0; i < classes; ++i) EXPECT_EQ(found[static_cast<std::size_t>(row * classes + i)], 0);
      }
      // One of them, because a GPU reports any.
      const TestTensor one({5}, DType::i64, {3, -100, 0, 9, 1});
      EXPECT_ERROR(run({logits, one}, {sums_output()}, cross_entropy({.smoothing = smoothing})),
                   "cross_entropy: label -100 of sample 1 is outside");
    }
  }
}

// The mean over three of five samples, over all of them, and over none.
TEST_P(SoftmaxTest, CrossEntropyMeanCountsSamples) {
  const auto mean = [&](std::initializer_list<double> sums) {
    return run({TestTensor({3}, master_dtype(), sums)}, {loss_output()}, cross_entropy_mean)[0].values()[0];
  };
  EXPECT_NEAR(mean({1.5, 0.4, 0.6}), 2.5, 1e-6);
  // Shares that do not add up to 1 change no bit.
  EXPECT_EQ(mean({1.625, 0, 1 - 0x1p-23}), 1.625);
  EXPECT_TRUE(std::isnan(mean({0, 1, 0})));
  EXPECT_TRUE(std::isnan(mean({0, 0, 0})));
}

TEST_P(SoftmaxTest, CrossEntropyOfAnEmptyShardIsZero) {
  TestTensor logits = input({0, 10}), labels({0}, DType::i64);
  EXPECT_EQ(run({logits, labels}, {sums_output()}, cross_entropy())[0].values(), (std::vector<double>{0, 0, 0}));
  run({logits, labels, all_count(), TestTensor({1}, master_dtype(), {1})}, {output({0, 10})}, cross_entropy_backward());
}

TEST_P(SoftmaxTest, CrossEntropyNamesALabelOutOfRange) {
  TestTensor logits = input({3, 10}), dloss({1}, master_dtype(), {1});
  TestTensor high({3}, DType::i64, {0, 9, 10}), negative({3}, DType::i64, {0, -1, 9});
  EXPECT_ERROR(run({logits, high}, {sums_output()}, cross_entropy()),
               "cross_entropy: label 10 of sample 2 is outside [0, 10)");
  EXPECT_ERROR(run({logits, negative}, {sums_output()}, cross_entropy({.first_sample = 40})),
               "cross_entropy: label -1 of sample 41");
  EXPECT_ERROR(run({logits, high, all_count(), dloss}, {output({3, 10})}, cross_entropy_backward({.ignored = -1})),
               "cross_entropy: label 10 of sample 2");
}

TEST_P(SoftmaxTest, MeanSquaredError) {
  for (const Shape& shape : std::vector<Shape>{{5, 10}, {20011}, {1}, {2, 3, 4, 5}, {0, 3}}) {
    SCOPED_TRACE(shape.str());
    TestTensor x = input(shape), target = input(shape);
    expect_matches_reference({x, target}, {loss_output()}, [](Backend& b, KernelContext& c, Views in, Views out) {
      b.run(c, kernels::Mse{in[0], in[1], out[0]});
    });
    expect_matches_reference({x, target, TestTensor({1}, master_dtype(), {0.75})}, {output(shape)},
                             [](Backend& b, KernelContext& c, Views in, Views out) {
                               b.run(c, kernels::MseBackward{in[0], in[1], in[2], out[0]});
                             });
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SoftmaxTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
