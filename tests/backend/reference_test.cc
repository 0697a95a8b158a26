// The reference back end's forward kernels on cases small enough to compute by hand.
#include <array>
#include <cmath>

#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

class Reference : public ::testing::Test {
 protected:
  // f64 values in plain order.
  static TestTensor tensor(const Shape& shape, std::initializer_list<double> values) {
    return TestTensor(shape, DType::f64, values);
  }
  static TestTensor empty(const Shape& shape) { return TestTensor(shape, DType::f64); }
  static void expect_values(const TestTensor& x, std::initializer_list<double> expected) {
    std::vector<double> values = x.values();
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected.begin()[i], 1e-9) << i;
  }

  Backend& b = reference_backend();
  KernelContext c;
};

TEST_F(Reference, CopyOrdersElementsByLayout) {
  // Channel k of pixel (h, w) is 100 k + 10 h + w.
  std::vector<double> values;
  for (int i = 0; i < 32 * 4; ++i) values.push_back(i / 4 * 100 + i / 2 % 2 * 10 + i % 2);
  TestTensor plain({1, 32, 2, 2}, DType::f32, Layout::plain, values);
  TestTensor channels_last = plain.to(DType::f32, Layout::channels_last);
  TestTensor blocked = plain.to(DType::f32, Layout::blocked16);
  const auto* nhwc = channels_last.view().as<float>();
  EXPECT_EQ(nhwc[1], 100);       // the next channel
  EXPECT_EQ(nhwc[32], 1);        // the next pixel
  EXPECT_EQ(nhwc[64 + 5], 510);  // the next row, channel 5
  const auto* blocks = blocked.view().as<float>();
  EXPECT_EQ(blocks[1], 100);
  EXPECT_EQ(blocks[16], 1);
  EXPECT_EQ(blocks[32], 10);
  EXPECT_EQ(blocks[64], 1600);  // the next block of channels
  EXPECT_EQ(blocked.values(), values);
  EXPECT_EQ(channels_last.values(), values);
}

TEST_F(Reference, UnaryFunctions) {
  TestTensor x = tensor({3}, {-1, 0.5, 4}), y = empty({3});
  auto apply = [&](UnaryOp op) {
    b.run(c, kernels::Unary{op, x.view(), y.view()});
    return y;
  };
  expect_values(apply(UnaryOp::negate), {1, -0.5, -4});
  expect_values(apply(UnaryOp::exp), {0.36787944117, 1.6487212707, 54.598150033});
  expect_values(apply(UnaryOp::square), {1, 0.25, 16});
  expect_values(apply(UnaryOp::abs), {1, 0.5, 4});
  expect_values(apply(UnaryOp::relu), {0, 0.5, 4});
  // x Phi(x) with Phi(-1) = 0.1586552539, Phi(0.5) = 0.6914624613, Phi(4) = 0.9999683288.
  expect_values(apply(UnaryOp::gelu), {-0.15865525393, 0.34573123064, 3.9998733150});
  expect_values(apply(UnaryOp::sigmoid), {0.26894142137, 0.62245933120, 0.98201379004});
  expect_values(apply(UnaryOp::tanh), {-0.76159415596, 0.46211715726, 0.99932929974});
  x = tensor({3}, {1, 4, 0.25});
  expect_values(apply(UnaryOp::log), {0, 1.3862943611, -1.3862943611});
  expect_values(apply(UnaryOp::sqrt), {1, 2, 0.5});
}

TEST_F(Reference, BinaryBroadcasts) {
  TestTensor column = tensor({2, 1}, {10, 20}), row = tensor({3}, {1, 2, 4}), out = empty({2, 3});
  b.run(c, kernels::Binary{BinaryOp::subtract, column.view(), row.view(), out.view()});
  expect_values(out, {9, 8, 6, 19, 18, 16});
  b.run(c, kernels::Binary{BinaryOp::divide, column.view(), row.view(), out.view()});
  expect_values(out, {10, 5, 2.5, 20, 10, 5});
}

