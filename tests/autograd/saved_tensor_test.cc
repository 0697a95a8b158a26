#include "lockstep/autograd/saved_array.h"

#include <gtest/gtest.h>

#include <functional>

#include "lockstep/autograd/batch_norm.h"
#include "lockstep/autograd/function.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "tests/autograd/gradient_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

class SavedTensorTest : public ::testing::Test {
 protected:
  Tensor constant(const Shape& shape = {2}) {
    return Tensor(Random(1).floats(shape, 0.5, 2)).to(runtime_.devices()[0]);
  }
  Tensor leaf(const Shape& shape = {2}) { return constant(shape).set_requires_grad(true); }

  Runtime runtime_{{.cores_per_device = 1, .threads_per_shard = 1}};
};

TEST_F(SavedTensorTest, AChangeBetweenForwardAndBackwardIsAnError) {
  Tensor p = leaf();
  // Two writes before forward: copied there, and filled.
  ops::fill_(p->array(), 3);
  const std::uint64_t before = p->storage()->version;
  Tensor loss = sum(p * p);
  p.copy_from(constant());
  EXPECT_ERROR(loss.backward(),
               fmt::format("multiply: a tensor needed for its gradient was changed in place after forward: "
                           "version {}, expected {}",
                           before + 1, before));
}

// Any kind of change to any part is found.
TEST_F(SavedTensorTest, EveryFunctionThatKeepsATensorNotices) {
  using Write = std::function<void(const Tensor&)>;
  const Write fill = [](const Tensor& t) { ops::fill_(t->array(), 1); };
  const Write add = [](const Tensor& t) { ops::add_(t->array(), ops::affine(t->array(), 2, 0)); };
  const Write part = [](const Tensor& t) {
    ops::copy_(ops::to_device(Array::host({1}), t.device()), ops::narrow(ops::reshape(t->array(), {-1}), 0, 1));
  };
  const auto expect_noticed = [&](std::string_view what, const Tensor& y, const Tensor& changed) {
    for (const Write& write : {fill, add, part}) {
      const Tensor loss = sum(y);
      write(changed);
      EXPECT_ERROR(loss.backward(), fmt::format("{}: a tensor needed for its gradient was changed in place", what));
    }
  };
  Tensor x = leaf(), c = constant();
  expect_noticed("multiply", x * c, c);
  expect_noticed("divide", c / x, c);
  expect_noticed("divide", c / x, x);
  expect_noticed("square", square(x), x);
  const Tensor e = exp(x);
  expect_noticed("exp", e, e);
  Tensor m = leaf({2, 2}), n = leaf({2, 2}), bias = leaf();
  expect_noticed("matmul", matmul(m, n), m);
  expect_noticed("linear", linear(m, n, bias), n);
  const Tensor s = softmax(m);
  expect_noticed("softmax", s, s);
  expect_noticed("mse", mse_loss(m, constant({2, 2})), m);
  Tensor image = leaf({2, 3, 4, 4}), filter = leaf({5, 3, 3, 3});
  expect_noticed("conv2d", conv2d(image, filter), filter);
  expect_noticed("conv2d", conv2d(image, filter), image);
  Tensor gamma = leaf({3}), beta = leaf({3}), mean = constant({3}), var = constant({3});
  expect_noticed("batch norm", batch_norm_train(image, gamma, beta, {}, {}, nullptr), gamma);
  // As a batch in training mode does.
  expect_noticed("batch norm", batch_norm_eval(image, gamma, beta, mean, var, {}, {}), mean);
}

TEST_F(SavedTensorTest, LabelsArePartOfIt) {
  Tensor x = leaf({2, 3});
  Tensor labels = Tensor::from(std::vector<std::int64_t>{0, 1}, {2}).to(runtime_.devices()[0]);
  Tensor loss = cross_entropy(x, labels);
  labels.copy_from(Tensor::from(std::vector<std::int64_t>{1, 2}, {2}));
  EXPECT_ERROR(loss.backward(), "cross entropy: a tensor needed for its gradient was changed in place");
}

// No gradient is computed from it.
TEST_F(SavedTensorTest, WhatIsNotNeededMayBeChanged) {
  Tensor x = leaf(), c = constant(), w = leaf({2, 2}), bias = leaf();
  const Tensor input = constant({1, 2});
  Tensor loss = sum(x * c) + sum(x + c) + sum(linear(input, w, bias));
  const std::vector<double> expected = values(c);
  ops::fill_(x->array(), 0);
  ops::fill_(w->array(), 0);
  ops::fill_(bias->array(), 0);
  loss.backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{expected[0] + 1, expected[1] + 1}));
  EXPECT_EQ(values(bias.grad()), (std::vector<double>{1, 1}));
}

struct SavedSquare : Function {
  SavedTensor x;
  Tensor forward(const Tensor& in) {
    x = in;
    return in * in;
  }
  Tensor backward(const Tensor& dy) { return x.get() * dy * 2; }
};

TEST_F(SavedTensorTest, UsersFunctionsMayHaveThem) {
  Tensor x = leaf();
  sum(apply<SavedSquare>(x)).backward();
  EXPECT_EQ(values(x.grad()), values(x * 2));
  const Tensor loss = sum(apply<SavedSquare>(x));
  x.copy_from(constant());
  EXPECT_ERROR(loss.backward(), "SavedSquare: a tensor needed for its gradient was changed in place");
}

// The inputs of a function without gradient for one of them are not held for it.
TEST_F(SavedTensorTest, WhatIsNotNeededIsNotKept) {
  Tensor frozen = constant({2, 2}), x = leaf({1, 2});
  std::weak_ptr<Storage> activation;
  Tensor loss;
  {
    Tensor h = x + 1;
    activation = h->storage();
    loss = sum(linear(h, frozen));
  }
  EXPECT_TRUE(activation.expired());
  loss.backward();
  EXPECT_TRUE(x.grad().defined());
}

}  // namespace
}  // namespace lockstep::testing
