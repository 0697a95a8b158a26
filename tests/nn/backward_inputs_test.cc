// A backward pass for chosen leaves, and the warning where a gradient of another loss was left.

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/function.h"
#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/base/warning.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

// Counts its backward passes.
struct Counted : Function {
  int* count = nullptr;
  Tensor forward(const Tensor& x, int* passes) {
    count = passes;
    return x * 2;
  }
  Tensor backward(const Tensor& dy) {
    ++*count;
    return dy * 2;
  }
};

class BackwardInputsTest : public ::testing::Test {
 protected:
  BackwardInputsTest() {
    g_.initialize(Constant{2}, runtime_.devices());
    d_.initialize(Constant{3}, runtime_.devices());
  }

  Runtime runtime_{small_devices(2)};
  Linear g_{{.in_features = 1, .out_features = 1, .bias = false}},
      d_{{.in_features = 1, .out_features = 1, .bias = false}};
  const Tensor x_ = make_batch(Tensor::from<float>({1, 2, 3, 4}, {4, 1}), {2, 2}, runtime_.devices());
};

TEST_F(BackwardInputsTest, OnlyTheseGetGradients) {
  sum(d_(g_(x_))).backward({.inputs = g_.parameters()});
  EXPECT_EQ(values(g_.weight.gradient()), Numbers{30});
  EXPECT_FALSE(d_.weight.gradient().defined());
  sum(d_(g_(x_))).backward({.inputs = {d_.weight}});
  EXPECT_EQ(values(g_.weight.gradient()), Numbers{30});
  EXPECT_EQ(values(d_.weight.gradient()), Numbers{20});
  sum(d_(g_(x_))).backward();
  EXPECT_EQ(values(g_.weight.gradient()), Numbers{60});
  EXPECT_EQ(values(d_.weight.gradient()), Numbers{40});
}

TEST_F(BackwardInputsTest, WhatOthersNeedIsNotComputed) {
  int of_g = 0, of_d = 0;
  const Tensor w = apply<Counted>(d_.weight.tensor(), &of_d);
  const Tensor v = apply<Counted>(g_.weight.tensor(), &of_g);
  sum(linear(linear(x_, v), w)).backward({.inputs = g_.parameters()});
  EXPECT_EQ(of_g, 1);
  EXPECT_EQ(of_d, 0);
  EXPECT_EQ(values(g_.weight.gradient()), Numbers{120});
}

// As without inputs: a leaf that the loss does not depend on has no gradient.
TEST_F(BackwardInputsTest, SomeMayBeOutOfReach) {
  Tensor x = as_leaf(x_.detach());
  sum(g_(x)).backward({.inputs = {x, d_.weight}});
  EXPECT_EQ(values(x.grad()), Numbers(4, 2.0));
  EXPECT_FALSE(d_.weight.gradient().defined());
  EXPECT_FALSE(g_.weight.gradient().defined());
}

TEST_F(BackwardInputsTest, MistakesAreErrors) {
  const auto loss = [&] { return sum(d_(g_(x_).detach())); };
  EXPECT_ERROR(loss().backward({.inputs = g_.parameters()}), "the loss depends on none of the 1 tensors of inputs");
  EXPECT_ERROR(loss().backward({.inputs = std::vector<Tensor>()}), "inputs is empty");
  EXPECT_ERROR(loss().backward({.inputs = {x_}}), "requires no gradient");
  const Tensor h = g_(x_);
  EXPECT_ERROR(sum(d_(h)).backward({.inputs = {h}}), "is a result with a history, expected a leaf");
}

// What a failed pass left out is there for the next one.
TEST_F(BackwardInputsTest, APassThatFailsForgetsThem) {
  struct Fails : Function {
    Tensor forward(const Tensor& x) { return x * 1; }
    Tensor backward(const Tensor&) { fail("no gradient today"); }
  };
  const Tensor h = d_(g_(x_)), loss = sum(h);
  Tensor x = as_leaf(x_.detach());
  const Tensor bad = sum(apply<Fails>(g_(x)));
  EXPECT_ERROR(backward({bad, loss}, {Tensor(), Tensor()}, {.inputs = {x}}), "no gradient today");
  EXPECT_FALSE(g_.weight.gradient().defined());
}

class StaleGradientTest : public BackwardInputsTest {
 protected:
  ~StaleGradientTest() override { set_warning_handler(std::move(before_)); }

  void train_g(const BackwardOptions& options = {}) { sum(d_(g_(x_))).backward(options); }
  void train_d(const BackwardOptions& options = {}) { sum(d_(g_(x_).detach())).backward(options); }
  // As an optimizer's step().
  static void step(const Linear& net) {
    net.weight.gradient_state().mark_used();
    net.weight.zero_grad();
  }

  std::vector<Warning> found_;
  WarningHandler before_ = set_warning_handler([this](const Warning& w) { found_.push_back(w); });
  std::shared_ptr<void> optimized_[2] = {g_.weight.claim(), d_.weight.claim()};
};

TEST_F(StaleGradientTest, AForgottenZeroGradWarns) {
  train_d();
  step(d_);
  train_g();
  step(g_);
  EXPECT_TRUE(found_.empty());
  train_d();
  ASSERT_EQ(found_.size(), 1U);
  EXPECT_EQ(found_[0].kind, "stale gradient");
  EXPECT_NE(found_[0].message.find("the gradient of parameter weight is added to that of an earlier backward()"),
            std::string::npos)
      << found_[0].message;
}

TEST_F(StaleGradientTest, CorrectProgramsDoNotWarn) {
  for (int pass = 0; pass < 2; ++pass) {
    // Plain accumulation, as in PyTorch.
    train_d();
    train_d();
    step(d_);
    train_g({.inputs = g_.parameters()});
    step(g_);
  }
  train_g();
  step(g_);
  train_d({.sync = false});
  train_d({.share = 0.5});
  step(d_);
  train_g();
  step(g_);
  d_.weight.zero_grad();
  train_d();
  EXPECT_TRUE(found_.empty());
  // A parameter that no optimizer has.
  step(d_);
  train_g();
  step(g_);
  optimized_[1].reset();
  train_d();
  EXPECT_TRUE(found_.empty());
}

TEST_F(StaleGradientTest, AHandlerMayThrowBeforeAnythingChanges) {
  set_warning_handler([](const Warning& w) { throw Error(w.message); });
  train_g();
  step(g_);
  const Numbers before = values(d_.weight.gradient());
  EXPECT_ERROR(train_d(), "another optimizer's step has used the other gradients");
  EXPECT_EQ(values(d_.weight.gradient()), before);
}

}  // namespace
}  // namespace lockstep::testing