TEST_F(Reference, MoreUnaryFunctions) {
  TestTensor x = tensor({3}, {-1, 0.5, 4}), y = empty({3});
  auto apply = [&](const Unary& op) {
    b.run(c, kernels::Unary{op, x.view(), y.view()});
    return y;
  };
  expect_values(apply(UnaryOp::sign), {-1, 1, 1});
  expect_values(apply(UnaryOp::reciprocal), {-1, 2, 0.25});
  expect_values(apply(UnaryOp::sin), {-0.84147098481, 0.47942553860, -0.75680249531});
  expect_values(apply(UnaryOp::cos), {0.54030230587, 0.87758256189, -0.65364362086});
  expect_values(apply(UnaryOp::silu), {-0.26894142137, 0.31122966560, 3.92805516015});
  expect_values(apply({UnaryOp::leaky_relu, 0.1}), {-0.1, 0.5, 4});
  expect_values(apply({UnaryOp::elu, 2}), {-1.26424111766, 0.5, 4});
  expect_values(apply({UnaryOp::softplus, 1, 20}), {0.31326168752, 0.97407698418, 4.01814992792});
  expect_values(apply({UnaryOp::softplus, 2, 7}), {0.06346400572, 0.65663084341, 4});
  expect_values(apply({UnaryOp::clamp, -0.5, 1}), {-0.5, 0.5, 1});
  expect_values(apply({UnaryOp::clamp, 3, 1}), {1, 1, 1});
  expect_values(apply({UnaryOp::pow, 3}), {-1, 0.125, 64});
  x = tensor({3}, {1, 0.25, 4});
  expect_values(apply(UnaryOp::rsqrt), {1, 2, 0.5});
}

TEST_F(Reference, Choices) {
  TestTensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6}), row = tensor({3}, {2, 2, 5}), y = empty({2, 3});
  TestTensor mask({2, 3}, DType::boolean);
  auto compare = [&](CompareOp op) {
    b.run(c, kernels::Compare{op, x.view(), row.view(), mask.view()});
    return mask;
  };
  expect_values(compare(CompareOp::eq), {0, 1, 0, 0, 0, 0});
  expect_values(compare(CompareOp::ne), {1, 0, 1, 1, 1, 1});
  expect_values(compare(CompareOp::le), {1, 1, 1, 0, 0, 0});
  expect_values(compare(CompareOp::lt), {1, 0, 1, 0, 0, 0});
  b.run(c, kernels::Where{mask.view(), x.view(), row.view(), y.view()});
  expect_values(y, {1, 2, 3, 2, 2, 5});
  b.run(c, kernels::Binary{BinaryOp::maximum, x.view(), row.view(), y.view()});
  expect_values(y, {2, 2, 5, 4, 5, 6});
  b.run(c, kernels::Binary{BinaryOp::minimum, x.view(), row.view(), y.view()});
  expect_values(y, {1, 2, 3, 2, 2, 5});
  b.run(c, kernels::Binary{BinaryOp::pow, row.view(), x.view(), y.view()});
  expect_values(y, {2, 4, 125, 16, 32, 15625});
  b.run(c, kernels::Arange{3, -0.5, y.view()});
  expect_values(y, {3, 2.5, 2, 1.5, 1, 0.5});
}

TEST_F(Reference, Moves) {
  TestTensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6}), transposed = empty({3, 2}), rows = empty({1, 3, 3}),
             sums = empty({1, 3, 3});
  b.run(c, kernels::CopyStrided{{.extent = {3, 2}, .from = {1, 3}, .to = {2, 1}}, x.view(), transposed.view()});
  expect_values(transposed, {1, 4, 2, 5, 3, 6});
  // The last column into the first one.
  b.run(c, kernels::CopyStrided{{.extent = {2}, .from = {3}, .to = {2}, .from_first = 2}, x.view(), transposed.view()});
  expect_values(transposed, {3, 4, 6, 5, 3, 6});
  TestTensor index({1, 3, 1}, DType::i64, {1, 0, 1}), matrix = tensor({1, 2, 3}, {1, 2, 3, 4, 5, 6});
  b.run(c, kernels::Take{matrix.view(), index.view(), rows.view()});
  expect_values(rows, {4, 5, 6, 1, 2, 3, 4, 5, 6});
  b.run(c, kernels::ScatterSum{rows.view(), index.view(), sums.view()});
  expect_values(sums, {1, 2, 3, 8, 10, 12, 0, 0, 0});
  TestTensor column({1, 1, 3}, DType::i64, {1, 0, 1}), y = empty({1, 1, 3});
  b.run(c, kernels::Take{matrix.view(), column.view(), y.view()});
  expect_values(y, {4, 2, 6});
}

