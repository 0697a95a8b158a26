// A backward pass that fails leaves every gradient as it was.
#include <thread>

#include "lockstep/autograd/function.h"
#include "lockstep/nn/linear.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

struct NoGradient : Function {
  Tensor forward(const Tensor& x) { return x * 1; }
  Tensor backward(const Tensor&) { fail("no gradient today"); }
};

class FailedPass : public ::testing::Test {
 protected:
  FailedPass() { net_.initialize(Constant{1}, runtime_.devices()); }
  // The sum of [1, 2, 3, 4]: the weight's gradient is 10.
  Tensor loss() { return sum(net_(x_)); }
  // The weight's gradient comes first, then the error.
  void fail_backward() {
    const Tensor x = as_leaf(x_.detach());
    const Tensor broken = apply<NoGradient>(x), fine = sum(net_(x));
    EXPECT_ERROR((fine + sum(broken)).backward(), "no gradient today");
  }
  std::vector<double> gradient() { return values(net_.weight.gradient()); }

  Runtime runtime_{small_devices(2)};
  Linear net_{{.in_features = 1, .out_features = 1, .bias = false}};
  const Tensor x_ = make_batch(Tensor::from<float>({1, 2, 3, 4}, {4, 1}), {2, 2}, runtime_.devices());
};

using Numbers = std::vector<double>;

// Some shards' functions have run, and are gone.
TEST_F(FailedPass, UsesUpTheHistory) {
  const Tensor x = as_leaf(x_.detach()), lost = sum(apply<NoGradient>(net_(x)));
  EXPECT_ERROR(lost.backward(), "no gradient today");
  EXPECT_ERROR(lost.backward(), "was used by an earlier backward()");
}

// A pass without sync goes on waiting for the next one with it, although the program looks at the gradient.
TEST_F(FailedPass, AndAProgramThatLooksAtAGradientChangeNoBits) {
  std::vector<Numbers> found;
  for (const bool looks : {false, true}) {
    net_.weight.zero_grad();
    for (int pass = 0; pass < 3; ++pass) {
      // Each shard's sum of the three loses the first one.
      const double factors[] = {1, 1e9, -1e9};
      sum(net_(x_) * factors[pass]).backward({.sync = pass == 2});
      if (looks && pass == 0) {
        EXPECT_EQ(gradient(), Numbers{10});
      }
    }
    found.push_back(gradient());
  }
  EXPECT_EQ(found[0], found[1]);
}

TEST_F(FailedPass, KeepsWhatEarlierPassesLeft) {
  loss().backward();
  fail_backward();
  EXPECT_EQ(gradient(), Numbers{10});
  loss().backward();
  EXPECT_EQ(gradient(), Numbers{20});
}

TEST_F(FailedPass, KeepsWhatEarlierPassesWithoutSyncLeft) {
  loss().backward({.sync = false});
  fail_backward();
  EXPECT_EQ(gradient(), Numbers{10});
  loss().backward({.sync = false});
  fail_backward();
  loss().backward();
  EXPECT_EQ(gradient(), Numbers{30});
}

TEST_F(FailedPass, LeavesNothingWhereNothingWas) {
  fail_backward();
  EXPECT_FALSE(net_.weight.gradient().defined());
}

// The first passes of two threads are two passes.
TEST_F(FailedPass, OfAnotherThreadKeepsWhatOneLeft) {
  std::thread([&] { loss().backward(); }).join();
  std::thread([&] { fail_backward(); }).join();
  EXPECT_EQ(gradient(), Numbers{10});
}

}  // namespace
}  // namespace lockstep::testing
