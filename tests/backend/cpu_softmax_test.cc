#include <cmath>
#include <limits>

#include "tests/backend/kernel_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

class CpuSoftmax : public ::testing::Test {
 protected:
  double cross_entropy(const TestTensor& logits, std::initializer_list<double> labels) {
    TestTensor sums({3}, DType::f32), label({static_cast<std::int64_t>(labels.size())}, DType::i64, labels);
    cpu_->run(context_, kernels::CrossEntropy{logits.view(), label.view(), {}, sums.view()});
    return sums.values()[0];
  }

  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
  KernelContext context_;
  Random random_{23};
};

// Around the width of vectors, where short rows and rests are.
TEST_F(CpuSoftmax, RowsOfAnyLength) {
  for (std::int64_t k = 1; k <= 70; ++k) {
    TestTensor x = random_.tensor({3, k}, DType::f32), y({3, k}, DType::f32), expected({3, k}, DType::f64);
    cpu_->run(context_, kernels::Softmax{x.view(), y.view()});
    reference_backend().run(context_, kernels::Softmax{x.oracle().view(), expected.view()});
    expect_close(y, expected, 1e-6);
  }
}

TEST_F(CpuSoftmax, ImpossibleClassesCostNothing) {
  double inf = std::numeric_limits<double>::infinity();
  TestTensor logits({2, 3}, DType::f32, {0, 0, -inf, -inf, 5, -inf});
  EXPECT_NEAR(cross_entropy(logits, {0, 1}), std::log(2.0) / 2, 1e-6);
  EXPECT_EQ(cross_entropy(logits, {2, 1}), inf);
}

TEST_F(CpuSoftmax, ChecksLabelsBeforeWritingGradients) {
  TestTensor logits = random_.tensor({3, 10}, DType::f32), labels({3}, DType::i64, {0, 9, 10});
  TestTensor sums({3}, DType::f32, {1, 0, 1}), dloss({1}, DType::f32, {1}), dlogits({3, 10}, DType::f32);
  const TestTensor before = dlogits;
  EXPECT_ERROR(
      cpu_->run(context_,
                kernels::CrossEntropyBackward{
                    logits.view(), labels.view(), {.first_sample = 100}, sums.view(), dloss.view(), dlogits.view()}),
      "cross_entropy: label 10 of sample 102 is outside [0, 10)");
  EXPECT_TRUE(dlogits.same_bits(before));
  EXPECT_ERROR(cross_entropy(logits, {0, -1, 3}), "cross_entropy: label -1 of sample 1 is outside [0, 10)");
}

}  // namespace
}  // namespace lockstep::testing
