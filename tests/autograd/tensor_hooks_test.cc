// Hooks and retained gradients of results and leaves, and graphs that serve several passes.
#include "lockstep/autograd/tensor_hooks.h"

#include <gtest/gtest.h>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/grad.h"
#include "lockstep/base/random.h"
#include "lockstep/runtime/runtime.h"
#include "tests/autograd/gradient_testing.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

class TensorHooksTest : public ::testing::Test {
 protected:
  Tensor leaf() { return as_leaf(make_tensor({1, 2, 3, 4}, {4, 1}, devices_[0])); }
  Tensor batch() {
    const Tensor x = make_tensor({1, 2, 3, 4}, {4, 1}, devices_[0]);
    return as_leaf(scatter(x, std::make_shared<Placement>(std::vector<std::int64_t>{1, 3},
                                                          std::vector<Slot>{{0, devices_[0]}, {1, devices_[1]}})));
  }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1}};
  const std::vector<Device>& devices_ = runtime_.devices();
};

TEST_F(TensorHooksTest, HooksSeeAndReplaceTheSumOverAllUses) {
  for (Tensor x : {leaf(), batch()}) {
    const Tensor y = x * 3.0;
    Numbers seen;
    register_hook(y, [&](const Tensor& g) {
      seen = values(g);
      return Tensor();
    });
    const auto remove = register_hook(y, [](const Tensor& g) { return g * 2.0; });
    const Tensor loss = sum(y + y);
    backward({&loss, 1}, std::array{Tensor()}, {}, true);
    EXPECT_EQ(seen, (Numbers{2, 2, 2, 2}));
    EXPECT_EQ(values(x.grad()), (Numbers{12, 12, 12, 12}));
    remove();
    remove();
    loss.backward();
    EXPECT_EQ(values(x.grad()), (Numbers{18, 18, 18, 18}));
  }
}

TEST_F(TensorHooksTest, RetainedGradientsAddUpAndAreThoseBehindTheHooks) {
  for (Tensor x : {leaf(), batch()}) {
    Tensor y = square(x);
    retain_grad(y);
    register_hook(y, [](const Tensor& g) { return g * 10.0; });
    const Tensor loss = sum(y);
    backward({&loss, 1}, std::array{Tensor()}, {}, true);
    EXPECT_EQ(values(y.grad()), (Numbers{10, 10, 10, 10}));
    // grad() leaves those of leaves alone, as in PyTorch.
    (void)grad(std::array{loss}, std::array{x}, std::array{Tensor()}, true);
    EXPECT_EQ(values(y.grad()), (Numbers{20, 20, 20, 20}));
    loss.backward();
    EXPECT_EQ(values(y.grad()), (Numbers{30, 30, 30, 30}));
    y.zero_grad();
    EXPECT_FALSE(y.grad().defined());
  }
}

TEST_F(TensorHooksTest, GradTakesInputsTwiceAndThoseThatNothingDependsOn) {
  const Tensor x = leaf(), other = leaf(), y = square(x);
  const std::array inputs{x, y, x, other, y};
  const auto found = grad(std::array{sum(y)}, inputs, std::array{Tensor()});
  EXPECT_EQ(values(found[0]), (Numbers{2, 4, 6, 8}));
  EXPECT_EQ(values(found[2]), values(found[0]));
  EXPECT_EQ(values(found[1]), (Numbers{1, 1, 1, 1}));
  EXPECT_EQ(values(found[4]), values(found[1]));
  EXPECT_FALSE(found[3].defined());
  EXPECT_FALSE(grad(std::array{sum(square(x))}, std::array{other}, std::array{Tensor()})[0].defined());
}

// Edges that a pass leaves out are there for the next one.
TEST_F(TensorHooksTest, AKeptGraphHasAllGradientsAfterAPassForSome) {
  for (const bool of_result : {true, false}) {
    const Tensor x = leaf(), other = leaf(), y = square(x);
    const Tensor loss = sum(y * other + x);
    if (of_result) {
      (void)grad(std::array{loss}, std::array{y}, std::array{Tensor()}, true);
    } else {
      backward({&loss, 1}, std::array{Tensor()}, {.inputs = std::vector{other}}, true);
    }
    loss.backward();
    EXPECT_EQ(values(x.grad()), (Numbers{3, 9, 19, 33}));
  }
}

TEST_F(TensorHooksTest, WrongHooksAreErrors) {
  Tensor x = leaf();
  const Tensor y = x * 1.0;
  register_hook(y, [](const Tensor& g) { return sum(g); });
  EXPECT_ERROR(sum(y).backward(), "register_hook: the hook returned");
  EXPECT_FALSE(x.grad().defined());
  EXPECT_ERROR(register_hook(x.detach(), [](const Tensor& g) { return g; }), "requires no gradient");
  EXPECT_ERROR(retain_grad(x.detach()), "requires no gradient");
}

// A backward function that changes what it saved would give other gradients in the second pass.
TEST_F(TensorHooksTest, EveryFunctionHasTheSameGradientsInASecondPass) {
  Random random(7);
  for (const Differentiable& function : differentiable_functions()) {
    const Problem problem = function.make(random);
    const Values at = random_values(problem, random);
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < at.size(); ++i) {
      inputs.push_back(as_leaf(make_tensor(at[i], problem.inputs[i].shape, devices_[0])));
    }
    const Tensor y = problem.function(inputs), seed = full_like(y, 1);
    const auto first = grad(std::array{y}, inputs, std::array{seed}, true);
    const auto second = grad(std::array{y}, inputs, std::array{seed});
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      ASSERT_EQ(first[i].defined(), second[i].defined()) << function.name;
      if (!first[i].defined()) continue;
      EXPECT_EQ(values(first[i]), values(second[i])) << function.name;
    }
    EXPECT_ERROR((void)grad(std::array{y}, inputs, std::array{seed}), "retain_graph");
  }
}

}  // namespace
}  // namespace lockstep::testing
