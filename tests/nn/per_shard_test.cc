// per_shard() with parameters, whole tensors, results of the batch, and other modules.
#include "tests/nn/nn_testing.h"

#include "lockstep/autograd/function.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/linear.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

class PerShardTest : public ::testing::Test {
 protected:
  PerShardTest() {
    for (Linear* layer : {&one_, &other_}) layer->initialize(Constant{1}, runtime_.devices());
  }
  // 1 to 12, [4, 3], in two shards on D devices. Its columns have the sums 22, 26 and 30.
  Tensor batch(int devices) {
    std::vector<float> all(12);
    std::iota(all.begin(), all.end(), 1.0F);
    return make_batch(Tensor::from(all, {4, 3}), {2, 2}, {devices_.begin(), devices_.begin() + devices});
  }
  Tensor row(std::size_t device = 0) { return make_tensor({1, 2, 3}, {1, 3}, devices_[device]); }

  Runtime runtime_{small_devices(2)};
  const std::vector<Device>& devices_ = runtime_.devices();
  Linear one_{{.in_features = 3, .out_features = 1, .bias = false}};
  Linear other_{{.in_features = 3, .out_features = 1, .bias = false}};
  const Numbers column_sums_{22, 26, 30};
};

TEST_F(PerShardTest, AParameterMayBeMovedOutside) {
  for (int devices : {1, 2}) {
    one_.weight.zero_grad();
    const Tensor w = one_.weight.tensor().to(devices_[0]);
    sum(per_shard([&](const Tensor& t) { return linear(t, w); }, batch(devices))).backward();
    EXPECT_EQ(values(one_.weight.gradient()), column_sums_);
  }
}

TEST_F(PerShardTest, ParametersMayBeConcatenated) {
  const auto f = [&](const Tensor& t) {
    return linear(t, concatenate(std::array<Tensor, 2>{one_.weight, other_.weight}));
  };
  for (int devices : {1, 2}) {
    for (bool inside : {false, true}) {
      for (const Linear* layer : {&one_, &other_}) layer->weight.zero_grad();
      const Tensor x = batch(devices), y = inside ? per_shard(f, x) : f(x);
      EXPECT_EQ(y.shape(), (Shape{4, 2}));
      sum(y).backward();
      for (const Linear* layer : {&one_, &other_}) EXPECT_EQ(values(layer->weight.gradient()), column_sums_);
    }
  }
}

TEST_F(PerShardTest, AWholeLeafHasTheGradientOfAllShards) {
  for (int devices : {1, 2}) {
    Tensor captured = as_leaf(row()), passed = as_leaf(row());
    sum(per_shard([&](const Tensor& t, const Tensor& p) { return t * captured + t * p; }, batch(devices), passed))
        .backward();
    EXPECT_EQ(values(captured.grad()), column_sums_);
    EXPECT_EQ(values(passed.grad()), column_sums_);
  }
}

TEST_F(PerShardTest, AWholeConstantComesToTheShards) {
  for (int devices : {1, 2}) {
    for (std::size_t home : {0U, 1U}) {
      const Tensor c = row(home), x = batch(devices);
      const Numbers captured = values(per_shard([&](const Tensor& t) { return t + c; }, x));
      const Numbers passed = values(per_shard([](const Tensor& t, const Tensor& k) { return t + k; }, x, c));
      EXPECT_EQ(captured, (Numbers{2, 4, 6, 5, 7, 9, 8, 10, 12, 11, 13, 15}));
      EXPECT_EQ(passed, captured);
    }
  }
}

TEST_F(PerShardTest, AResultOfTheBatchMayBePassedAndCaptured) {
  for (int devices : {1, 2}) {
    const auto gradient = [&](const std::function<Tensor(const Tensor& x, const Tensor& m)>& f) {
      Tensor x = as_leaf(batch(devices));
      sum(square(f(x, mean(square(x)).reshape({1, 1})))).backward();
      return values(x.grad());
    };
    const auto minus = [](const Tensor& t, const Tensor& m) { return t - m; };
    const Numbers expected = gradient(minus);
    EXPECT_LT(distance(gradient([&](const Tensor& x, const Tensor& m) { return per_shard(minus, x, m); }), expected),
              1e-5);
    EXPECT_LT(distance(gradient([&](const Tensor& x, const Tensor& m) {
                         return per_shard([&](const Tensor& t) { return t - m; }, x);
                       }),
                       expected),
              1e-5);
  }
}

TEST_F(PerShardTest, ReturnsAsManyTensorsAsTheFunction) {
  const Tensor x = batch(2), twice = x * 2;
  const auto check_two = [&](const auto& results) {
    const auto& [first, second] = results;
    EXPECT_EQ(first->kind, Kind::cut);
    EXPECT_EQ(values(first), values(twice));
    EXPECT_EQ(second.shape(), (Shape{4}));
    EXPECT_EQ(values(second), (Numbers{6, 15, 24, 33}));
  };
  check_two(per_shard([](const Tensor& t) { return std::tuple(t * 2, sum(t, 1)); }, x));
  check_two(per_shard([](const Tensor& t) { return std::pair(t * 2, sum(t, 1)); }, x));
  check_two(per_shard([](const Tensor& t, const Tensor& u) { return std::array{t + u, sum(u, 1)}; }, x, x));
  // Gradients come back through each of them.
  Tensor leaf = as_leaf(x);
  const auto [y, z] = per_shard([](const Tensor& t) { return std::tuple(t * 2, t * t); }, leaf);
  (sum(y) + sum(z)).backward();
  EXPECT_EQ(values(leaf.grad()), values(x * 2 + 2));
}