TEST_F(Reference, LargestAndSumsSoFar) {
  TestTensor x = tensor({1, 2, 3}, {1, 5, 3, 4, 2, 6}), columns = empty({1, 3}), y = empty({1, 2, 3});
  b.run(c, kernels::MaxTo{x.view(), columns.view()});
  expect_values(columns, {4, 5, 6});
  b.run(c, kernels::Cumsum{false, x.view(), y.view()});
  expect_values(y, {1, 5, 3, 5, 7, 9});
  b.run(c, kernels::Cumsum{true, x.view(), y.view()});
  expect_values(y, {5, 7, 9, 4, 2, 6});
}

TEST_F(Reference, Sums) {
  TestTensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6}), columns = empty({3}), rows = empty({2, 1}), all = empty({1});
  b.run(c, kernels::SumTo{x.view(), columns.view()});
  expect_values(columns, {5, 7, 9});
  b.run(c, kernels::SumTo{x.view(), rows.view()});
  expect_values(rows, {6, 15});
  b.run(c, kernels::SquaredNorm{std::array{x.view(), columns.view()}, {}, all.view()});
  expect_values(all, {91 + 25 + 49 + 81});
  std::uint8_t no = 0;
  View absent{&no, DType::u8, Layout::plain, {1}};
  b.run(c, kernels::SquaredNorm{std::array{x.view(), columns.view()}, std::array{absent, View()}, all.view()});
  expect_values(all, {25 + 49 + 81});
}

TEST_F(Reference, TreeSumRoundsInF32) {
  // 2^24 + 1 rounds to 2^24: what is added alone gets lost, what is added as a pair does not.
  float big = 16777216;
  TestTensor a({1}, DType::f32, {big}), one({1}, DType::f32, {1}), sum({1}, DType::f32);
  b.run(c, kernels::TreeSum{std::array{a.view(), one.view(), one.view(), one.view()}, sum.view()});
  expect_values(sum, {big + 2});
  b.run(c, kernels::TreeSum{std::array{a.view(), one.view(), one.view()}, sum.view()});
  expect_values(sum, {big});
  b.run(c, kernels::TreeSum{std::array{a.view(), View{}, one.view(), one.view()}, sum.view()});
  expect_values(sum, {big + 2});
}

TEST_F(Reference, Matmul) {
  TestTensor a = tensor({2, 2}, {1, 2, 3, 4}), e = tensor({2, 2}, {5, 6, 7, 8}), bias = tensor({2}, {100, 200});
  TestTensor y = empty({2, 2});
  b.run(c, kernels::Matmul{{}, a.view(), e.view(), bias.view(), y.view()});
  expect_values(y, {119, 222, 143, 250});
  b.run(c, kernels::Matmul{{.transpose_a = true}, a.view(), e.view(), {}, y.view()});
  expect_values(y, {26, 30, 38, 44});
  b.run(c, kernels::Matmul{{.transpose_b = true}, a.view(), e.view(), {}, y.view()});
  expect_values(y, {17, 23, 39, 53});
}

TEST_F(Reference, ConvolutionIsACrossCorrelation) {
  TestTensor x = tensor({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}), w = tensor({1, 1, 2, 2}, {1, 10, 100, 1000});
  TestTensor y = empty({1, 1, 2, 2}), bias = tensor({1}, {0.5});
  b.run(c, kernels::Conv{{}, x.view(), w.view(), bias.view(), y.view()});
  expect_values(y, {5421.5, 6532.5, 8754.5, 9865.5});
  b.run(c, kernels::Conv{{.stride = {2, 2}, .padding = {1, 1}}, x.view(), w.view(), {}, y.view()});
  expect_values(y, {1000, 3200, 7040, 9865});
  b.run(c, kernels::Conv{{.padding = {1, 1}, .dilation = {3, 3}}, x.view(), w.view(), {}, y.view()});
  expect_values(y, {9000, 700, 30, 1});
}

