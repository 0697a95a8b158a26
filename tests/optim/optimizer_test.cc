// Optimizers against their formulas, written down once more in f64.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <type_traits>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/adadelta.h"
#include "lockstep/optim/adagrad.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lbfgs.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/reduce_lr_on_plateau.h"
#include "lockstep/optim/rmsprop.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

// A copy would share states, claims, or the rate of an optimizer.
template <typename T>
constexpr bool kOnlyMoves =
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> && std::is_move_constructible_v<T>;
static_assert(kOnlyMoves<Sgd> && kOnlyMoves<Adam> && kOnlyMoves<AdamW> && kOnlyMoves<RMSprop> && kOnlyMoves<Adagrad> &&
              kOnlyMoves<Adadelta> && kOnlyMoves<LBFGS> && kOnlyMoves<LossScaler> && kOnlyMoves<ReduceLROnPlateau>);

// Gradients and weights of a few steps; sizes that vector loops do not divide.
constexpr std::int64_t kSize = 37;
constexpr int kSteps = 5;

Numbers start() { return Random(1).uniforms(kSize); }
Numbers gradient(int step) { return Random(100 + static_cast<std::uint64_t>(step)).uniforms(kSize); }

// A step on one weight: its gradient, and the number of the step from 1.
using Formula = std::function<void(double& w, double g, int step, std::array<double, 3>& state)>;

Numbers expected_weights(const Formula& formula) {
  Numbers w = start();
  for (std::size_t i = 0; i < w.size(); ++i) {
    std::array<double, 3> state{};
    for (int step = 1; step <= kSteps; ++step) formula(w[i], gradient(step)[i], step, state);
  }
  return w;
}

class OptimizerTest : public ::testing::Test {
 protected:
  Parameter parameter(const std::string& name, const Numbers& v, DType dtype = DType::f32) {
    Parameter p(ParameterOptions{.shape = {static_cast<std::int64_t>(v.size())}, .dtype = dtype});
    p.initialize(name, runtime_.devices(), Constant{0}, 0);
    p.set_data(make_tensor(v, p.shape(), runtime_.devices()[0], dtype));
    return p;
  }
  // As backward() leaves it, from the replica on a device.
  void give_gradient(const Parameter& p, const Numbers& g, std::size_t device = 1) {
    Device d = runtime_.devices()[device];
    sum(p * make_tensor(g, p.shape(), d, p.dtype())).backward();
  }
  Numbers weights(const Parameter& p, std::size_t device = 0) { return values(p.data(runtime_.devices()[device])); }

  void expect_formula(const std::function<std::unique_ptr<Optimizer>(std::vector<Parameter>)>& make,
                      const Formula& formula) {
    Numbers expected = expected_weights(formula);
    for (DType dtype : {DType::f32, DType::f64}) {
      Parameter p = parameter("w", start(), dtype);
      auto optimizer = make({p});
      for (int step = 1; step <= kSteps; ++step) {
        give_gradient(p, gradient(step));
        optimizer->step();
        EXPECT_EQ(optimizer->steps(), step);
      }
      EXPECT_LT(distance(weights(p), expected), dtype == DType::f64 ? 1e-12 : 1e-6);
      EXPECT_EQ(weights(p, 1), weights(p, 0));
    }
  }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1}};
};

template <typename O, typename Options>
auto maker(Options options) {
  return [options](std::vector<Parameter> p) { return std::make_unique<O>(std::move(p), options); };
}

TEST_F(OptimizerTest, Sgd) {
  for (double decay : {0.0, 0.1}) {
    expect_formula(maker<Sgd>(SgdOptions{.lr = 0.3, .weight_decay = decay}),
                   [=](double& w, double g, int, auto&) { w -= 0.3 * (g + decay * w); });
    for (bool nesterov : {false, true}) {
      SgdOptions options{.lr = 0.3, .momentum = 0.9, .weight_decay = decay, .nesterov = nesterov};
      expect_formula(maker<Sgd>(options), [=](double& w, double g, int, auto& state) {
        g += decay * w;
        state[0] = 0.9 * state[0] + g;
        w -= 0.3 * (nesterov ? g + 0.9 * state[0] : state[0]);
      });
    }
  }
}

