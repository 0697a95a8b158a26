
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

TEST(Schedule, NegativeNumbersAreErrors) {
  EXPECT_ERROR(scheduled_lr({}, 0), "base_lr is not set");
  EXPECT_ERROR(scheduled_lr({.warmup = -1}, 0), "warm-up -1");
  EXPECT_ERROR(scheduled_lr({}, -1), "step -1");
}

}  // namespace
}  // namespace lockstep
