// Functions that create tensors: in host memory, on a device, and where another tensor lies.
#include "lockstep/autograd/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

class CreationTest : public ::testing::Test {
 protected:
  // [samples, 3], in shards of 2 samples by turns on the two devices.
  Tensor batch(std::int64_t samples) {
    std::vector<Slot> slots;
    std::vector<std::int64_t> rows;
    for (std::int64_t first = 0; first < samples; first += 2) {
      rows.push_back(std::min<std::int64_t>(2, samples - first));
      slots.push_back({static_cast<int>(slots.size()), devices_[slots.size() % 2]});
    }
    return scatter(Tensor::host({samples, 3}), std::make_shared<Placement>(rows, slots));
  }
  Tensor parameter() {
    return replicated_tensor(
        {zeros({2, 2}, {.device = devices_[0]})->array(), zeros({2, 2}, {.device = devices_[1]})->array()});
  }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1}};
  const std::vector<Device>& devices_ = runtime_.devices();
};

TEST_F(CreationTest, ConstantsLieWhereTheOptionsSay) {
  for (const Device device : {kHost, devices_[1]}) {
    const Tensor z = zeros({2, 3}, {.device = device});
    EXPECT_EQ(z.device(), device);
    EXPECT_EQ(z.dtype(), DType::f32);
    EXPECT_EQ(z.shape(), (Shape{2, 3}));
    EXPECT_EQ(z.to_vector<float>(), std::vector<float>(6, 0));
    EXPECT_EQ(ones({2}, {.dtype = DType::f64, .device = device}).to_vector<double>(), (Numbers{1, 1}));
    EXPECT_EQ(full({2}, 7, {.dtype = DType::i64, .device = device}).to_vector<std::int64_t>(),
              (std::vector<std::int64_t>{7, 7}));
    EXPECT_EQ(full({}, 0.5, {.dtype = DType::bf16, .device = device}).item<float>(), 0.5F);
    EXPECT_EQ(zeros({0, 4}, {.device = device}).numel(), 0);
  }
}

TEST_F(CreationTest, ValuesLieWhereTheOptionsSay) {
  const std::vector<std::int64_t> values{1, -2, 3};
  EXPECT_EQ(Tensor::from(values, {3}).dtype(), DType::i64);
  for (const Device device : {kHost, devices_[1]}) {
    EXPECT_EQ(Tensor::from(values, {3}, {.device = device}).device(), device);
    EXPECT_EQ(Tensor::from(values, {3}, {.device = device}).to_vector<std::int64_t>(), values);
    EXPECT_EQ(Tensor::from(values, {3, 1}, {.dtype = DType::f64, .device = device}).to_vector<double>(),
              (Numbers{1, -2, 3}));
    const Tensor half = Tensor::from(values, {3}, {.dtype = DType::f16, .device = device});
    EXPECT_EQ(half.dtype(), DType::f16);
    EXPECT_EQ(half.to_vector<float>(), (std::vector<float>{1, -2, 3}));
    EXPECT_EQ(Tensor::from(half.to_vector<float>(), {3}, {.dtype = DType::i64}).to_vector<std::int64_t>(), values);
  }
}