// Kingma and Ba 2014; AdamW: Loshchilov and Hutter 2019.
template <typename Options>
Formula adam(const Options& o) {
  return [=](double& w, double g, int step, auto& state) {
    if constexpr (std::is_same_v<Options, AdamWOptions>) {
      w -= o.lr.base() * o.weight_decay * w;
    } else {
      g += o.weight_decay * w;
    }
    state[0] = o.beta1 * state[0] + (1 - o.beta1) * g;
    state[1] = o.beta2 * state[1] + (1 - o.beta2) * g * g;
    double m = state[0] / (1 - std::pow(o.beta1, step)), v = state[1] / (1 - std::pow(o.beta2, step));
    w -= o.lr.base() * m / (std::sqrt(v) + o.eps);
  };
}

TEST_F(OptimizerTest, Adam) {
  for (double decay : {0.0, 0.1}) {
    const AdamOptions options{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3, .weight_decay = decay};
    expect_formula(maker<Adam>(options), adam(options));
    const AdamWOptions decoupled{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3, .weight_decay = decay};
    expect_formula(maker<AdamW>(decoupled), adam(decoupled));
  }
  EXPECT_EQ(AdamOptions{}.weight_decay, 0);  // as in PyTorch
  EXPECT_EQ(AdamWOptions{}.weight_decay, 0.01);
}

// Tieleman and Hinton 2012, as torch.optim.RMSprop.
TEST_F(OptimizerTest, RMSprop) {
  for (double momentum : {0.0, 0.9}) {
    for (bool centered : {false, true}) {
      RMSpropOptions o{.lr = 0.05, .alpha = 0.8, .eps = 1e-3, .weight_decay = 0.1, .momentum = momentum};
      o.centered = centered;
      expect_formula(maker<lockstep::RMSprop>(o), [=](double& w, double g, int, auto& state) {
        g += o.weight_decay * w;
        state[0] = o.alpha * state[0] + (1 - o.alpha) * g * g;
        state[1] = o.alpha * state[1] + (1 - o.alpha) * g;
        const double mean = centered ? state[1] : 0;
        state[2] = momentum * state[2] + g / (std::sqrt(state[0] - mean * mean) + o.eps);
        w -= o.lr.base() * state[2];
      });
    }
  }
}

// torch 1.13 in f64 from the same numbers.
TEST_F(OptimizerTest, WeightsOfPyTorch) {
  const auto expect = [&](const std::function<std::unique_ptr<Optimizer>(std::vector<Parameter>)>& make,
                          const Numbers& expected) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Parameter p = parameter("w", {1, -2, 0.5}, dtype);
      const auto optimizer = make({p});
      for (const Numbers& g : {Numbers{0.5, -1, 2}, {0.25, -1, -2}, {-0.5, 3, 0.125}, {0, 0.5, 1}}) {
        give_gradient(p, g);
        optimizer->step();
      }
      EXPECT_LT(distance(weights(p), expected), dtype == DType::f64 ? 1e-11 : 1e-6) << optimizer->rule().name;
      EXPECT_EQ(weights(p, 1), weights(p, 0));
    }
  };
  expect(maker<Sgd>(SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .dampening = 0.5}),
         {0.78216752, -1.711559415, -0.002474749375});
  expect(maker<Adam>(AdamOptions{.lr = 0.1, .weight_decay = 0.1, .amsgrad = true}),
         {0.745895509222, -1.833042598898, 0.380556169236});
  expect(maker<AdamW>(AdamWOptions{.lr = 0.1, .weight_decay = 0.1, .amsgrad = true}),
         {0.75216552765, -1.77954987929, 0.37123946669});
  expect(maker<Adagrad>(AdagradOptions{.lr = 0.1, .lr_decay = 0.2, .weight_decay = 0.1}),
         {0.888770200212, -1.908435130149, 0.431716211813});
  expect(maker<Adadelta>(AdadeltaOptions{.lr = 0.5, .rho = 0.8, .weight_decay = 0.1}),
         {0.998708874686, -1.999660264762, 0.499118726038});
}

