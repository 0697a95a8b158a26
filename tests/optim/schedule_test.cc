
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/optim/schedule.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

std::vector<double> rates(const ScheduleOptions& options, std::int64_t steps) {
  std::vector<double> all;
  for (std::int64_t s = 0; s < steps; ++s) all.push_back(scheduled_lr(options, s));
  return all;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << "step " << i;
}

TEST(Schedule, ConstantAfterAWarmUp) {
  expect_near(rates({.base_lr = 2, .warmup = 4, .total_steps = 6}, 6), {0.5, 1, 1.5, 2, 2, 2});
  expect_near(rates({.base_lr = 2}, 2), {2, 2});
}

TEST(Schedule, StepsDown) {
  ScheduleOptions options{.kind = ScheduleKind::step, .base_lr = 1, .warmup = 1, .total_steps = 7, .step_size = 2};
  expect_near(rates(options, 7), {1, 1, 1, 0.1, 0.1, 0.01, 0.01});
  options.gamma = 0.5;
  options.step_size = 0;  // a third of the 7 steps that follow the warm-up, rounded up
  options.total_steps = 8;
  expect_near(rates(options, 8), {1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25});
}

TEST(Schedule, CosineEndsAtZeroAndStaysThere) {
  ScheduleOptions options{.kind = ScheduleKind::cosine, .base_lr = 2, .warmup = 1, .total_steps = 5};
  expect_near(rates(options, 7), {2, 2, 1 + std::sqrt(0.5), 1, 1 - std::sqrt(0.5), 0, 0});
}

TEST(Schedule, OfYourOwn) {
  const auto half = [](std::int64_t step) { return step < 2 ? 1 : 0.5; };
  expect_near(rates({.base_lr = 2, .lr_lambda = half}, 4), {2, 2, 1, 1});
  EXPECT_ERROR(scheduled_lr({.base_lr = 2, .warmup = 1, .lr_lambda = half}, 0), "lr_lambda is the whole schedule");
  EXPECT_ERROR(scheduled_lr({.kind = ScheduleKind::step, .base_lr = 2, .lr_lambda = half}, 0),
               "lr_lambda is the whole schedule");
}

// The rates of torch 1.13's schedulers, one step an epoch.
TEST(Schedule, RatesOfPyTorch) {
  const auto expect = [](const Rate& rate, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(rate.at(static_cast<std::int64_t>(i)), expected[i], 1e-9) << "step " << i;
    }
  };
  expect(cosine_lr(0.1, {.steps = 8, .min_lr = 0.01}),
         {0.1, 0.0965745789630079, 0.08681980515339463, 0.07222075445642905, 0.055, 0.03777924554357096,
          0.023180194846605363, 0.013425421036992097, 0.01});
  expect(multi_step_lr(0.1, {2, 5}, 0.5), {0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025});
  expect(exponential_lr(0.1, 0.9), {0.1, 0.09, 0.081, 0.0729});
  expect(cosine_restarts_lr(0.1, {.steps = 3, .factor = 2, .min_lr = 0.01}),
         {0.1, 0.0775, 0.0325, 0.1, 0.09397114317029975, 0.0775, 0.055, 0.0325, 0.01602885682970026, 0.1});
  expect(one_cycle_lr(0.1, {.steps = 10}),
         {0.004, 0.052, 0.1, 0.09504846320134738, 0.0811745653949763, 0.06112620219362893, 0.03887419780637107,
          0.0188258346050237, 0.004951936798652629, 4e-07, 4e-07});
  expect(linear_lr(0.1, {.steps = 4, .min_lr = 0.02}), {0.1, 0.08, 0.06, 0.04, 0.02, 0.02});
}

TEST(Schedule, WhatAScheduleLacksIsAnError) {
  EXPECT_ERROR(cosine_lr(0.1, {}), "0 steps in all");
  EXPECT_ERROR(one_cycle_lr(0.1, {}), "0 steps in all");
  EXPECT_ERROR(cosine_restarts_lr(0.1, {}), "cosine_restarts with 0 steps");
  EXPECT_ERROR(multi_step_lr(0.1, {5, 2}), "milestones are not ascending");
  EXPECT_ERROR(step_lr(0.1, 0), "a step size of 0");
}

TEST(Schedule, NegativeNumbersAreErrors) {
  EXPECT_ERROR(scheduled_lr({}, 0), "base_lr is not set");
  EXPECT_ERROR(scheduled_lr({.warmup = -1}, 0), "warm-up -1");
  EXPECT_ERROR(scheduled_lr({}, -1), "step -1");
}

}  // namespace
}  // namespace lockstep
