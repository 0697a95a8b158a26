#include "lockstep/optim/left_out.h"

#include <gtest/gtest.h>

#include <memory>

#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/runtime.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

TEST(LeftOut, WhatNoOptimizerHasIsFrozenMeanwhile) {
  Runtime runtime;
  Sequential net;
  for (int i = 0; i < 3; ++i) net.append<Linear>(LinearOptions{.in_features = 2, .out_features = 2, .bias = false});
  net.initialize(Xavier{}, runtime.devices());
  const std::vector<Parameter> parameters = net.parameters();
  const auto trainable = [&] {
    std::vector<bool> all;
    for (const Parameter& p : parameters) all.push_back(p.trainable());
    return all;
  };
  parameters[0].set_trainable(false);
  auto one = std::make_unique<Sgd>(std::vector{parameters[2]}, SgdOptions{});
  {
    const LeftOutGuard guard(net);
    EXPECT_EQ(trainable(), (std::vector{false, false, true}));
  }
  EXPECT_EQ(trainable(), (std::vector{false, true, true}));
  Sgd other({parameters[1]}, {});
  {
    const LeftOutGuard guard(net);
    EXPECT_EQ(trainable(), (std::vector{false, true, true}));
  }
  // An optimizer that is gone has nothing.
  one = nullptr;
  const LeftOutGuard guard(net);
  EXPECT_EQ(trainable(), (std::vector{false, true, false}));
}

// A frozen parameter stays as it is, even if an optimizer has it and it had a gradient.
TEST(LeftOut, AFrozenParameterIsNotUpdated) {
  Runtime runtime;
  Linear net({.in_features = 2, .out_features = 1});
  net.initialize(Xavier{}, runtime.devices());
  Sgd sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
  const Tensor x = Tensor(Random(1).floats({3, 2})).to(runtime.devices()[0]);
  const auto weight = [&] { return net.weight.host_data().to_vector<float>(); };
  sum(net(x)).backward();
  sgd.step();
  const auto before = weight();
  sum(net(x)).backward();
  net.weight.set_trainable(false);
  sgd.step();
  EXPECT_EQ(weight(), before);
  sum(net(x)).backward();
  sgd.step();
  EXPECT_EQ(weight(), before);
  net.weight.set_trainable(true);
  sum(net(x)).backward();
  sgd.step();
  EXPECT_NE(weight(), before);
}

}  // namespace
}  // namespace lockstep::testing