// A schedule is a function of the steps, and groups keep their ratios.
TEST_F(OptimizerTest, ARateMayBeASchedule) {
  const Parameter a = parameter("a", {1}), b = parameter("b", {1});
  Sgd sgd({{.parameters = {a}}, {.parameters = {b}, .lr = 0.02}}, {.lr = step_lr(0.1, 2, 0.5)});
  ASSERT_NE(sgd.schedule(), nullptr);
  for (const double lr : {0.1, 0.1, 0.05, 0.05, 0.025}) {
    give_gradient(a, {1});
    sgd.step();
    EXPECT_DOUBLE_EQ(sgd.learning_rate(), lr);
    EXPECT_DOUBLE_EQ(sgd.learning_rate(1), lr / 5);
  }
  EXPECT_NEAR(weights(a)[0], 1 - 0.325, 1e-6);
  Sgd other({{.parameters = {a}}, {.parameters = {b}, .lr = 0.02}}, {.lr = step_lr(0.1, 2, 0.5)});
  other.load_state_dict(sgd.state_dict());
  give_gradient(a, {1});
  other.step();
  EXPECT_DOUBLE_EQ(other.learning_rate(), 0.025);
  EXPECT_ERROR(other.set_scheduled_learning_rate(1), "its learning rate is a schedule of its own");
  other.set_learning_rate(0.5);
  EXPECT_EQ(other.schedule(), nullptr);
  EXPECT_ERROR(Sgd({a}, {.lr = cosine_lr(0.1, {})}), "0 steps in all");
}

// As in PyTorch: the first gradient may come late, and there may be none for a while.
TEST_F(OptimizerTest, AdamCorrectsEachParameterByItsOwnSteps) {
  const AdamWOptions options{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.1};
  const Numbers expected = expected_weights(adam(options));
  const Parameter first = parameter("first", start()), late = parameter("late", start()),
                  paused = parameter("paused", start());
  AdamW optimizer({first, late, paused}, options);
  constexpr int kPause = 3;
  for (int step = 1; step <= kSteps + kPause; ++step) {
    if (step <= kSteps) give_gradient(first, gradient(step));
    if (step > kPause) give_gradient(late, gradient(step - kPause));
    if (step <= 2) give_gradient(paused, gradient(step));
    if (step > 2 + kPause) give_gradient(paused, gradient(step - kPause));
    optimizer.step();
  }
  for (const Parameter& p : {first, late, paused}) {
    for (std::size_t device : {0U, 1U}) EXPECT_LT(distance(weights(p, device), expected), 1e-6) << p.name();
  }
  EXPECT_EQ(optimizer.steps(), kSteps + kPause);
}

TEST_F(OptimizerTest, ParametersWithoutGradientStayAsTheyAre) {
  Parameter used = parameter("used", {1, 2}), unused = parameter("unused", {3, 4});
  AdamW optimizer({used, unused}, {.weight_decay = 0.5});
  give_gradient(used, {1, 1});
  optimizer.step();
  EXPECT_EQ(weights(unused), (Numbers{3, 4}));
  EXPECT_NE(weights(used), (Numbers{1, 2}));
  EXPECT_EQ(optimizer.state_dict().size(), 3U + 2U);  // and the optimizer's steps and rates
}

TEST_F(OptimizerTest, AStepUsesGradientsUp) {
  Parameter p = parameter("w", {1});
  Sgd optimizer({p}, {.lr = 1});
  give_gradient(p, {0.25});
  give_gradient(p, {0.25}, 0);
  optimizer.step();
  EXPECT_EQ(weights(p), Numbers{0.5});
  optimizer.step();
  EXPECT_EQ(weights(p), Numbers{0.5});
  give_gradient(p, {0.25});
  optimizer.zero_grad();
  optimizer.step();
  EXPECT_EQ(weights(p), Numbers{0.5});
}

