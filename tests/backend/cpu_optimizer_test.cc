// Steps computed by hand, as torch.optim takes them: one weight that starts at 1, gradients 0.5 and then
// -0.25.
#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

class CpuOptimizer : public ::testing::TestWithParam<DType> {
 protected:
  // The weight after each step; step(item, scale). Forty equal weights fill vector loops and a
  // rest.
  template <typename Step>
  std::array<double, 2> weights(const Step& step, double scale = 1) {
    const Shape shape{40};
    auto full = [&](double value) { return TestTensor(shape, GetParam(), Layout::plain, std::vector(40, value)); };
    TestTensor w = full(1), state0 = full(0), state1 = full(0), factor({1}, DType::f64, {scale}),
               steps({1}, DType::i64, {0});
    std::array<double, 2> result;
    for (int i = 0; i < 2; ++i) {
      TestTensor grad = full((i == 0 ? 0.5 : -0.25) / scale);
      Update<View> item{w.view(), grad.view(), {state0.view(), state1.view()}, {}, steps.view()};
      step(item, scale == 1 ? View{} : factor.view());
      result[i] = w.values()[0];
      EXPECT_EQ(w.values(), std::vector(40, result[i]));
    }
    return result;
  }
  std::array<double, 2> sgd(const SgdRule& args, double scale = 1) {
    return weights(
        [&](Update<View> item, const View& factor) {
          if (args.momentum == 0) item.states[0] = {};
          cpu_->run(context_, kernels::Update<SgdRule>{args, {&item, 1}, factor});
        },
        scale);
  }
  std::array<double, 2> adam(const AdamRule& args, double scale = 1) {
    return weights(
        [&](const Update<View>& item, const View& factor) {
          cpu_->run(context_, kernels::Update<AdamRule>{args, {&item, 1}, factor});
        },
        scale);
  }
  static void expect_near(const std::array<double, 2>& actual, const std::array<double, 2>& expected) {
    for (int i = 0; i < 2; ++i) EXPECT_NEAR(actual[i], expected[i], GetParam() == DType::f64 ? 1e-8 : 3e-7);
  }

  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
  KernelContext context_;
};

TEST_P(CpuOptimizer, Sgd) {
  expect_near(sgd({.lr = 0.1}), {0.95, 0.975});
  expect_near(sgd({.lr = 0.1, .weight_decay = 0.1}), {0.94, 0.9556});
}

TEST_P(CpuOptimizer, SgdWithMomentum) {
  // g: 0.6, -0.156; m: 0.6, 0.384.
  expect_near(sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}), {0.94, 0.9016});
  // g: 0.6, -0.1614; m: 0.6, 0.3786; g + 0.9 m: 1.14, 0.17934.
  expect_near(sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}), {0.886, 0.868066});
}

TEST_P(CpuOptimizer, Adam) {
  // m: 0.05, 0.02; v: 0.00025, 0.00031225; corrections: 0.1 and 0.001, then 0.19 and 0.001999.
  expect_near(adam({.lr = 0.1}), {0.9, 0.873366296});
  // g: 1.5, 0.65; m: 0.15, 0.2; v: 0.00225, 0.00267025.
  expect_near(adam({.lr = 0.1, .weight_decay = 1}), {0.9, 0.808923395});
  // As without decay, but the weight shrinks by a hundredth first.
  expect_near(adam({.lr = 0.1, .weight_decay = 0.1, .decoupled_weight_decay = true}), {0.89, 0.854466296});
}

TEST_P(CpuOptimizer, ScalesGradientsAndNotTheDecay) {
  SgdRule args{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1};
  EXPECT_EQ(sgd(args, 0.25), sgd(args));
  AdamRule adam_args{.lr = 0.1, .weight_decay = 1};
  EXPECT_EQ(adam(adam_args, 0.25), adam(adam_args));
}

TEST_P(CpuOptimizer, ClipsToTheNorm) {
  auto clip = [&](double squared) {
    TestTensor norm({1}, DType::f64, {squared}), scale({1}, DType::f64);
    cpu_->run(context_, kernels::ClipScale{2, norm.view(), scale.view()});
    return scale.values()[0];
  };
  EXPECT_EQ(clip(0), 1);
  EXPECT_EQ(clip(3), 1);
  EXPECT_NEAR(clip(100), 0.2, 1e-6);
  double nan = clip(std::numeric_limits<double>::quiet_NaN());
  EXPECT_NE(nan, nan);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CpuOptimizer, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace lockstep::testing
