
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/autograd/functions.h"
#include "lockstep/ops/copy.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

class LossScalerTest : public ::testing::Test {
 protected:
  Parameter parameter(const Numbers& v) {
    Parameter p(ParameterOptions{.shape = {static_cast<std::int64_t>(v.size())}});
    p.initialize("w", runtime_.devices(), Constant{0}, 0);
    p.set_data(make_tensor(v, p.shape(), runtime_.devices()[0]));
    return p;
  }
  // A loss of which g is the gradient, one half of it from each of two shards.
  void give_gradient(const Parameter& p, const Numbers& g, const LossScaler& scaler) {
    const Numbers rows{0.5, 0.5};
    const auto at = std::make_shared<Placement>(
        std::vector<std::int64_t>{1, 1}, std::vector<Slot>{{0, runtime_.devices()[0]}, {1, runtime_.devices()[1]}});
    const Tensor half = scatter(make_tensor(rows, {2, 1}, runtime_.devices()[0]), at);
    sum(half * p * Tensor::from(std::vector<float>(g.begin(), g.end()), p.shape()))
        .backward({.scales = scaler.scales()});
  }
  Numbers weights(const Parameter& p, std::size_t device = 0) { return values(p.data(runtime_.devices()[device])); }
  // One for each device.
  std::vector<float> scales(const LossScaler& scaler) {
    std::vector<float> all;
    for (const Array& scale : scaler.scales()) all.push_back(ops::host_readable(scale).item<float>());
    return all;
  }

  Runtime runtime_{{.cpu_devices = 2}};
};

TEST_F(LossScalerTest, GradientsAreScaledAndTheStepIsTheSame) {
  Parameter plain = parameter({1, 2, 3}), scaled = parameter({1, 2, 3});
  Sgd expected({plain}, {.lr = 0.1, .momentum = 0.9}), actual({scaled}, {.lr = 0.1, .momentum = 0.9});
  LossScaler scaler(runtime_.devices(), {.initial_scale = 1024}), one(runtime_.devices(), {.initial_scale = 1});
  for (const double max_norm : {0.0, 0.25, 100.0}) {
    SCOPED_TRACE(max_norm);
    give_gradient(plain, {0.1, -0.7, 0.3}, one);
    give_gradient(scaled, {0.1, -0.7, 0.3}, scaler);
    const Numbers g = values(plain.gradient());
    EXPECT_EQ(values(scaled.gradient()), (Numbers{g[0] * 1024, g[1] * 1024, g[2] * 1024}));
    if (max_norm > 0) expected.clip_grad_norm(max_norm);
    actual.unscale(scaler, max_norm);
    expected.step();
    actual.step();
    for (std::size_t device : {0U, 1U}) EXPECT_EQ(weights(scaled, device), weights(plain, device));
  }
  EXPECT_EQ(scaler.state().good_steps, 3);
}

// scale(loss).backward() is backward() with the scales, for a loss of a batch and for one of whole tensors.
TEST_F(LossScalerTest, AScaledLossGivesScaledGradients) {
  const LossScaler scaler(runtime_.devices(), {.initial_scale = 1024});
  const auto at = std::make_shared<Placement>(
      std::vector<std::int64_t>{1, 1}, std::vector<Slot>{{0, runtime_.devices()[0]}, {1, runtime_.devices()[1]}});
  const Tensor rows = scatter(make_tensor({0.1, 0.7}, {2, 1}, runtime_.devices()[0]), at);
  const Parameter p = parameter({1, 2, 3}), q = parameter({1, 2, 3});
  sum(rows * p).backward({.scales = scaler.scales()});
  const Tensor scaled = scaler.scale(sum(rows * q));
  scaled.backward();
  EXPECT_EQ(values(q.gradient()), values(p.gradient()));
  EXPECT_NEAR(values(scaled)[0], 0.8 * 6 * 1024, 1e-2);
  Tensor x = as_leaf(ones({2}));
  scaler.scale(mean(x)).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{512, 512}));
  EXPECT_ERROR(scaler.scale(rows), "expected a floating type that is not cut over the batch");
}

