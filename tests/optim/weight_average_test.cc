
#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>

#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/optim/weight_average.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

// A copy would share the averages.
static_assert(!std::is_copy_constructible_v<WeightAverage> && !std::is_copy_assignable_v<WeightAverage>);
static_assert(std::is_move_constructible_v<WeightAverage> && std::is_move_assignable_v<WeightAverage>);

struct Net {
  explicit Net(int devices = 1) : runtime({.cpu_devices = devices}) { net.initialize(Normal{1}, runtime.devices()); }
  void set(const std::vector<float>& values) {
    net.named_parameters()[0].second.set_data(Tensor::from(values, {1, 3}));
  }
  std::vector<float> values(std::size_t device = 0) const {
    return net.named_parameters()[0].second.data(runtime.devices()[device]).to_vector<float>();
  }
  Runtime runtime;
  Linear net{{.in_features = 3, .out_features = 1, .bias = false}};
};

TEST(WeightAverage, FollowsTheWeightsOnEveryDevice) {
  Net n(2);
  WeightAverage average(n.net, 0.75);
  n.set({1, -0.0F, 4});
  EXPECT_TRUE(average.state_dict().empty());
  average.swap();  // there is nothing yet
  average.update();
  EXPECT_EQ(n.values(), (std::vector<float>{1, 0, 4}));
  n.set({5, -0.0F, -4});
  average.update();
  EXPECT_EQ(average.state_dict().at(0).second.to_vector<float>(), (std::vector<float>{2, 0, 2}));
  {
    AveragedWeights averaged(average);
    EXPECT_EQ(n.values(0), (std::vector<float>{2, 0, 2}));
    EXPECT_EQ(n.values(1), (std::vector<float>{2, 0, 2}));
  }
  EXPECT_EQ(n.values(0), (std::vector<float>{5, 0, -4}));
  EXPECT_TRUE(std::signbit(n.values(1)[1]));  // the very bits
  average.update();
  EXPECT_EQ(average.state_dict().at(0).second.to_vector<float>(), (std::vector<float>{2.75, 0, 0.5}));
}

// The destructor has to succeed when memory is short, above all during the error about it.
TEST(WeightAverage, TheWeightsComeBackWithoutNewMemory) {
  Runtime runtime({.cpu_devices = 1, .memory_limit = 1 << 20});
  const Device device = runtime.devices()[0];
  Sequential net;
  for (int i = 0; i < 2; ++i) net.append(Linear({.in_features = 128, .out_features = 128, .bias = false}));
  net.initialize(Constant{1}, {device});
  WeightAverage average(net, 0.5);
  average.update();
  const auto set = [&](float value) {
    for (Parameter p : net.parameters()) p.set_data(full({128, 128}, value));
  };
  const auto expect_weights = [&](double value) {
    for (const Parameter& p : net.parameters()) EXPECT_EQ(p.host_data().to_vector<float>()[7], value);
  };
  set(3);
  std::vector<Tensor> rest;
  const auto fill_memory = [&](std::int64_t bytes) {
    while (true) {
      try {
        rest.push_back(zeros({bytes / 4}, {.device = device}));
      } catch (const Error&) {
        return;
      }
    }
  };
  {
    const AveragedWeights averaged(average);
    fill_memory(64 << 10);
    expect_weights(1);
  }
  expect_weights(3);
  // One layer's copy fits, the other's does not.
  fill_memory(64 << 10);
  rest.pop_back();
  EXPECT_ERROR(AveragedWeights{average}, "out of memory");
  expect_weights(3);
  EXPECT_ERROR(average.swap(), "out of memory");
  expect_weights(3);
}

TEST(WeightAverage, SaysThatTheModuleHasMoved) {
  Net n(2);
  WeightAverage average(n.net, 0.5);
  average.update();
  n.net.to({n.runtime.devices()[1]});
  EXPECT_ERROR(average.update(),
               "weight average: weight has moved to [cpu:1], expected the devices of the first update");
  EXPECT_ERROR(AveragedWeights{average}, "weight average: weight has moved");
}