// PyTorch's, too: the optimizer cannot know whether a gradient should be there.
// The first step clears the gradients of a loss of both.
TEST_F(OptimizerTest, TwoStepsOfOneGradientAreAnError) {
  const Parameter shared = parameter("shared", {1}), a = parameter("a", {1}), b = parameter("b", {1});
  Sgd first({shared, a}, {.lr = 1}), second({shared, b}, {.lr = 1}), same({shared}, {.lr = 1});
  const auto at = [&](const Parameter& p) { return values(p.data(runtime_.devices()[0])); };
  sum(shared * a * b).backward();
  first.step();
  const char* const text = "step: another optimizer's step has used and cleared the gradient of parameter shared";
  EXPECT_ERROR(second.step(), text);
  EXPECT_ERROR(same.step(), text);
  EXPECT_EQ(at(b), (Numbers{1}));
  first.step();  // its own
  second.zero_grad();
  second.step();
  // Each has a loss of its own, the second one without the shared parameter.
  sum(shared * a).backward();
  first.step();
  sum(b * b).backward();
  second.step();
  EXPECT_EQ(at(b), (Numbers{-1}));
  sum(shared * b).backward();
  second.step();
  // Gradients that the program sets are of no pass.
  const auto one = [&] { return make_tensor({1}, {1}, runtime_.devices()[0]); };
  shared.set_gradient(one());
  a.set_gradient(one());
  first.step();
  b.set_gradient(one());
  second.step();
}

TEST_F(OptimizerTest, AStepWithoutGradientsCountsButChangesNothing) {
  Parameter mine = parameter("mine", {1}), other = parameter("other", {1});
  AdamW optimizer({mine}, {.lr = 1, .weight_decay = 0.5});
  give_gradient(other, {1});
  optimizer.step();
  EXPECT_EQ(weights(mine), Numbers{1});
  EXPECT_EQ(weights(other), Numbers{1});
  EXPECT_EQ(optimizer.steps(), 1);
  EXPECT_ERROR(
      optimizer.clip_grad_value(1),
      "map_gradients: none of the optimizer's parameters has a gradient (the first is \"mine\"): expected a call "
      "of backward() before it, on a loss of their model");
}

// Memory for the moments of the second parameter on the second device is missing.
TEST(OptimizerMemory, AStepThatFailsChangesNothing) {
  const auto train = [](bool fails) {
    Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1, .memory_limit = 2 << 20});
    const Device second = runtime.devices()[1];
    std::vector<Parameter> all;
    for (const char* name : {"a", "b"}) {
      all.emplace_back(ParameterOptions{.shape = {1 << 15}});
      all.back().initialize(name, runtime.devices(), Normal{1}, 0);
    }
    Adam adam(all, {.lr = 0.1});
    const auto give_gradients = [&] {
      backward(std::array{sum(square(all[0])) + sum(square(all[1]))}, std::array{Tensor()});
    };
    give_gradients();
    if (fails) {
      std::vector<Tensor> rest;
      while (true) {
        try {
          rest.push_back(zeros({1 << 14}, {.device = second}));
        } catch (const Error&) {
          break;
        }
      }
      rest.resize(rest.size() - 5);
      EXPECT_ERROR(adam.step(), fmt::format("{}: out of memory", second.name()));
      EXPECT_EQ(adam.steps(), 0);
      EXPECT_EQ(runtime.random().step(), 0U);
      EXPECT_EQ(all[0].data(second).to_vector<float>(), all[0].host_data().to_vector<float>());
    }
    adam.step();
    give_gradients();
    adam.step();
    EXPECT_EQ(adam.steps(), 2);
    std::vector<Numbers> found;
    for (const Parameter& p : all) {
      for (const Device device : runtime.devices()) found.push_back(values(p.data(device)));
    }
    EXPECT_EQ(found[0], found[1]);
    EXPECT_EQ(found[2], found[3]);
    return found;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST_F(OptimizerTest, MappedGradientsKnowTheirParameter) {
  Parameter a = parameter("a", {0, 0}), b = parameter("b", {0}), unused = parameter("unused", {5});
  Sgd sgd({a, b, unused}, {.lr = 1});
  const auto run_backward = [&] { give_gradient(a, {-2, 4}), give_gradient(b, {-8}, 0); };
  run_backward();
  sgd.map_gradients([](const Tensor& g, const Parameter& p) { return p.name() == "a" ? g * 0.5 : g; });
  sgd.clip_grad_value(3);
  // Two gradients that a later pass adds to.
  give_gradient(a, {0, -1});
  sgd.step();
  EXPECT_EQ(weights(a), (Numbers{1, -1}));
  EXPECT_EQ(weights(b, 1), Numbers{3});
  EXPECT_EQ(weights(unused), Numbers{5});
  // All or none.
  run_backward();
  EXPECT_ERROR(sgd.map_gradients([](const Tensor& g, const Parameter& p) {
    return p.name() == "a" ? g * 0 : g.reshape({1, 1});
  }),
               "map_gradients: parameter b: the gradient is");
  sgd.step();
  EXPECT_EQ(weights(a), (Numbers{3, -5}));
  EXPECT_ERROR(sgd.clip_grad_value(0), "clip_grad_value: a limit of 0, expected a finite number above 0");
}

