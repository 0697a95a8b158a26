// Gradients of parameters that a program sets, maps, or hooks. tests/parallel/gradient_layouts_test.cc shows that the
// bits are the same on every layout.
#include <memory>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/no_grad.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

class GradientTest : public ::testing::Test {
 protected:
  GradientTest() { p_.initialize("w", runtime_.devices(), Constant{1}, 0); }
  // Adds {1, -2, 3} times `factor`, from both shards.
  void run_backward(double factor = 1, bool sync = true) {
    const Tensor x = make_batch(Tensor::from<float>({0.5, -1, 1.5, 0.5, -1, 1.5}, {2, 3}), {1, 1}, runtime_.devices());
    (sum(x * p_) * factor).backward({.sync = sync});
  }
  Numbers gradient(std::size_t device = 0) const { return values(p_.gradient(runtime_.devices()[device])); }

  Runtime runtime_{small_devices(2)};
  Parameter p_{ParameterOptions{.shape = {3}}};
};

TEST_F(GradientTest, ASetGradientReplacesTheSum) {
  run_backward();
  const Tensor value = Tensor::from<float>({7, 8, 9}, {3});
  p_.set_gradient(value);
  for (const std::size_t device : {0, 1}) EXPECT_EQ(gradient(device), (Numbers{7, 8, 9}));
  // It is a copy.
  p_.set_gradient(value.to(runtime_.devices()[1]));
  p_.tensor().zero_grad();
  EXPECT_FALSE(p_.gradient().defined());
  // One that was missing.
  p_.set_gradient(value);
  EXPECT_EQ(gradient(1), (Numbers{7, 8, 9}));
  EXPECT_TRUE(p_.tensor().grad().defined());
}

// p.grad = value; loss.backward()
TEST_F(GradientTest, ALaterPassAddsToASetGradient) {
  p_.set_gradient(ones({3}));
  run_backward();
  EXPECT_EQ(gradient(), (Numbers{2, -1, 4}));
  p_.map_gradient([](const Tensor& g) { return g * 10; });
  run_backward();
  EXPECT_EQ(gradient(1), (Numbers{21, -12, 43}));
}

TEST_F(GradientTest, AMissingGradientHasNothingToMap) {
  p_.map_gradient([](const Tensor& g) -> Tensor { return ADD_FAILURE(), g; });
  EXPECT_FALSE(p_.gradient().defined());
  const Parameter unused{ParameterOptions{.shape = {2}}};
  unused.map_gradient([](const Tensor& g) { return g; });
}

TEST_F(GradientTest, HooksMapTheSumOfAllPassesOnce) {
  int calls = 0;
  HookHandle square_hook = p_.register_hook([&](const Tensor& g) { return ++calls, g * g; });
  const HookHandle add_one = p_.register_hook([](const Tensor& g) { return g + 1; });
  EXPECT_FALSE(p_.gradient().defined());
  EXPECT_EQ(calls, 0);
  run_backward();
  run_backward();
  for (const std::size_t device : {0, 1, 0}) EXPECT_EQ(gradient(device), (Numbers{5, 17, 37}));
  EXPECT_EQ(calls, 1);
  // A further pass changes the sum, not what the hooks made of it.
  run_backward();
  EXPECT_EQ(gradient(), (Numbers{10, 37, 82}));
  // Values that are set do not pass through hooks, as in PyTorch.
  p_.set_gradient(zeros({3}));
  EXPECT_EQ(gradient(), (Numbers{0, 0, 0}));
  run_backward();
  EXPECT_EQ(gradient(), (Numbers{2, 5, 10}));
  square_hook.remove();
  square_hook.remove();
  EXPECT_EQ(gradient(), (Numbers{2, -1, 4}));
  HookHandle().remove();
}

TEST_F(GradientTest, AHookThatThrowsChangesNothing) {
  HookHandle hook = p_.register_hook([](const Tensor&) -> Tensor { fail("not today"); });
  run_backward();
  EXPECT_ERROR(p_.gradient(), "not today");
  hook.remove();
  EXPECT_EQ(gradient(), (Numbers{1, -2, 3}));
}