TEST_F(PerShardTest, AResultOfAnotherBatchIsRefused) {
  const Tensor m = mean(batch(2)).reshape({1, 1});
  EXPECT_ERROR(per_shard([&](const Tensor& t) { return t - m; }, make_batch(Tensor::host({4, 3}), {1, 3}, devices_)),
               "is of one shard, [1, 1] f32 on [cpu:0, cpu:1] of a batch: pass both to per_shard()");
}

// So a model that uses per_shard() or gather() is evaluated shard by shard, too.
TEST_F(PerShardTest, OneShardIsAllThatItSees) {
  NoGradGuard no_grad;
  const auto f = [&](const Tensor& x) {
    return per_shard([&](const Tensor& t) { return one_(t); }, x) - mean(gather(x));
  };
  const Tensor x = batch(2), y = per_shard(f, x);
  EXPECT_EQ(values(y), (Numbers{6 - 3.5, 15 - 3.5, 24 - 9.5, 33 - 9.5}));
  EXPECT_EQ(values(f(row())), Numbers{6 - 2});
}

TEST_F(PerShardTest, ResultsOfDifferentShapesOrTypesAreRefused) {
  const auto differ = [&](const std::function<Tensor(const Tensor&)>& other) {
    bool first = true;
    return per_shard([&](const Tensor& t) { return std::exchange(first, false) ? t : other(t); }, batch(2));
  };
  EXPECT_ERROR(differ([](const Tensor& t) { return transpose(transpose(t).narrow(0, 0, 2)); }),
               "result 0 is [2, 3] f32 on cpu:0 for one shard, [2, 2] f32 on cpu:1 for another");
  EXPECT_ERROR(differ([](const Tensor& t) { return t.to(DType::bf16); }), "[2, 3] bf16 on cpu:1 for another");
  EXPECT_ERROR(differ([](const Tensor& t) { return t.narrow(0, 0, 1); }), "expected the shard's 2 samples on axis 0");
}

TEST_F(PerShardTest, ATensorThatIsKeptOutlivesAnError) {
  BatchNorm2d norm({.channels = 1});
  norm.initialize(Constant{1}, devices_);
  Tensor kept;
  const auto failing = [&](const Tensor& t) -> Tensor {
    kept = t;
    fail("no result today");
  };
  EXPECT_ERROR(per_shard(failing, make_batch(Tensor::host({2, 1, 1, 2}), {1, 1}, devices_)), "no result today");
  ASSERT_TRUE(kept.defined());
  EXPECT_EQ(kept->at->collector(), nullptr);
  EXPECT_EQ(norm(kept).shape(), (Shape{1, 1, 1, 2}));
}

// The loss of each shard has it.
TEST_F(PerShardTest, APenaltyInsideCountsForEachShard) {
  for (int devices : {1, 2}) {
    one_.weight.zero_grad();
    sum(per_shard([&](const Tensor& t) { return one_(t) + sum(square(one_.weight.tensor())); }, batch(devices)))
        .backward();
    // 4 samples, each with 2 w = 2.
    EXPECT_EQ(values(one_.weight.gradient()), (Numbers{22 + 8, 26 + 8, 30 + 8}));
  }
}

struct Product : Function {
  SavedTensor x, w;
  Tensor forward(const Tensor& a, const Tensor& b) {
    x = a, w = b;
    return a * b;
  }
  std::pair<Tensor, Tensor> backward(const Tensor& dy) { return {dy * w.get(), sum_to(dy * x.get(), w.get().shape())}; }
};

TEST_F(PerShardTest, AFunctionOfAParameterHasItsGradientEverywhere) {
  for (int devices : {1, 2}) {
    const Tensor x = batch(devices), w = one_.weight;
    const auto f = [&](const Tensor& t) { return apply<Product>(t, w); };
    for (const auto& y : std::vector<std::function<Tensor()>>{[&] { return f(gather(x)); }, [&] { return f(x); },
                                                              [&] { return per_shard(f, x); }}) {
      one_.weight.zero_grad();
      sum(y()).backward();
      EXPECT_EQ(values(one_.weight.gradient()), column_sums_);
    }
  }
}

// A function of parameters alone, whose result meets the batch.
TEST_F(PerShardTest, AFunctionOfParametersAloneMayMeetABatch) {
  struct Doubled : Function {
    Tensor forward(const Tensor& x) { return x * 2; }
    Tensor backward(const Tensor& dy) { return dy * 2; }
  };
  for (int devices : {1, 2}) {
    one_.weight.zero_grad();
    sum(linear(batch(devices), apply<Doubled>(one_.weight.tensor()))).backward();
    EXPECT_EQ(values(one_.weight.gradient()), (Numbers{44, 52, 60}));
  }
}

}  // namespace
}  // namespace lockstep::testing