TEST_F(CreationTest, ArangeCountsUpToItsEnd) {
  for (const Device device : {kHost, devices_[0]}) {
    EXPECT_EQ(arange(4, {.device = device}).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(arange(2, 9, 3, {.device = device}).to_vector<std::int64_t>(), (std::vector<std::int64_t>{2, 5, 8}));
    EXPECT_EQ(arange(3, 0, -1, {.device = device}).to_vector<std::int64_t>(), (std::vector<std::int64_t>{3, 2, 1}));
    EXPECT_EQ(arange(1.0, {.device = device}).to_vector<float>(), std::vector<float>{0});
    EXPECT_EQ(arange(0, 1, 0.25, {.dtype = DType::f64, .device = device}).to_vector<double>(),
              (Numbers{0, 0.25, 0.5, 0.75}));
    EXPECT_EQ(arange(5, 5, {.device = device}).numel(), 0);
  }
  EXPECT_ERROR(arange(0, 5, -1), "arange: from 0 to 5 by -1");
  EXPECT_ERROR(arange(0, 5, 0), "arange: from 0 to 5 by 0");
}

TEST_F(CreationTest, EyeHasOnesOnItsDiagonal) {
  for (const Device device : {kHost, devices_[0]}) {
    EXPECT_EQ(eye(2, {.device = device}).to_vector<float>(), (std::vector<float>{1, 0, 0, 1}));
    EXPECT_EQ(eye(2, 3, {.dtype = DType::i64, .device = device}).to_vector<std::int64_t>(),
              (std::vector<std::int64_t>{1, 0, 0, 0, 1, 0}));
    EXPECT_EQ(eye(3, 2, {.device = device}).shape(), (Shape{3, 2}));
  }
}

TEST_F(CreationTest, RandomNumbersFollowFromTheSeedAlone) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const auto uniform = values(rand({33, 3}, {.dtype = dtype, .device = devices_[0], .seed = 7}));
    EXPECT_EQ(values(rand({33, 3}, {.dtype = dtype, .device = devices_[1], .seed = 7})), uniform);
    EXPECT_EQ(values(rand({33, 3}, {.dtype = dtype, .seed = 7}).to(devices_[0])), uniform);
    EXPECT_NE(values(rand({33, 3}, {.dtype = dtype, .device = devices_[0], .seed = 8})), uniform);
    const auto normal = values(randn({33, 3}, {.dtype = dtype, .device = devices_[0], .seed = 7}));
    EXPECT_EQ(values(randn({33, 3}, {.dtype = dtype, .seed = 7}).to(devices_[0])), normal);
    EXPECT_TRUE(std::ranges::all_of(uniform, [](double u) { return u >= 0 && u < 1; }));
    EXPECT_TRUE(std::ranges::any_of(normal, [](double z) { return z < -1; }));
  }
  const auto many = values(randn({10000}, {.device = devices_[0]}));
  double sum = 0, squares = 0;
  for (double z : many) sum += z, squares += z * z;
  EXPECT_NEAR(sum / 1e4, 0, 0.05);
  EXPECT_NEAR(squares / 1e4, 1, 0.05);
  EXPECT_ERROR(rand({2}, {.dtype = DType::i64}), "rand: i64 elements, expected a floating type");
}

// They have as many bits as the significand, so that none rounds to 1.
TEST_F(CreationTest, UniformNumbersOfHalfTypesAreBelow1) {
  for (const auto& [dtype, steps] : {std::pair{DType::bf16, 256}, std::pair{DType::f16, 2048}}) {
    const auto drawn = values(rand({20000}, {.dtype = dtype, .seed = 7}));
    EXPECT_EQ(std::ranges::max(drawn), 1 - 1.0 / steps);
    EXPECT_EQ(std::ranges::min(drawn), 0);
    EXPECT_TRUE(std::ranges::all_of(drawn, [steps = steps](double u) { return u * steps == std::floor(u * steps); }));
    EXPECT_EQ(values(rand({20000}, {.dtype = dtype, .device = devices_[0], .seed = 7})), drawn);
  }
}

TEST_F(CreationTest, WithoutASeedEachCallDrawsAnew) {
  const auto draws = [](Runtime& runtime, int device) {
    runtime.random().restart(3);
    std::vector<float> all;
    for (const Device place : {runtime.devices()[static_cast<std::size_t>(device)], kHost}) {
      for (int i = 0; i < 2; ++i) {
        for (float z : randn({4}, {.device = place}).to_vector<float>()) all.push_back(z);
      }
    }
    runtime.random().add_steps(1);
    for (float z : randn({4}).to_vector<float>()) all.push_back(z);
    return all;
  };
  const std::vector<float> found = draws(runtime_, 0);
  EXPECT_EQ(std::set<float>(found.begin(), found.end()).size(), 20U);
  EXPECT_EQ(draws(runtime_, 1), found);
}