TEST_F(GradientTest, ReadingBetweenPassesWithoutSyncChangesNothing) {
  const auto train = [&](bool reads) {
    p_.zero_grad();
    Numbers read;
    for (const double factor : {1e8, 1.0, -1e8}) {
      run_backward(factor, false);
      if (reads) read = gradient();
    }
    run_backward(1);
    return gradient();
  };
  EXPECT_EQ(train(true), train(false));
}

TEST_F(GradientTest, WhatCannotBeMeantIsAnError) {
  run_backward();
  EXPECT_ERROR(p_.set_gradient(Tensor()), "set_gradient: parameter w: the gradient is undefined, expected [3] f32");
  EXPECT_ERROR(p_.set_gradient(ones({2})),
               "set_gradient: parameter w: the gradient is [2] f32 on host, expected [3] f32");
  EXPECT_ERROR(p_.set_gradient(ones({3}, {.dtype = DType::f64})), "[3] f64 on host, expected [3] f32");
  EXPECT_ERROR(p_.map_gradient([](const Tensor& g) { return sum(g); }),
               "map_gradient: parameter w: the gradient is [1]");
  EXPECT_ERROR(p_.register_hook(nullptr), "register_hook: parameter w: no function");
  EXPECT_EQ(gradient(), (Numbers{1, -2, 3}));
  run_backward(1, false);
  EXPECT_ERROR(p_.set_gradient(ones({3})), "gradient: it is not summed yet");
  EXPECT_ERROR(p_.map_gradient([](const Tensor& g) { return g; }), "gradient: it is not summed yet");
  p_.set_trainable(false);
  EXPECT_ERROR(p_.set_gradient(ones({3})), "set_gradient: parameter w is frozen");
  EXPECT_ERROR(p_.register_hook([](const Tensor& g) { return g; }), "register_hook: parameter w is frozen");
  const Parameter unknown{ParameterOptions{.shape = {0}}};
  EXPECT_ERROR(unknown.set_gradient(ones({3})), "a parameter is not initialized");
}

// for (Tensor p : net.parameters()) p -= 0.1 * p.grad();
TEST_F(GradientTest, AHandleUpdatesTheParameterByHand) {
  run_backward();
  {
    const NoGradGuard no_grad;
    for (Tensor p : {p_, p_}) p -= 0.5 * p.grad();
  }
  for (const Device device : runtime_.devices()) EXPECT_EQ(values(p_.data(device)), (Numbers{0, 3, -2}));
  p_.set_trainable(false);
  Tensor frozen = p_;
  frozen += 1;
  EXPECT_EQ(values(p_.data(runtime_.devices()[1])), (Numbers{1, 4, -1}));
}

// loss.backward(); net.to(...); optimizer.step(): the step has to find the gradient.
TEST_F(GradientTest, AMoveTakesTheGradientAlong) {
  const auto second = runtime_.devices()[1];
  run_backward();
  p_.to(DType::f32);
  p_.to(runtime_.devices());
  run_backward();
  EXPECT_EQ(gradient(1), (Numbers{2, -4, 6})) << "nothing moved";
  const HookHandle hook = p_.register_hook([](const Tensor& g) { return g * 10; });
  p_.to(DType::f64);
  EXPECT_EQ(p_.gradient().dtype(), DType::f64);
  for (const std::size_t device : {0, 1}) EXPECT_EQ(gradient(device), (Numbers{20, -40, 60}));
  p_.to(std::vector{second});
  EXPECT_EQ(values(p_.gradient(second)), (Numbers{20, -40, 60})) << "the hook has seen it";
  sum(p_.tensor()).backward();
  EXPECT_EQ(values(p_.gradient(second)), (Numbers{30, -30, 70}));
  p_.zero_grad();
  p_.to(runtime_.devices());
  EXPECT_FALSE(p_.gradient().defined());
  p_.to(DType::f32);
  run_backward(1, false);
  EXPECT_ERROR(p_.to(DType::f64), "to: parameter w has a gradient of backward({.sync = false})");
  EXPECT_EQ(p_.dtype(), DType::f32);
}

// A gradient may lie in memory that has another use.
TEST_F(GradientTest, AReadGradientIsACopy) {
  backward(std::array{Tensor(p_)}, std::array{p_.tensor().detach()});
  const Tensor g = p_.gradient();
  p_.set_data(Tensor::from<float>({2, 2, 2}, {3}));
  EXPECT_EQ(values(g), (Numbers{1, 1, 1}));
}

}  // namespace
}  // namespace lockstep::testing