// The optimizer has states for the former devices.
TEST_F(OptimizerTest, InitializingOnOtherDevicesIsAnError) {
  Linear net({.in_features = 2, .out_features = 1});
  const Device first = runtime_.devices()[0];
  net.initialize(Constant{1}, {first});
  Sgd sgd(net.parameters(), {.lr = 0.5, .momentum = 0.9});
  const auto learn = [&] {
    sum(net(ones({1, 2}, {.device = first}))).backward();
    sgd.step();
  };
  learn();
  EXPECT_ERROR(net.initialize(Constant{2}, runtime_.devices(), {.force_reinit = true}),
               "initialize: an optimizer has parameter weight, and keeps its state on " + str({first}) +
                   ": move the module first");
  EXPECT_EQ(weights(net.weight), (Numbers{0.5, 0.5}));
  // On the same devices, it gives new values.
  net.initialize(Constant{2}, {first}, {.force_reinit = true});
  EXPECT_EQ(weights(net.weight), (Numbers{2, 2}));
  learn();
}

TEST_F(OptimizerTest, LearningRatesMayChange) {
  Parameter p = parameter("w", {1});
  Sgd optimizer({p}, {.lr = 1});
  optimizer.set_learning_rate(0.5);
  EXPECT_EQ(optimizer.learning_rate(), 0.5);
  give_gradient(p, {1});
  optimizer.step();
  EXPECT_EQ(weights(p), Numbers{0.5});
  EXPECT_ERROR(optimizer.set_learning_rate(-1), "learning rate -1, expected at least 0");
  EXPECT_ERROR(optimizer.set_learning_rate(NAN), "learning rate nan");
  optimizer.set_scheduled_learning_rate(0.25);
  EXPECT_EQ(optimizer.learning_rate(), 0.25);
  EXPECT_EQ(optimizer.base_learning_rate(), 0.5);
  EXPECT_ERROR(optimizer.set_scheduled_learning_rate(-1), "learning rate -1, expected at least 0");
}

TEST_F(OptimizerTest, ClippingScalesAllGradientsByOneNorm) {
  Parameter a = parameter("a", {0, 0}), b = parameter("b", {0});
  Sgd optimizer({a, b}, {.lr = 1});
  auto step = [&](double max_norm) {
    give_gradient(a, {-2, -4}, 0);
    give_gradient(b, {-4}, 1);
    double norm = max_norm > 0 ? optimizer.clip_grad_norm(max_norm).item<double>() : 6;
    optimizer.step();
    return norm;
  };
  EXPECT_DOUBLE_EQ(step(3), 6);
  EXPECT_LT(distance(weights(a), {1, 2}), 1e-6);
  EXPECT_LT(distance(weights(b, 1), {2}), 1e-6);
  // Below the bound nothing changes, and clipping is for one step alone.
  EXPECT_DOUBLE_EQ(step(100), 6);
  EXPECT_LT(distance(weights(a), {3, 6}), 1e-6);
  step(0);
  EXPECT_LT(distance(weights(a), {5, 10}), 1e-6);
  // A second norm is that of clipped gradients.
  give_gradient(a, {-2, -4}, 0);
  give_gradient(b, {-4}, 1);
  optimizer.clip_grad_norm(3);
  EXPECT_NEAR(optimizer.clip_grad_norm(1.5).item<double>(), 3, 1e-5);
  optimizer.step();
  EXPECT_LT(distance(weights(a), {5.5, 11}), 1e-5);
  EXPECT_ERROR(
      optimizer.clip_grad_norm(1),
      "clip_grad_norm: none of the optimizer's parameters has a gradient (the first is \"a\"): expected a call "
      "of backward() before it, on a loss of their model");
}