TEST_F(CreationTest, AKeyDecidesTheNumbers) {
  const RandomKey key = random_key(3, {4});
  const std::vector<float> found = randn({5}, {.key = key}).to_vector<float>();
  EXPECT_EQ(randn({5}, {.device = devices_[1], .key = key}).to_vector<float>(), found);
  EXPECT_NE(randn({5}, {.key = random_key(3, {5})}).to_vector<float>(), found);
  EXPECT_ERROR(rand({2}, {.seed = 1, .key = key}), "rand: a seed and a key are given, expected at most one of them");
}

TEST_F(CreationTest, RandomWholeNumbersFillTheirRange) {
  const auto numbers = [](const Tensor& t) { return t.to_vector<std::int64_t>(); };
  const std::vector<std::int64_t> found = numbers(randint(-2, 3, {40, 5}, {.seed = 7}));
  EXPECT_EQ(std::set<std::int64_t>(found.begin(), found.end()), (std::set<std::int64_t>{-2, -1, 0, 1, 2}));
  EXPECT_EQ(numbers(randint(-2, 3, {40, 5}, {.device = devices_[1], .seed = 7})), found);
  EXPECT_NE(numbers(randint(-2, 3, {40, 5}, {.seed = 8})), found);
  EXPECT_NE(numbers(randint(1000, {9})), numbers(randint(1000, {9}))) << "without a seed, each call draws anew";
  EXPECT_EQ(randint(2, {3}, {.dtype = DType::f32, .seed = 1}).dtype(), DType::f32);
  using Limits = std::numeric_limits<std::int64_t>;
  const auto wide = numbers(randint(Limits::min(), Limits::max(), {64}, {.seed = 1}));
  EXPECT_LT(std::ranges::min(wide), Limits::min() / 2);
  EXPECT_GT(std::ranges::max(wide), Limits::max() / 2);
  EXPECT_ERROR(randint(3, 3, {2}), "randint: from 3 to 3, expected a larger end");
  EXPECT_ERROR(randint(0, 300, {99}, {.dtype = DType::u8, .seed = 1}), "in a tensor of u8");

  std::vector<std::int64_t> order = numbers(randperm(50, {.seed = 7}));
  EXPECT_EQ(numbers(randperm(50, {.device = devices_[0], .seed = 7})), order);
  EXPECT_NE(numbers(randperm(50, {.seed = 8})), order);
  EXPECT_FALSE(std::ranges::is_sorted(order));
  std::ranges::sort(order);
  EXPECT_EQ(order, numbers(arange(50)));
  EXPECT_EQ(randperm(0, {.seed = 1}).shape(), Shape{0});
  // Each of the 6 orders of 3 numbers about as often.
  std::map<std::vector<std::int64_t>, int> counts;
  for (std::uint64_t seed = 0; seed < 600; ++seed) ++counts[numbers(randperm(3, {.seed = seed}))];
  EXPECT_EQ(counts.size(), 6U);
  for (const auto& [permutation, count] : counts) EXPECT_NEAR(count, 100, 40);
}

// As the class of a sample's shard: its device does not matter, and neither do the other shards.
TEST_F(CreationTest, DrawsByProbabilitiesFollowFromTheShard) {
  const Tensor x = batch(5);
  const auto draw = [&](const auto& f, const Tensor& like) {
    runtime_.random().restart(3);
    return values(f(like).to(DType::f64));
  };
  const std::vector<Slot> slots{{0, devices_[0]}, {1, devices_[0]}, {2, devices_[0]}};
  const Tensor y = scatter(Tensor::host({5, 3}), std::make_shared<Placement>(x->at->rows(), slots));
  const auto half = [](const Tensor& t) { return bernoulli(t + 0.5); };
  const auto classes = [](const Tensor& t) { return multinomial(t + 1, 2); };
  const auto repeated = [](const Tensor& t) { return multinomial(t + 1, 4, true); };
  const auto noise = [](const Tensor& t) { return randn_like(flatten(stack({t, t}, 1), 0, 1)); };
  EXPECT_EQ(draw(half, x), draw(half, y));
  EXPECT_EQ(draw(classes, x), draw(classes, y));
  EXPECT_EQ(draw(repeated, x), draw(repeated, y));
  EXPECT_EQ(draw(noise, x), draw(noise, y));
  const Numbers all = draw(noise, x);
  EXPECT_EQ(std::set<double>(all.begin(), all.end()).size(), 30U);
  EXPECT_EQ(classes(x).shape(), (Shape{5, 2}));
  EXPECT_EQ(classes(x)->kind, Kind::cut);
}