TEST_F(Reference, GroupsSeeTheirOwnChannels) {
  TestTensor x = tensor({1, 2, 1, 1}, {3, 5}), w = tensor({4, 1, 1, 1}, {1, 10, 100, 1000}), y = empty({1, 4, 1, 1});
  b.run(c, kernels::Conv{{.groups = 2}, x.view(), w.view(), {}, y.view()});
  expect_values(y, {3, 30, 500, 5000});
}

TEST_F(Reference, BatchNorm) {
  TestTensor x = tensor({4, 1, 1, 1}, {1, 3, 5, 7}), mean = empty({1}), m2 = empty({1}), y = empty({4, 1, 1, 1});
  b.run(c, kernels::NormStats{x.view(), {4, mean.view(), m2.view()}});
  expect_values(mean, {4});
  expect_values(m2, {20});
  TestTensor gamma = tensor({1}, {3}), beta = tensor({1}, {1}), residual = tensor({4, 1, 1, 1}, {0, 0, 1, -9});
  // The deviation is sqrt(20 / 4 + 4) = 3.
  b.run(c, kernels::Norm{x.view(), {4, mean.view(), m2.view()}, 4, gamma.view(), beta.view(), {}, false, y.view()});
  expect_values(y, {-2, 0, 2, 4});
  b.run(c, kernels::Norm{
               x.view(), {4, mean.view(), m2.view()}, 4, gamma.view(), beta.view(), residual.view(), true, y.view()});
  expect_values(y, {0, 0, 3, 0});
}

TEST_F(Reference, MergesStatistics) {
  // {1, 3} and {5, 7, 9}: together mean 5, M2 40.
  TestTensor mean_a = tensor({1}, {2}), m2_a = tensor({1}, {2}), mean_b = tensor({1}, {7}), m2_b = tensor({1}, {8});
  TestTensor mean = empty({1}), m2 = empty({1});
  BatchNormStats a{2, mean_a.view(), m2_a.view()}, e{3, mean_b.view(), m2_b.view()}, none{0, m2_a.view(), m2_b.view()};
  b.run(c, kernels::MergeNormStats{std::array{a, none, e}, {5, mean.view(), m2.view()}});
  expect_values(mean, {5});
  expect_values(m2, {40});
  b.run(c, kernels::MergeNormStats{std::array{none, none}, {0, mean.view(), m2.view()}});
  expect_values(mean, {0});
  expect_values(m2, {0});
}

TEST_F(Reference, CommitsTheUnbiasedVariance) {
  TestTensor mean = tensor({1}, {5}), m2 = tensor({1}, {40}), running_mean = tensor({1}, {1});
  TestTensor running_var = tensor({1}, {2}), batches({}, DType::i64, {7});
  auto commit = [&](std::int64_t n) {
    b.run(c, kernels::CommitNormStats{
                 {n, mean.view(), m2.view()}, 0.25, running_mean.view(), running_var.view(), batches.view()});
  };
  commit(0);
  expect_values(running_mean, {1});
  commit(5);
  expect_values(running_mean, {2});
  expect_values(running_var, {4});
  commit(1);
  expect_values(running_mean, {2.75});
  expect_values(batches, {10});  // the one without samples, too
  expect_values(running_var, {4});
}

TEST_F(Reference, Pooling) {
  TestTensor x = tensor({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}), y = empty({1, 1, 2, 2}), mean = empty({1, 1, 1, 1});
  Pool2dOptions padded{.kernel_size = {2, 2}, .stride = {2, 2}, .padding = {1, 1}};
  TestTensor where({1, 1, 2, 2}, DType::i64);
  b.run(c, kernels::MaxPool{padded, x.view(), y.view(), where.view()});
  expect_values(y, {1, 3, 7, 9});
  expect_values(where, {0, 2, 6, 8});
  b.run(c, kernels::AvgPool{padded, x.view(), y.view()});
  expect_values(y, {0.25, 1.25, 2.75, 7});
  padded.count_include_pad = false;
  b.run(c, kernels::AvgPool{padded, x.view(), y.view()});
  expect_values(y, {1, 2.5, 5.5, 7});
  b.run(c, kernels::GlobalAvgPool{x.view(), mean.view()});
  expect_values(mean, {5});
}