// Two steps, saved, loaded into another optimizer: the third step has the same bits.
TEST_F(OptimizerTest, StateRoundTrip) {
  auto expect = [&](auto make) {
    Parameter a = parameter("layer.weight", start());
    auto first = make({a});
    for (int step = 1; step <= 2; ++step) {
      give_gradient(a, gradient(step));
      first->step();
    }
    Parameter b = parameter("layer.weight", weights(a));
    auto second = make({b});
    second->load_state_dict(first->state_dict());
    EXPECT_EQ(second->steps(), 2);
    for (auto& [p, optimizer] : {std::pair(a, first.get()), std::pair(b, second.get())}) {
      give_gradient(p, gradient(3));
      optimizer->step();
    }
    for (std::size_t device : {0U, 1U}) EXPECT_EQ(weights(a, device), weights(b, device));
  };
  expect(maker<Sgd>(SgdOptions{.momentum = 0.9}));
  expect(maker<Adam>(AdamOptions{}));
}

// Its state has no steps of the parameters, which had those of the optimizer, and nothing of the optimizer itself.
TEST_F(OptimizerTest, StateOfAnOlderVersion) {
  Parameter a = parameter("w", start()), b = parameter("w", start());
  Adam first({a}, AdamOptions{}), second({b}, AdamOptions{});
  for (int step = 1; step <= 2; ++step) {
    give_gradient(a, gradient(step));
    first.step();
  }
  auto state = first.state_dict();
  ASSERT_EQ(state.size(), 5U);
  ASSERT_EQ(state[2].first, "step.w");
  EXPECT_EQ(state[2].second.item<std::int64_t>(), 2);
  EXPECT_EQ(state[3].first, "steps");
  EXPECT_EQ(state[4].first, "learning_rates");
  state.resize(2);
  EXPECT_ERROR(second.load_state_dict(state), "the state has no steps, expected it or a number of steps beside it");
  b.set_data(a.host_data());
  second.load_state_dict(state, first.steps());
  for (auto& [p, optimizer] : {std::pair(a, &first), std::pair(b, &second)}) {
    give_gradient(p, gradient(3));
    optimizer->step();
  }
  EXPECT_EQ(weights(a), weights(b));
}

TEST_F(OptimizerTest, TwoParametersOfOneNameHaveNoStateDict) {
  Parameter a = parameter("fc.weight", {1}), b = parameter("fc.weight", {2});
  Adam adam({a, b}, AdamOptions{});
  give_gradient(a, {1});
  adam.step();
  EXPECT_ERROR(adam.state_dict(), "optimizer: two of its parameters are named fc.weight");
  EXPECT_ERROR(adam.load_state_dict({}, 0), "optimizer: two of its parameters are named fc.weight");
  EXPECT_EQ(adam.steps(), 1);
  EXPECT_EQ(Sgd({a, b}, {}).state_dict().size(), 2U);  // steps and rates
}

