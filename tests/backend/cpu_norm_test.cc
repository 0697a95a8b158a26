// Particulars of the CPU's batch norm: how it cuts tensors into panels and units, and how it rounds.
#include <cmath>
#include <limits>

#include "lockstep/backend/cpu/families.h"
#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

constexpr double kCpuNormEps = 1e-5;

struct Images {
  Shape shape;
  DType dtype;
  Layout layout;

  std::int64_t samples() const { return shape[0] * shape[2] * shape[3]; }
  std::string str() const { return shape.str() + " " + std::string(name(dtype)) + " " + std::string(name(layout)); }
};

// Several blocks of rows, groups with fewer than 64 columns, several blocks of images, planes cut into
// pieces.
std::vector<Images> images() {
  std::vector<Images> images;
  for (const Shape& shape :
       std::vector<Shape>{{5, 80, 14, 14}, {3, 100, 9, 9}, {50, 16, 7, 7}, {2, 16, 40, 50}, {2, 3, 150, 151}}) {
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (Layout layout : layouts_that_fit(shape)) images.push_back({shape, dtype, layout});
    }
  }
  return images;
}

struct Results {
  TestTensor mean, m2, y, dgamma, dbeta, dx, dresidual;
};

// A forward and a backward pass with residual and ReLU.
Results passes(NormKernels& norm, int threads, const TestTensor& x, const TestTensor& residual, const TestTensor& dy,
               const TestTensor& gamma, const TestTensor& beta) {
  KernelContext context{threads};
  const Shape& s = x.shape();
  auto like_x = [&] { return TestTensor(s, x.dtype(), x.layout()); };
  auto per_channel = [&] { return TestTensor({s[1]}, gamma.dtype()); };
  Results r{per_channel(), per_channel(), like_x(), per_channel(), per_channel(), like_x(), like_x()};
  BatchNormStats stats{s[0] * s[2] * s[3], r.mean.view(), r.m2.view()};
  norm.run(context, kernels::NormStats{x.view(), stats});
  norm.run(context,
           kernels::Norm{x.view(), stats, kCpuNormEps, gamma.view(), beta.view(), residual.view(), true, r.y.view()});
  norm.run(context, kernels::NormBackwardStats{dy.view(), x.view(), r.y.view(), stats, kCpuNormEps, r.dgamma.view(),
                                               r.dbeta.view()});
  norm.run(context, kernels::NormBackwardData{dy.view(), x.view(), r.y.view(), stats, kCpuNormEps, gamma.view(),
                                              r.dbeta.view(), r.dgamma.view(), r.dx.view(), r.dresidual.view()});
  return r;
}

TEST(CpuNormTest, SameBitsOnAnyNumberOfThreads) {
  Random random(1);
  for (const Images& i : images()) {
    SCOPED_TRACE(i.str());
    const auto cpu = make_cpu_backend();
    TestTensor x = random.tensor(i.shape, i.dtype, i.layout), residual = random.tensor(i.shape, i.dtype, i.layout);
    TestTensor dy = random.tensor(i.shape, i.dtype, i.layout);
    TestTensor gamma = random.tensor({i.shape[1]}, DType::f32), beta = random.tensor({i.shape[1]}, DType::f32);
    Results one = passes(*cpu->families().norm, 1, x, residual, dy, gamma, beta);
    for (int threads : {2, 3}) {
      SCOPED_TRACE(threads);
      Results many = passes(*cpu->families().norm, threads, x, residual, dy, gamma, beta);
      for (auto result : {&Results::mean, &Results::m2, &Results::y, &Results::dgamma, &Results::dbeta, &Results::dx,
                          &Results::dresidual}) {
        EXPECT_TRUE((one.*result).same_bits(many.*result));
      }
    }
  }
}

TEST(CpuNormTest, UnitsOfEveryKindAgreeWithTheReference) {
  Random random(2);
  for (const Images& i : images()) {
    SCOPED_TRACE(i.str());
    TestTensor x = random.tensor(i.shape, i.dtype, i.layout), residual = random.tensor(i.shape, i.dtype, i.layout);
    TestTensor dy = random.tensor(i.shape, i.dtype, i.layout);
    TestTensor gamma = random.tensor({i.shape[1]}, DType::f32), beta = random.tensor({i.shape[1]}, DType::f32);
    Results actual = passes(*make_cpu_backend()->families().norm, 2, x, residual, dy, gamma, beta);
    Results expected = passes(*reference_backend().families().norm, 1, x.oracle(), residual.oracle(), dy.oracle(),
                              gamma.oracle(), beta.oracle());
    expect_close(actual.mean, expected.mean, 1e-4);  // of a mean near 0
    expect_close(actual.m2, expected.m2, 1e-5);
    const double tolerance = i.dtype == DType::bf16 ? 2e-2 : i.dtype == DType::f16 ? 2.5e-3 : 1e-4;
    for (auto result : {&Results::y, &Results::dgamma, &Results::dbeta, &Results::dx, &Results::dresidual}) {
      expect_close(actual.*result, expected.*result, tolerance);
    }
  }
}