TEST(WeightAverage, SwapsAParameterThatModulesShareOnce) {
  Runtime runtime({.cpu_devices = 1});
  const auto shared = std::make_shared<Linear>(LinearOptions{.in_features = 2, .out_features = 2, .bias = false});
  Sequential net;
  net.append(shared).append(shared);
  net.initialize(Constant{1}, runtime.devices());
  WeightAverage average(net, 0.5);
  average.update();
  shared->weight.set_data(Tensor::from<float>({3, 3, 3, 3}, {2, 2}));
  average.update();
  const auto values = [&] { return shared->weight.host_data().to_vector<float>(); };
  {
    AveragedWeights averaged(average);
    EXPECT_EQ(values(), std::vector<float>(4, 2));
  }
  EXPECT_EQ(values(), std::vector<float>(4, 3));
  const StateDict state = average.state_dict();
  ASSERT_EQ(state.size(), 1U);
  EXPECT_EQ(state[0].first, "0.weight");
  average.load_state_dict(state);
}

TEST(WeightAverage, GoesOnFromItsState) {
  Net n;
  WeightAverage average(n.net, 0.5);
  n.set({1, 2, 3});
  average.update();
  const StateDict state = average.state_dict();
  n.set({3, 2, 1});
  Net m(2);
  m.set({3, 2, 1});
  WeightAverage other(m.net, 0.5);
  other.load_state_dict(state);
  average.update();
  other.update();
  EXPECT_EQ(other.state_dict().at(0).second.to_vector<float>(), (std::vector<float>{2, 2, 2}));
  EXPECT_EQ(average.state_dict().at(0).second.to_vector<float>(), (std::vector<float>{2, 2, 2}));
  other.load_state_dict({});
  EXPECT_TRUE(other.state_dict().empty());
  EXPECT_ERROR(other.check_state_dict({{"other", Tensor::host({1, 3})}}), "weight average: weight is missing");
  other.check_state_dict(state);
  EXPECT_TRUE(other.state_dict().empty());
  EXPECT_ERROR(other.load_state_dict({{"other", Tensor::host({1, 3})}}), "weight average: weight is missing");
  EXPECT_ERROR(other.load_state_dict({{"weight", Tensor::host({3})}}), "weight average: weight is [3] f32");
  EXPECT_ERROR(other.load_state_dict({state[0], state[0]}), "weight average: 2 tensors, expected 1");
  EXPECT_ERROR(WeightAverage(n.net, 1), "decay 1, expected at least 0 and below 1");
}

// A loaded state would be lost, and the next update would begin anew.
TEST(WeightAverage, GoesOnInAModelThatHasNotRun) {
  Net n;
  WeightAverage average(n.net, 0.5);
  n.set({1, 2, 3});
  average.update();
  const StateDict state = average.state_dict();
  Linear fresh({.in_features = 3, .out_features = 1, .bias = false});
  WeightAverage other(fresh, 0.5);
  other.load_state_dict(state);
  ASSERT_EQ(other.state_dict().size(), 1U);
  EXPECT_EQ(other.state_dict().at(0).second.to_vector<float>(), (std::vector<float>{1, 2, 3}));
  // Without its first batch, a layer has no shape yet.
  Sequential lazy;
  lazy.append<Linear>(LinearOptions{.in_features = 3, .out_features = 1, .bias = false});
  lazy.append<Linear>(LinearOptions{.out_features = 1, .bias = false});
  WeightAverage half(lazy, 0.5);
  EXPECT_ERROR(half.load_state_dict({{"0.weight", Tensor::host({1, 3})}, {"1.weight", Tensor::host({1, 1})}}),
               "weight average: the shape of 1.weight is not known yet; run the model once");
  EXPECT_TRUE(half.state_dict().empty());
}

}  // namespace
}  // namespace lockstep