TEST_F(OptimizerTest, StateThatDoesNotFitIsNamedAndNothingChanges) {
  Parameter a = parameter("a", {1, 2}), b = parameter("b", {3});
  Adam optimizer({a, b}, AdamOptions{});
  give_gradient(a, {1, 1});
  give_gradient(b, {1});
  optimizer.step();
  auto state = optimizer.state_dict();
  auto load = [&](auto change) {
    auto changed = state;
    changed[0].second = Tensor::host({2});
    change(changed);
    optimizer.load_state_dict(changed, 5);
  };
  EXPECT_EQ(state[0].first, "exp_avg.a");
  ASSERT_EQ(state[5].first, "step.b");
  EXPECT_ERROR(load([](auto& s) { s.erase(s.begin() + 5); }), "the state of b is incomplete");
  EXPECT_ERROR(load([](auto& s) { s.erase(s.begin() + 1); }), "the state of b is incomplete");
  EXPECT_ERROR(load([](auto& s) { s[5].second = Tensor::from(std::vector<std::int64_t>{-1}, {1}); }),
               "step.b is -1, expected 0 to 2^53");
  EXPECT_ERROR(load([](auto& s) { s.back().second = Tensor::host({4}); }),
               "learning_rates is [4] f32 on host, expected [4] f64 for 1 group");
  EXPECT_ERROR(load([](auto& s) {
                 s.back().second = Tensor::from(std::vector<double>{1, 1, -1, 1}, {4});
               }),
               "learning_rates has -1 at element 2, expected at least 0");
  EXPECT_ERROR(load([](auto& s) { s.emplace_back("exp_avg.c", Tensor::host({1})); }),
               "exp_avg.c, which belongs to none of the optimizer's parameters");
  EXPECT_ERROR(load([](auto& s) { s[3].second = Tensor::host({7}); }), "exp_avg_sq.b is [7] f32 on host, expected [1]");
  EXPECT_ERROR(optimizer.check_state_dict({}, -1), "-1 steps, expected at least 0");
  optimizer.check_state_dict({}, 7);
  EXPECT_EQ(optimizer.steps(), 1);
  EXPECT_EQ(optimizer.state_dict()[0].second.to_vector<float>(), state[0].second.to_vector<float>());
  load([](auto&) {});
  EXPECT_EQ(optimizer.state_dict()[0].second.to_vector<float>(), (std::vector<float>{0, 0}));
  EXPECT_EQ(optimizer.steps(), 5);
}

// A step begins a new set of random numbers; a resumed run draws those of the uninterrupted one.
TEST_F(OptimizerTest, StepsAreInTheKeyOfRandomNumbers) {
  Parameter p = parameter("w", {1});
  Sgd optimizer({p}, {});
  optimizer.step();
  RandomKey first = runtime_.random().next(0);
  optimizer.step();
  EXPECT_NE(runtime_.random().next(0), first);
  optimizer.load_state_dict({}, 1);
  EXPECT_EQ(runtime_.random().next(0), first);
}

TEST_F(OptimizerTest, WrongOptionsAreErrors) {
  Parameter p = parameter("w", {1});
  EXPECT_ERROR(Sgd({}, {}), "no parameters");
  EXPECT_ERROR(Sgd({p, p}, {}), "parameter w is listed twice");
  EXPECT_ERROR(Sgd({p}, {.lr = -1}), "learning rate -1");
  EXPECT_ERROR(Sgd({p}, {.momentum = -1}), "momentum -1");
  EXPECT_ERROR(Sgd({p}, {.nesterov = true}), "nesterov with momentum 0 and dampening 0, expected a momentum above 0");
  EXPECT_ERROR(Adam({p}, AdamOptions{.beta1 = 1}), "betas 1 and 0.999");
  EXPECT_ERROR(Adam({p}, AdamOptions{.weight_decay = -1}), "weight decay -1");
}

// Every way to write a parameter between forward and backward.
TEST_F(OptimizerTest, AGraphFromBeforeAnUpdateIsAnError) {
  Parameter p = parameter("p", start());
  const Device device = runtime_.devices()[0];
  Sgd sgd({p}, {.lr = 0.1});
  Adam adam({p}, {.lr = 0.1});
  const std::vector<std::function<void()>> writes{[&] { p.set_data(Random(2).floats(p.shape())); }, [&] { sgd.step(); },
                                                  [&] { adam.step(); },
                                                  [&] { p.data(device).copy_from(Random(3).floats(p.shape())); }};
  for (const auto& write : writes) {
    sum(p * 2).backward();
    const Tensor loss = sum(p * p);
    write();
    EXPECT_ERROR(loss.backward(), "multiply: a tensor needed for its gradient was changed in place after forward");
    p.zero_grad();
    sum(p * p).backward();
    p.zero_grad();
  }
}

}  // namespace
}  // namespace lockstep::testing