TEST(CpuNormTest, VarianceSurvivesALargeMean) {
  Random random(3);
  const Shape shape{8, 16, 28, 28};
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& value : values) value = 1e3 + random.normal();
  for (Layout layout : layouts_that_fit(shape)) {
    SCOPED_TRACE(name(layout));
    TestTensor x(shape, DType::f32, layout, values), mean({16}), m2({16}), mean64({16}, DType::f64);
    TestTensor m264({16}, DType::f64);
    KernelContext context;
    const std::int64_t n = shape.numel() / 16;
    make_cpu_norm()->run(context, kernels::NormStats{x.view(), {n, mean.view(), m2.view()}});
    reference_backend().run(context, kernels::NormStats{x.oracle().view(), {n, mean64.view(), m264.view()}});
    for (int c = 0; c < 16; ++c) {
      EXPECT_NEAR(mean.values()[c], mean64.values()[c], 1e-4);
      EXPECT_NEAR(m2.values()[c] / m264.values()[c], 1, 1e-4);
    }
  }
}

// The first row is what sums are shifted by: here it is as far from all the rest as it can be.
TEST(CpuNormTest, VarianceSurvivesAnOutlierInTheFirstRow) {
  for (Layout layout : layouts_that_fit({4, 16, 16, 16})) {
    SCOPED_TRACE(name(layout));
    std::vector<double> values(4 * 16 * 256, 1000.0);
    for (std::size_t i = 0; i < values.size(); i += 256) values[i] = 0;
    TestTensor x({4, 16, 16, 16}, DType::f32, layout, values), mean({16}), m2({16});
    KernelContext context;
    make_cpu_norm()->run(context, kernels::NormStats{x.view(), {1024, mean.view(), m2.view()}});
    // 4 of 1024 are 0, the others 1000.
    for (int c = 0; c < 16; ++c) {
      EXPECT_NEAR(mean.values()[c], 1000 - 4000.0 / 1024, 1e-3);
      EXPECT_NEAR(m2.values()[c] / (4e6 * (1 - 4.0 / 1024)), 1, 1e-4);
    }
  }
}

// 64 channels take the way of full rows, 3 that of the rest.
TEST(CpuNormTest, RoundsToNearestEvenAndKeepsNan) {
  const double ulp = 1.0 / 128;
  for (std::int64_t channels : {64, 3}) {
    SCOPED_TRACE(channels);
    std::vector<double> values, expected;
    for (std::int64_t c = 0; c < channels; ++c) {
      values.insert(values.end(), {1, 1 + ulp, -1 - ulp, std::numeric_limits<double>::quiet_NaN()});
      expected.insert(expected.end(), {1, 1 + 2 * ulp, 0});
    }
    const Shape shape{1, channels, 2, 2};
    TestTensor x(shape, DType::bf16, Layout::channels_last, values);
    TestTensor y(shape, DType::bf16, Layout::channels_last);
    // Normalizes to x + ulp / 2.
    const std::vector<double> zeros(channels, 0.0), ones(channels, 1.0), halves(channels, ulp / 2);
    TestTensor mean({channels}, DType::f32, Layout::plain, zeros), m2({channels}, DType::f32, Layout::plain, ones);
    TestTensor beta({channels}, DType::f32, Layout::plain, halves);
    KernelContext context;
    make_cpu_norm()->run(
        context, kernels::Norm{x.view(), {1, mean.view(), m2.view()}, 0, m2.view(), beta.view(), {}, true, y.view()});
    for (std::int64_t c = 0; c < channels; ++c) {
      for (int i = 0; i < 3; ++i) EXPECT_EQ(y.values()[c * 4 + i], expected[c * 3 + i]) << i;
      EXPECT_TRUE(std::isnan(y.values()[c * 4 + 3]));
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