TEST_F(CreationTest, BernoulliDrawsByItsProbabilities) {
  const double nan = NAN;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor p = tensor({{0.0, 1.0, 0.25}}, {.dtype = dtype});
    const Tensor drawn = bernoulli(expand(p, {4000, 3}));
    EXPECT_EQ(drawn.dtype(), dtype);
    const Numbers means = values(mean(drawn.to(DType::f64), 0));
    EXPECT_EQ(means[0], 0);
    EXPECT_EQ(means[1], 1);
    EXPECT_NEAR(means[2], 0.25, 0.03);
  }
  for (const double wrong : values(bernoulli(tensor({-0.1, 1.5, nan})))) EXPECT_TRUE(std::isnan(wrong));
  EXPECT_ERROR(bernoulli(tensor({0, 1})), "bernoulli: i64 elements, expected a floating type");
}

TEST_F(CreationTest, MultinomialDrawsByItsWeights) {
  const Tensor weights = tensor({{0.0, 1.0, 3.0, 0.0}, {1e-30, 0.0, 0.0, 1e-30}}).to(devices_[0]);
  const Tensor drawn = multinomial(weights, 4000, true);
  EXPECT_EQ(drawn.shape(), (Shape{2, 4000}));
  const Numbers shares = values(mean(one_hot(drawn, 4).to(DType::f64), 1));
  const Numbers expected{0, 0.25, 0.75, 0, 0.5, 0, 0, 0.5};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(shares[i], expected[i], expected[i] == 0 ? 0 : 0.03);
  }
  // Without replacement: the first one has these shares, too, and the next one is another class.
  int first = 0;
  for (int i = 0; i < 300; ++i) {
    const auto both = multinomial(tensor({0.0, 1.0, 3.0}), 2).to_vector<std::int64_t>();
    EXPECT_EQ(both[0] + both[1], 3);
    first += both[0] == 2 ? 1 : 0;
  }
  EXPECT_NEAR(first, 225, 30);
  EXPECT_ERROR(multinomial(weights, 3), "multinomial: 2 classes of a row have a weight above 0, expected as many");
  EXPECT_ERROR(multinomial(tensor({0.0, 0.0}), 1, true), "multinomial: 0 classes of a row");
  EXPECT_ERROR(multinomial(tensor({-1.0, 2.0}), 1), "multinomial: a weight is -1");
  EXPECT_ERROR(multinomial(tensor({NAN, 2.0}), 1), "multinomial: a weight is nan");
  EXPECT_ERROR(multinomial(zeros({2, 2, 2}), 1), "expected [C] or [N, C]");
}

TEST_F(CreationTest, ABlobIsTheCallersMemory) {
  std::vector<float> memory{1, 2, 3, 4};
  bool released = false;
  {
    const Tensor x = from_blob(memory.data(), {2, 2}, [&](const void* data) {
      EXPECT_EQ(data, memory.data());
      released = true;
    });
    EXPECT_EQ(x.data_ptr<float>(), memory.data());
    memory[3] = 5;
    EXPECT_EQ(values(x), (Numbers{1, 2, 3, 5}));
    const Tensor row = x[1];
    x[0] = row;  // writes
    EXPECT_EQ(memory, (std::vector<float>{3, 5, 3, 5}));
    // A CPU device reads it where it is.
    EXPECT_EQ(values(x + ones({2, 2}, {.device = devices_[0]})), (Numbers{4, 6, 4, 6}));
    EXPECT_FALSE(released);
  }
  runtime_.synchronize();
  EXPECT_TRUE(released);

  const std::vector<std::int64_t> fixed{7, 8};
  const Tensor labels = from_blob(fixed.data(), {2});
  EXPECT_EQ(labels.dtype(), DType::i64);
  EXPECT_EQ(values(labels), (Numbers{7, 8}));
  EXPECT_ERROR(labels.fill_(0), "from_blob: the memory is const");
  EXPECT_ERROR(labels.data_ptr<std::int64_t>(), "from_blob: the memory is const");
  EXPECT_EQ(labels.data_ptr<const std::int64_t>(), fixed.data());
  EXPECT_ERROR(from_blob(static_cast<float*>(nullptr), {2}), "from_blob: no address, expected 8 bytes for [2]");
  EXPECT_EQ(from_blob(static_cast<float*>(nullptr), {0}).numel(), 0);
  const auto* odd = reinterpret_cast<const float*>(reinterpret_cast<const char*>(memory.data()) + 1);
  EXPECT_ERROR(from_blob(odd, {1}), "is not a multiple of the size of f32");
}