// PyTorch's order: first unscale, then clip.
TEST_F(LossScalerTest, ClippingSeesUnscaledGradients) {
  Parameter plain = parameter({1, 2, 3}), scaled = parameter({1, 2, 3});
  Sgd expected({plain}, {.lr = 0.1}), actual({scaled}, {.lr = 0.1});
  LossScaler scaler(runtime_.devices(), {.initial_scale = 1024}), one(runtime_.devices(), {.initial_scale = 1});
  for (const double max_norm : {0.25, 100.0}) {
    give_gradient(plain, {0.1, -0.7, 0.3}, one);
    give_gradient(scaled, {0.1, -0.7, 0.3}, scaler);
    actual.unscale(scaler);
    EXPECT_EQ(actual.clip_grad_norm(max_norm).item<double>(), expected.clip_grad_norm(max_norm).item<double>());
    expected.step();
    actual.step();
    for (std::size_t device : {0U, 1U}) EXPECT_EQ(weights(scaled, device), weights(plain, device));
  }
  // Clipping does not undo that a step is skipped.
  for (const double bad : {double{std::numeric_limits<float>::infinity()}, std::nan("")}) {
    const Numbers before = weights(scaled);
    give_gradient(scaled, {0.1, bad, 0.3}, scaler);
    actual.unscale(scaler);
    EXPECT_FALSE(std::isfinite(actual.clip_grad_norm(0.25).item<double>()));
    actual.step();
    for (std::size_t device : {0U, 1U}) EXPECT_EQ(weights(scaled, device), before);
  }
}

// PyTorch's order for values, too.
TEST_F(LossScalerTest, MappedGradientsAreUnscaled) {
  Parameter plain = parameter({1, 2, 3}), scaled = parameter({1, 2, 3});
  Sgd expected({plain}, {.lr = 0.1}), actual({scaled}, {.lr = 0.1});
  LossScaler scaler(runtime_.devices(), {.initial_scale = 1024}), one(runtime_.devices(), {.initial_scale = 1});
  for (const bool with_norm : {false, true}) {
    give_gradient(plain, {0.1, -0.7, 0.3}, one);
    give_gradient(scaled, {0.1, -0.7, 0.3}, scaler);
    actual.unscale(scaler);
    for (Sgd* sgd : {&expected, &actual}) {
      if (with_norm) sgd->clip_grad_norm(0.5);
      sgd->clip_grad_value(0.25);
      if (with_norm) sgd->clip_grad_norm(0.125);
    }
    EXPECT_NEAR(values(scaled.gradient())[1], -0.25, 1e-12);
    expected.step();
    actual.step();
    for (std::size_t device : {0U, 1U}) EXPECT_EQ(weights(scaled, device), weights(plain, device));
  }
  // It does not undo that a step is skipped.
  const Numbers before = weights(scaled);
  give_gradient(scaled, {0.1, std::numeric_limits<float>::infinity(), 0.3}, scaler);
  actual.unscale(scaler);
  actual.clip_grad_value(0.25);
  actual.clip_grad_norm(0.25);
  actual.step();
  for (std::size_t device : {0U, 1U}) EXPECT_EQ(weights(scaled, device), before);
}

// The next step would multiply them by the factor of the gradients before.
TEST_F(LossScalerTest, GradientsAreSetBeforeTheyAreUnscaled) {
  Parameter p = parameter({1, 2});
  Sgd sgd({p}, {.lr = 1});
  LossScaler scaler(runtime_.devices(), {.initial_scale = 4});
  const Tensor value = ones({2});
  for (const bool unscales : {true, false}) {
    give_gradient(p, {0.5, 0.5}, scaler);
    unscales ? sgd.unscale(scaler) : void(sgd.clip_grad_norm(1));
    EXPECT_ERROR(p.set_gradient(value),
                 "set_gradient: parameter w: its optimizer has clipped or unscaled the gradients");
    EXPECT_ERROR(p.map_gradient([](const Tensor& g) { return g; }), "or Optimizer::map_gradients()");
    sgd.zero_grad();
    p.set_gradient(value);
    sgd.step();
  }
  EXPECT_EQ(weights(p), (Numbers{-1, 0}));
  // The factors of unscale() are in the gradients, those of a clipping after that are not.
  give_gradient(p, {0.5, 0.5}, scaler);
  sgd.unscale(scaler);
  sgd.clip_grad_value(1);
  p.map_gradient([](const Tensor& g) { return g; });
  sgd.clip_grad_norm(1);
  EXPECT_ERROR(p.set_gradient(value), "its optimizer has clipped or unscaled the gradients");
}

