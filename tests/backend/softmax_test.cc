#include "tests/backend/kernel_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

const std::vector<Shape> kRows{{5, 10}, {1, 10}, {33, 7}, {3, 1000}, {2, 3000}, {2, 3, 17}, {4, 1}, {0, 10}};

class SoftmaxTest : public KernelTest {
 protected:
  TestTensor loss_output() { return master_output({1}); }
};

void softmax(Backend& b, KernelContext& c, Views in, Views out) { b.softmax().softmax(c, in[0], out[0]); }
void log_softmax(Backend& b, KernelContext& c, Views in, Views out) { b.softmax().log_softmax(c, in[0], out[0]); }

Kernel cross_entropy(double smoothing) {
  return [=](Backend& b, KernelContext& c, Views in, Views out) {
    b.softmax().cross_entropy(c, in[0], in[1], smoothing, out[0]);
  };
}

Kernel cross_entropy_backward(double smoothing) {
  return [=](Backend& b, KernelContext& c, Views in, Views out) {
    b.softmax().cross_entropy_backward(c, in[0], in[1], smoothing, in[2], out[0]);
  };
}

TEST_P(SoftmaxTest, Softmax) {
  for (const Shape& shape : kRows) {
    SCOPED_TRACE(shape.str());
    TestTensor x = input(shape);
    expect_matches_reference({x}, {output(shape)}, softmax);
    expect_matches_reference({run({x}, {output(shape)}, softmax)[0], input(shape)}, {output(shape)},
                             [](Backend& b, KernelContext& c, Views in, Views out) {
                               b.softmax().softmax_backward(c, in[0], in[1], out[0]);
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
                               b.softmax().log_softmax_backward(c, in[0], in[1], out[0]);
                             });
  }
}

TEST_P(SoftmaxTest, LargeLogitsDoNotOverflow) {
  TestTensor x({2, 3}, dtype(), {1000, 990, -1000, -20000, -20000, -20000});
  expect_matches_reference({x}, {output({2, 3})}, softmax);
  expect_matches_reference({x}, {output({2, 3})}, log_softmax);
  TestTensor labels({2}, DType::i64, {1, 2});
  expect_matches_reference({x, labels}, {loss_output()}, cross_entropy(0.1));
  TestTensor dloss({1}, master_dtype(), {1});
  expect_matches_reference({x, labels, dloss}, {output({2, 3})}, cross_entropy_backward(0.1));
}

TEST_P(SoftmaxTest, CrossEntropy) {
  for (const Shape& shape : std::vector<Shape>{{5, 10}, {1, 10}, {33, 7}, {3, 1000}, {3, 3000}, {200, 2}}) {
    for (double smoothing : {0.0, 0.1}) {
      SCOPED_TRACE(shape.str());
      TestTensor logits = input(shape), labels = random_.integers(0, shape[1] - 1, {shape[0]});
      expect_matches_reference({logits, labels}, {loss_output()}, cross_entropy(smoothing));
      expect_matches_reference({logits, labels, TestTensor({1}, master_dtype(), {0.75})}, {output(shape)},
                               cross_entropy_backward(smoothing));
    }
  }
}

TEST_P(SoftmaxTest, CrossEntropyOfAnEmptyShardIsZero) {
  TestTensor logits = input({0, 10}), labels({0}, DType::i64);
  EXPECT_EQ(run({logits, labels}, {loss_output()}, cross_entropy(0))[0].values()[0], 0);
  run({logits, labels, TestTensor({1}, master_dtype(), {1})}, {output({0, 10})}, cross_entropy_backward(0));
}

TEST_P(SoftmaxTest, CrossEntropyNamesALabelOutOfRange) {
  TestTensor logits = input({3, 10}), dloss({1}, master_dtype(), {1});
  TestTensor high({3}, DType::i64, {0, 9, 10}), negative({3}, DType::i64, {0, -1, 9});
  EXPECT_ERROR(run({logits, high}, {loss_output()}, cross_entropy(0)),
               "cross_entropy: label 10 of sample 2 is outside [0, 10)");
  EXPECT_ERROR(run({logits, negative}, {loss_output()}, cross_entropy(0)), "cross_entropy: label -1 of sample 1");
  EXPECT_ERROR(run({logits, high, dloss}, {output({3, 10})}, cross_entropy_backward(0)),
               "cross_entropy: label 10 of sample 2");
}

TEST_P(SoftmaxTest, MeanSquaredError) {
  for (const Shape& shape : std::vector<Shape>{{5, 10}, {20011}, {1}, {2, 3, 4, 5}, {0, 3}}) {
    SCOPED_TRACE(shape.str());
    TestTensor x = input(shape), target = input(shape);
    expect_matches_reference({x, target}, {loss_output()}, [](Backend& b, KernelContext& c, Views in, Views out) {
      b.softmax().mse(c, in[0], in[1], out[0]);
    });
    expect_matches_reference({x, target, TestTensor({1}, master_dtype(), {0.75})}, {output(shape)},
                             [](Backend& b, KernelContext& c, Views in, Views out) {
                               b.softmax().mse_backward(c, in[0], in[1], in[2], out[0]);
                             });
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SoftmaxTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