TEST_F(CreationTest, AStateOfABatchIsCutAsTheBatch) {
  const Tensor x = batch(5);
  const Tensor h = zeros({2, kBatch, 4}, like(x));
  EXPECT_EQ(h->kind, Kind::cut);
  EXPECT_EQ(h.shape(), (Shape{2, 5, 4}));
  EXPECT_EQ(h->cut, (Cut{.axis = 1}));
  EXPECT_TRUE(same_placement(h->at, x->at));
  EXPECT_EQ(values(zeros({kBatch, 3}, like(x)) + x + 1), Numbers(15, 1));
  EXPECT_EQ(full({kBatch}, 3, like(x, DType::i64)).to_vector<std::int64_t>(), std::vector<std::int64_t>(5, 3));
  // Also like a result of the batch that is not cut itself.
  EXPECT_EQ(values(ones({kBatch, 1}, like(mean(x))) + x), Numbers(15, 1));
}

TEST_F(CreationTest, WithoutTheBatchATensorIsTheSameOnAllDevices) {
  const Tensor x = batch(5);
  const Tensor bias = ones({3}, like(x));
  EXPECT_EQ(bias->kind, Kind::replicated);
  EXPECT_EQ(bias.devices(), devices_);
  EXPECT_EQ(values(x + bias), Numbers(15, 1));
  EXPECT_EQ(zeros({3}, like(parameter())).devices(), devices_);
  EXPECT_EQ(values(parameter() + ones({2, 2}, like(parameter()))), Numbers(4, 1));
}

TEST_F(CreationTest, LikeAWholeTensorTheBatchIsItsFirstAxis) {
  EXPECT_EQ(zeros({kBatch, 2}, like(zeros({4, 9}))).shape(), (Shape{4, 2}));
  const Tensor y = zeros({kBatch, 2}, like(zeros({4, 9}, {.dtype = DType::f64, .device = devices_[1]})));
  EXPECT_EQ(y.device(), devices_[1]);
  EXPECT_EQ(y.dtype(), DType::f64);
}

TEST_F(CreationTest, InPerShardTheBatchIsTheShard) {
  std::vector<Shape> seen;
  const Tensor y = per_shard(
      [&](const Tensor& t) {
        const Tensor h = ones({kBatch, 3}, like(t));
        seen.push_back(h.shape());
        return t + h;
      },
      batch(3));
  EXPECT_EQ(seen, (std::vector<Shape>{{2, 3}, {1, 3}}));
  EXPECT_EQ(values(y), Numbers(9, 1));
}

TEST_F(CreationTest, NoiseDependsOnTheShardAndTheStepAndNotOnTheDevice) {
  const auto draw = [&](const Tensor& x) {
    runtime_.random().set_seed(3);
    runtime_.random().set_step(5);
    return values(randn({kBatch, 3}, like(x)));
  };
  const Tensor x = batch(5);
  const Numbers noise = draw(x);
  EXPECT_NE(noise[0], noise[6]);  // the second shard
  EXPECT_EQ(draw(x), noise);
  // All shards on one device; and one after the other.
  const std::vector<Slot> slots{{0, devices_[0]}, {1, devices_[0]}, {2, devices_[0]}};
  EXPECT_EQ(draw(scatter(Tensor::host({5, 3}), std::make_shared<Placement>(x->at->rows(), slots))), noise);
  runtime_.random().set_step(5);
  EXPECT_EQ(values(per_shard([&](const Tensor& t) { return randn({kBatch, 3}, like(t)); }, x)), noise);
  EXPECT_NE(values(randn({kBatch, 3}, like(x))), noise) << "the second draw of the step";
}

