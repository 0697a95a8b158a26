#include "lockstep/train/rate_meter.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// Ten samples a second, of which the host hears two steps at a time.
TEST(RateMeter, BurstsDoNotShow) {
  RateMeter meter;
  meter.start(100);
  for (int burst = 1; burst <= 20; ++burst) {
    const double time = 100 + 2.0 * burst;
    EXPECT_NEAR(meter.add(time, 10), burst == 1 ? 5 : 10, 3);
    EXPECT_NEAR(meter.add(time + 1e-6, 10), 10, 1e-3);
  }
}

TEST(RateMeter, FollowsAChange) {
  RateMeter meter;
  meter.start(0);
  double time = 0, rate = 0;
  for (int i = 0; i < 20; ++i) rate = meter.add(time += 1, 10);
  EXPECT_DOUBLE_EQ(rate, 10);
  for (int i = 0; i < 8; ++i) rate = meter.add(time += 0.5, 10);
  EXPECT_DOUBLE_EQ(rate, 20);
}

TEST(RateMeter, PausesDoNotCount) {
  RateMeter meter;
  meter.start(0);
  EXPECT_DOUBLE_EQ(meter.add(1, 10), 10);
  meter.stop(1.5);
  meter.start(50);
  EXPECT_DOUBLE_EQ(meter.add(50.5, 10), 10);
}

}  // namespace
}  // namespace lockstep