// A factor holds for the gradients that it was computed from.
TEST_F(LossScalerTest, FactorsGoWithTheirGradients) {
  Parameter p = parameter({1, 2}), q = parameter({3});
  Sgd sgd({p, q}, {.lr = 1});
  LossScaler one(runtime_.devices(), {.initial_scale = 1}), scaler(runtime_.devices(), {.initial_scale = 4});
  for (const bool unscales : {true, false}) {
    for (const bool by_value : {true, false}) {
      const Numbers before = weights(p);
      give_gradient(p, {30, 40}, unscales ? scaler : one);
      unscales ? sgd.unscale(scaler, 1) : void(sgd.clip_grad_norm(1));
      // Another pass would be multiplied, too.
      EXPECT_ERROR(give_gradient(p, {1, 1}, one),
                   "gradient is clipped or unscaled already, and its optimizer's step would");
      EXPECT_ERROR(give_gradient(q, {1}, one), "is clipped or unscaled already");
      p.zero_grad();
      if (by_value) {
        p.set_gradient(ones({2}));
      } else {
        give_gradient(p, {1, 1}, one);
      }
      sgd.step();
      EXPECT_EQ(weights(p), (Numbers{before[0] - 1, before[1] - 1})) << unscales << by_value;
    }
  }
  // Some are gone, others are there.
  give_gradient(p, {30, 40}, one);
  give_gradient(q, {1}, one);
  sgd.clip_grad_norm(1);
  q.zero_grad();
  give_gradient(q, {1}, one);
  EXPECT_ERROR(sgd.step(),
               "step: parameter \"w\" has another gradient than when the optimizer's gradients were clipped");
  EXPECT_ERROR(sgd.clip_grad_norm(1), "clip_grad_norm: parameter \"w\" has another gradient");
  sgd.zero_grad();
  give_gradient(q, {1}, one);
  sgd.clip_grad_norm(1);
  sgd.step();
  EXPECT_NEAR(weights(q)[0], 2, 1e-5);
}

TEST_F(LossScalerTest, OneStepIsUnscaledOnceBeforeItIsClipped) {
  Parameter p = parameter({1});
  Sgd optimizer({p}, {.lr = 0.1});
  LossScaler scaler(runtime_.devices());
  give_gradient(p, {1}, scaler);
  optimizer.clip_grad_norm(1);
  EXPECT_ERROR(optimizer.unscale(scaler), "unscale: the gradients are already unscaled or clipped");
  optimizer.zero_grad();
  give_gradient(p, {1}, scaler);
  optimizer.unscale(scaler);
  EXPECT_ERROR(optimizer.unscale(scaler), "unscale: the gradients are already unscaled or clipped");
  optimizer.step();
  EXPECT_EQ(scaler.state().good_steps, 1);
}

// The step would be smaller by the scale.
TEST_F(LossScalerTest, GradientsOfALossThatWasNotScaledAreRefused) {
  Parameter p = parameter({1});
  Sgd optimizer({p}, {.lr = 0.1});
  LossScaler scaler(runtime_.devices());
  sum(square(p)).backward();
  EXPECT_ERROR(optimizer.unscale(scaler), "unscale: this LossScaler has scaled no loss");
  optimizer.zero_grad();
  scaler.scale(sum(square(p))).backward();
  optimizer.unscale(scaler);
  optimizer.step();
  EXPECT_NEAR(weights(p)[0], 0.8, 1e-6);
}

// The first one adjusts the scale, which the gradients of the second do not have.
TEST_F(LossScalerTest, TwoOptimizersNeedABackwardEach) {
  Parameter p = parameter({1}), q = parameter({1});
  Sgd a({p}, {.lr = 0.1}), b({q}, {.lr = 0.1});
  LossScaler scaler(runtime_.devices(), {.initial_scale = 4, .growth_interval = 1});
  give_gradient(p, {1}, scaler);
  give_gradient(q, {1}, scaler);
  a.unscale(scaler);
  EXPECT_ERROR(b.unscale(scaler), "unscale: this LossScaler has already adjusted its scale since the last backward()");
  a.step();
  b.zero_grad();
  give_gradient(q, {1}, scaler);
  b.unscale(scaler);
  b.step();
  EXPECT_EQ(weights(q), weights(p));
  EXPECT_EQ(scaler.state().scale, 16);
}

TEST_F(LossScalerTest, KeepsGradientsThatF16WouldRoundToZero) {
  for (const double scale : {1.0, 1024.0}) {
    Parameter p = parameter({1, 2});
    LossScaler scaler(runtime_.devices(), {.initial_scale = scale});
    const Tensor x = Tensor(p).to(DType::f16);
    sum((x * 1e-9).to(DType::f32)).backward({.scales = scaler.scales()});
    for (const double g : values(p.gradient())) EXPECT_NEAR(g / scale, scale == 1 ? 0 : 1e-9, 5e-11);
  }
}