TEST_F(Reference, SoftmaxAndLosses) {
  double log2 = std::log(2.0);
  TestTensor x = tensor({2, 2}, {0, log2, 0, 0}), y = empty({2, 2}), loss = empty({1}), sums = empty({3});
  b.run(c, kernels::Softmax{x.view(), y.view()});
  expect_values(y, {1.0 / 3, 2.0 / 3, 0.5, 0.5});
  b.run(c, kernels::LogSoftmax{x.view(), y.view()});
  expect_values(y, {-std::log(3.0), log2 - std::log(3.0), -log2, -log2});
  TestTensor labels({2}, DType::i64, {1, 0});
  b.run(c, kernels::CrossEntropy{x.view(), labels.view(), {}, sums.view()});
  expect_values(sums, {(std::log(3.0) - log2 + log2) / 2, 0, 1});
  b.run(c, kernels::CrossEntropy{x.view(), labels.view(), {.smoothing = 0.2}, sums.view()});
  expect_values(sums, {(0.9 * (std::log(3.0) - log2) + 0.1 * std::log(3.0) + log2) / 2, 0, 1});
  b.run(c, kernels::CrossEntropy{x.view(), labels.view(), {.ignored = 1}, sums.view()});
  expect_values(sums, {log2 / 2, 0.5, 0.5});
  b.run(c, kernels::CrossEntropyMean{sums.view(), loss.view()});
  expect_values(loss, {log2});
  TestTensor target = tensor({2, 2}, {0, log2, 1, 3});
  b.run(c, kernels::Mse{x.view(), target.view(), loss.view()});
  expect_values(loss, {2.5});
}

TEST_F(Reference, SgdFollowsTorch) {
  TestTensor w = tensor({1}, {1}), g = tensor({1}, {2}), m = tensor({1}, {0}), scale = tensor({1}, {0.5});
  Update<View> item{w.view(), g.view(), {m.view()}};
  b.run(c, kernels::Update<SgdRule>{{.lr = 0.1, .momentum = 0.5, .weight_decay = 1}, {&item, 1}, scale.view()});
  expect_values(m, {2});  // 0.5 * 2 + 1 * 1
  expect_values(w, {0.8});
  b.run(c, kernels::Update<SgdRule>{{.lr = 0.1, .momentum = 0.5, .nesterov = true}, {&item, 1}, {}});
  expect_values(m, {3});  // 0.5 * 2 + 2
  expect_values(w, {0.8 - 0.1 * (2 + 0.5 * 3)});
}

TEST_F(Reference, AdamFollowsTorch) {
  for (bool decoupled : {false, true}) {
    TestTensor w = tensor({1}, {1}), g = tensor({1}, {2}), m = tensor({1}, {0}), v = tensor({1}, {0});
    TestTensor steps({1}, DType::i64, {0});
    Update<View> item{w.view(), g.view(), {m.view(), v.view()}, {}, steps.view()};
    AdamRule args{
        .lr = 0.1, .beta1 = 0.5, .beta2 = 0.75, .eps = 0, .weight_decay = 0.5, .decoupled_weight_decay = decoupled};
    b.run(c, kernels::Update<AdamRule>{args, {&item, 1}, {}});
    // The first step is lr times the sign of the gradient, whatever its size.
    expect_values(w, {decoupled ? 1 - 0.1 * 0.5 - 0.1 : 1 - 0.1});
    double gradient = decoupled ? 2 : 2.5;
    expect_values(m, {0.5 * gradient});
    expect_values(v, {0.25 * gradient * gradient});
  }
}

TEST_F(Reference, ClipScaleIsAtMostOne) {
  TestTensor squared = tensor({1}, {25}), scale = empty({1});
  b.run(c, kernels::ClipScale{1, squared.view(), scale.view()});
  expect_values(scale, {1 / (5 + 1e-6)});
  b.run(c, kernels::ClipScale{100, squared.view(), scale.view()});
  expect_values(scale, {1});
}

}  // namespace
}  // namespace lockstep::testing
