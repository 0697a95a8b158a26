#include "lockstep/train/lr_finder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/optim/sgd.h"
#include "tests/expect_error.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

// Pictures whose class is where they are bright, so that a loss can fall.
std::shared_ptr<const Dataset> bright_pictures() {
  constexpr std::int64_t kCount = 60;
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < kCount; ++i) {
    labels.push_back(i % 5);
    for (std::int64_t p = 0; p < 36; ++p) pixels.push_back(p / 7 == i % 5 ? 1.0f : 0.01f * static_cast<float>(i % 7));
  }
  return std::make_shared<TensorDataset>(
      std::vector<Tensor>{Tensor::from(pixels, {kCount, 1, 6, 6}), Tensor::from(labels, {kCount})});
}

struct FoundRate {
  LearningRateCurve curve;
  std::vector<float> weights;  // of a training after the test, or without one
};

FoundRate find(int devices, bool finds, const LearningRateFinderOptions& finder = {},
               const std::shared_ptr<ProcessGroup>& group = nullptr) {
  Runtime runtime({.cpu_devices = devices, .threads_per_shard = 1});
  Sequential net;
  net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 16}).append<ReLU>().append<Dropout>(0.1);
  net.append<Linear>(LinearOptions{.out_features = 5});
  net.initialize(Xavier{}, runtime.devices());
  Sgd sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  const auto data = bright_pictures();
  FoundRate found;
  TrainerOptions options{.devices = runtime.devices(), .split = {.shards = 4}, .batch_size = 16, .epochs = 2};
  if (group) options.communicator = std::make_shared<Communicator>(runtime, group);
  if (finds) found.curve = find_learning_rate(net, sgd, data, options, finder);
  EXPECT_EQ(sgd.learning_rate(), 0.05);
  Trainer(net, sgd, data, nullptr, options).train();
  for (const auto& [name, tensor] : state_dict(net)) {
    for (const float x : tensor.to_vector<float>()) found.weights.push_back(x);
  }
  return found;
}

TEST(LearningRateFinder, SuggestsOneRateOnAnyDevicesAndChangesNothing) {
  const LearningRateFinderOptions far{.first = 1e-5, .last = 1e4, .steps = 60};
  const FoundRate one = find(1, true, far), three = find(3, true, far);
  EXPECT_GT(one.curve.suggestion, 1e-3);
  EXPECT_LT(one.curve.suggestion, 10);
  EXPECT_TRUE(one.curve.diverged);
  EXPECT_LT(one.curve.points.size(), 60U);
  ASSERT_EQ(one.curve.points.size(), three.curve.points.size());
  for (std::size_t i = 0; i < one.curve.points.size(); ++i) {
    EXPECT_EQ(one.curve.points[i].rate, three.curve.points[i].rate);
    EXPECT_EQ(one.curve.points[i].loss, three.curve.points[i].loss);
    EXPECT_EQ(one.curve.points[i].smoothed, three.curve.points[i].smoothed);
  }
  EXPECT_EQ(one.curve.suggestion, three.curve.suggestion);
  // The weights, the momentum, and the masks of dropout begin as without the test.
  const FoundRate without = find(1, false);
  EXPECT_EQ(one.weights, without.weights);
  EXPECT_EQ(learning_rate_panel(one.curve).curves.at(0).points.size(), one.curve.points.size());
}

TEST(LearningRateFinder, LeavesTheModeOfEachModule) {
  Runtime runtime({.cpu_devices = 1});
  Sequential net;
  net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5});
  const auto frozen = std::make_shared<BatchNorm1d>();
  frozen->eval();
  net.append(frozen);
  net.append<Linear>(LinearOptions{.out_features = 5});
  net.initialize(Xavier{}, runtime.devices());
  Sgd sgd(net.parameters(), {.lr = 0.05});
  find_learning_rate(net, sgd, bright_pictures(), {.devices = runtime.devices(), .batch_size = 16},
                     {.first = 1e-4, .last = 1, .steps = 20});
  EXPECT_TRUE(net.training());
  EXPECT_FALSE(frozen->training());
}

// All ranks see the same loss, and go on after it.
TEST(LearningRateFinder, RanksGoOnAfterALossThatIsNotFinite) {
  const LearningRateFinderOptions far{.first = 1e-5, .last = 1e30, .steps = 60, .stop_factor = 1e300};
  const FoundRate one = find(1, true, far);
  EXPECT_TRUE(one.curve.diverged);
  const auto groups = make_local_groups(2);
  std::vector<FoundRate> found(groups.size());
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r] { EXPECT_NO_THROW(found[r] = find(1, true, far, groups[r])); });
  }
  threads.clear();
  for (const FoundRate& f : found) {
    EXPECT_EQ(f.curve.suggestion, one.curve.suggestion);
    EXPECT_EQ(f.weights, one.weights);
  }
}

// The formulas of PyTorch Lightning's lr_find: exponential rates, a moving average of 0.98, the steepest descent.
TEST(LearningRateFinder, RatesAndAveragesFollowTheirFormulas) {
  const LearningRateCurve curve = find(1, true, {.first = 1e-4, .last = 1, .steps = 30}).curve;
  ASSERT_EQ(curve.points.size(), 30U);
  EXPECT_FALSE(curve.diverged);
  double sum = 0;
  std::size_t best = 0;
  for (std::size_t i = 0; i < 30; ++i) {
    const LearningRatePoint& p = curve.points[i];
    EXPECT_NEAR(p.rate / std::pow(10, -4 + 4 * static_cast<double>(i) / 29), 1, 1e-12);
    sum = 0.98 * sum + 0.02 * p.loss;
    EXPECT_NEAR(p.smoothed, sum / (1 - std::pow(0.98, static_cast<double>(i + 1))), 1e-9);
  }
  for (std::size_t i = 4; i + 2 < 30; ++i) {
    const auto slope = [&](std::size_t k) { return curve.points[k + 1].smoothed - curve.points[k - 1].smoothed; };
    if (best == 0 || slope(i) < slope(best)) best = i;
  }
  EXPECT_EQ(curve.suggestion, curve.points[best].rate);
}

TEST(LearningRateFinder, RefusesWhatItDoesNotKeep) {
  EXPECT_ERROR(find(1, true, {.first = 1, .last = 0.1}), "rates from 1 to 0.1");
  EXPECT_ERROR(find(1, true, {.steps = 3}), "3 steps, expected at least 10");
  EXPECT_ERROR(find(1, true, {.first = 1e6, .last = 1e30}), "expected a smaller first rate");
  SmallJob job(1);
  TrainerOptions saves{.devices = job.runtime.devices(), .save_folder = "x"};
  EXPECT_ERROR(find_learning_rate(job.net, *job.adam, random_pictures(20, 1), saves),
               "expected none: it keeps nothing");
}

}  // namespace
}  // namespace lockstep