TEST_F(LossScalerTest, AGradientThatIsNotFiniteCostsTheStepAndHalfOfTheScale) {
  for (const double bad : {double{std::numeric_limits<float>::infinity()}, std::nan("")}) {
    Parameter p = parameter({1, 2});
    Adam optimizer({p}, {.lr = 0.1, .weight_decay = 0.1});
    LossScaler scaler(runtime_.devices(), {.initial_scale = 64});
    give_gradient(p, {0.5, 0.5}, scaler);
    optimizer.unscale(scaler);
    optimizer.step();
    const Numbers after_one = weights(p);
    const auto moments = optimizer.state_dict().at(0).second.to_vector<float>();

    const Tensor before = scaler.current();
    give_gradient(p, {0.5, bad}, scaler);
    optimizer.unscale(scaler, 1);
    optimizer.step();
    EXPECT_EQ(before.item<float>(), 64);
    EXPECT_EQ(scales(scaler), (std::vector<float>{32, 32}));
    EXPECT_EQ(scaler.state().good_steps, 0);
    for (std::size_t device : {0U, 1U}) EXPECT_EQ(weights(p, device), after_one);
    EXPECT_EQ(optimizer.state_dict().at(0).second.to_vector<float>(), moments);

    give_gradient(p, {0.5, 0.5}, scaler);
    optimizer.unscale(scaler);
    optimizer.step();
    EXPECT_NE(weights(p), after_one);
    EXPECT_EQ(weights(p, 1), weights(p, 0));
  }
}

// 2^127 overflows in the sum over shards alone.
TEST_F(LossScalerTest, TheScaleGrowsAfterGoodStepsInARow) {
  Parameter p = parameter({1});
  Sgd optimizer({p}, {.lr = 0.1});
  LossScaler scaler(runtime_.devices(), {.initial_scale = 4, .growth_interval = 3});
  std::vector<double> seen;
  for (const double g : {1.0, 1.0, 1.0, 1.0, 1.0, 0x1p126, 1.0, 1.0, 1.0}) {
    give_gradient(p, {g}, scaler);
    optimizer.unscale(scaler);
    optimizer.step();
    seen.push_back(scaler.state().scale);
  }
  EXPECT_EQ(seen, (Numbers{4, 4, 8, 8, 8, 4, 4, 4, 8}));
}

TEST_F(LossScalerTest, GoesOnFromItsState) {
  LossScaler scaler(runtime_.devices(), {.initial_scale = 16, .growth_interval = 5}),
      other(runtime_.devices(), {.growth_interval = 5});
  EXPECT_EQ(scales(other), (std::vector<float>{65536, 65536}));
  Parameter p = parameter({1});
  Sgd optimizer({p}, {.lr = 0});
  auto step = [&](LossScaler& s) {
    give_gradient(p, {1}, s);
    optimizer.unscale(s);
    optimizer.step();
  };
  for (int i = 0; i < 3; ++i) step(scaler);
  other.set_state(scaler.state());
  EXPECT_EQ(other.state().good_steps, 3);
  for (int i = 0; i < 2; ++i) step(other);
  EXPECT_EQ(scales(other), (std::vector<float>{32, 32}));
}

TEST_F(LossScalerTest, OptionsAreChecked) {
  for (const double scale : {0.0, -2.0, 1000.0, std::nan(""), 0x1p61}) {
    EXPECT_ERROR(LossScaler(runtime_.devices(), {.initial_scale = scale}), "expected a power of two between");
  }
  EXPECT_ERROR(LossScaler(runtime_.devices(), {.growth_interval = 0}), "growth interval of 0, expected 1 to 16777215");
  EXPECT_ERROR(LossScaler({}), "no devices");
  LossScaler scaler(std::span(runtime_.devices()).first(1));
  EXPECT_ERROR(scaler.set_state({64, 2000}), "2000 good steps, expected 0 to 1999");
  Parameter p = parameter({1});
  EXPECT_ERROR(give_gradient(p, {1}, scaler),
               fmt::format("there is no loss scale on {}", runtime_.devices()[1].name()));
  Sgd optimizer({parameter({2})}, {});
  EXPECT_ERROR(scaler.check_state({0, 0}), "a scale of 0, expected a power of two");
  EXPECT_ERROR(optimizer.unscale(scaler), "unscale: none of the optimizer's parameters has a gradient");
}

// Without a scaler nothing is left out in silence.
TEST_F(LossScalerTest, WithoutOneAGradientThatIsNotFiniteIsSeenInTheWeights) {
  Parameter p = parameter({1, 2});
  Sgd optimizer({p}, {.lr = 0.1});
  LossScaler one(runtime_.devices(), {.initial_scale = 1});
  give_gradient(p, {0.5, std::numeric_limits<double>::infinity()}, one);
  optimizer.clip_grad_norm(1);
  optimizer.step();
  EXPECT_TRUE(std::isnan(weights(p)[1]));
}

}  // namespace
}  // namespace lockstep::testing