TEST_F(CreationTest, ReplicasDrawTheSameNoise) {
  const Tensor noise = rand({4}, like(batch(5)));
  EXPECT_EQ(noise->parts[0].to_vector<float>(), noise->parts[1].to_vector<float>());
  EXPECT_NE(rand({4}, like(batch(5)))->parts[0].to_vector<float>(), noise->parts[0].to_vector<float>());
}

TEST_F(CreationTest, WhatCannotBePlacedIsAnError) {
  EXPECT_ERROR(zeros({kBatch, 2}), "zeros: kBatch needs a batch: pass like(x)");
  EXPECT_ERROR(zeros({kBatch, 2}, like(parameter())), "which has no samples: pass like() of a batch");
  EXPECT_ERROR(zeros({kBatch, kBatch}, like(batch(2))), "kBatch is axis 0 and axis 1 of the shape, expected it once");
  EXPECT_ERROR(zeros({-1}), "zeros: shape [-1] has a negative extent");
  EXPECT_ERROR(zeros({2}, like(Tensor())), "zeros: like an undefined tensor");
}

TEST_F(CreationTest, AnIndexSelectsFromTheFirstAxis) {
  const Tensor x = arange(6, {.device = devices_[0]}).reshape({3, 2});
  EXPECT_EQ(x[1].to_vector<std::int64_t>(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(x[-1][0].item<std::int64_t>(), 4);
  EXPECT_ERROR(x[3], "3");
}

TEST_F(CreationTest, ToHostReadsWhateverThereIs) {
  const Tensor whole = arange(4, {.device = devices_[1]}).to_host();
  EXPECT_EQ(whole.device(), kHost);
  EXPECT_EQ(whole.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 3}));
  const Tensor rows = ones({kBatch, 2}, like(batch(5))).to_host();
  EXPECT_EQ(rows.device(), kHost);
  EXPECT_EQ(rows.to_vector<float>(), std::vector<float>(10, 1));
}

// As full() and fill_() do.
TEST_F(CreationTest, TensorHoldsItsNumbers) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_ERROR(tensor({kMost}), "a number is 18446744073709551615, expected an int64");
  EXPECT_ERROR(tensor(std::vector<std::uint64_t>{kMost}), "a number is 18446744073709551615, expected an int64");
  EXPECT_ERROR(tensor({300, -1}, DType::u8), "tensor: 300 in a tensor of u8, expected a whole number of its range");
  EXPECT_ERROR(tensor({0.5}, DType::i64), "tensor: 0.5 in a tensor of i64");
  EXPECT_ERROR(tensor({1e5}, DType::f16), "tensor: 100000 is beyond the range of f16");
  EXPECT_ERROR(tensor({1e300}), "is beyond the range of f32");
  EXPECT_ERROR(tensor(std::vector<std::int64_t>{300}, {.dtype = DType::u8}), "tensor: 300 in a tensor of u8");
  EXPECT_ERROR(tensor(std::vector<double>{1e300}), "is beyond the range of f32");
  EXPECT_EQ(tensor({255, 0}, DType::u8).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{255, 0}));
  EXPECT_EQ(tensor({kMost / 2}).item<std::int64_t>(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(tensor({2.0}, DType::i64).item<std::int64_t>(), 2);
  EXPECT_EQ(tensor({1e300}, DType::f64).item<double>(), 1e300);
  EXPECT_EQ(tensor({INFINITY}).item<float>(), INFINITY);
}

TEST_F(CreationTest, TensorsPrintWhole) {
  const std::string rows = zeros({10, 2}, {.device = devices_[0]}).str();
  EXPECT_EQ(std::ranges::count(rows, '0'), 21) << rows;  // 20 elements and cpu:0
  EXPECT_EQ(rows.find("..."), std::string::npos);
  std::ostringstream out;
  out << arange(2);
  EXPECT_EQ(out.str(), "tensor([0, 1], i64, host)");
}

}  // namespace
}  // namespace lockstep::testing
