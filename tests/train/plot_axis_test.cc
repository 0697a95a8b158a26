#include "lockstep/train/plot_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> labels(const PlotAxis& axis) {
  std::vector<std::string> labels;
  for (double tick : axis.ticks()) labels.push_back(axis.label(tick));
  return labels;
}

TEST(PlotAxis, TicksAreRoundNumbersAroundTheData) {
  EXPECT_THAT(labels(round_axis(0.7512, 0.9012, 5)), ElementsAre("0.75", "0.80", "0.85", "0.90", "0.95"));
  EXPECT_THAT(labels(round_axis(0.172, 0.95, 5)), ElementsAre("0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_THAT(labels(round_axis(-3, 12, 3)), ElementsAre("-5", "0", "5", "10", "15"));
  EXPECT_THAT(labels(round_axis(0.2, 0.3, 1)), ElementsAre("0.2", "0.3"));
  EXPECT_THAT(labels(round_axis(0, 3e9, 3)), ElementsAre("0", "1e+09", "2e+09", "3e+09"));
}

TEST(PlotAxis, AConstantHasRoomOnBothSides) {
  for (double value : {0.0, 1e-12, 0.75, -3.0, 1e30}) {
    const PlotAxis axis = round_axis(value, value, 5);
    EXPECT_LT(axis.low, value);
    EXPECT_GT(axis.high, value);
    EXPECT_GE(axis.ticks().size(), 2u);
    EXPECT_LE(axis.ticks().size(), 12u);
  }
}

TEST(PlotAxis, HoldsTheDataAndAFewTicksAtEveryScale) {
  for (double scale = 1e-9; scale < 1e9; scale *= 3.7) {
    const double low = 1.3 * scale, high = 7.9 * scale;
    const PlotAxis axis = round_axis(low, high, 5);
    EXPECT_LE(axis.low, low);
    EXPECT_GE(axis.high, high);
    EXPECT_GE(axis.position(low), 0.0);
    EXPECT_LE(axis.position(high), 1.0);
    EXPECT_GE(axis.ticks().size(), 3u) << scale;
    EXPECT_LE(axis.ticks().size(), 8u) << scale;
    EXPECT_DOUBLE_EQ(axis.ticks().front(), axis.low);
    EXPECT_NEAR(axis.position(axis.ticks().back()), 1.0, 1e-9);
  }
}

TEST(PlainNumber, HasAnExponentOnlyWhereItIsShorter) {
  EXPECT_EQ(plain_number(0.012344), "0.01234");
  EXPECT_EQ(plain_number(199300.4), "199300");
  EXPECT_EQ(plain_number(12345.6, 5), "12346");
  EXPECT_EQ(plain_number(-2.5), "-2.5");
  EXPECT_EQ(plain_number(4.822e9), "4.822e+09");
}

TEST(PlotAxis, EpochsAreWholeNumbers) {
  EXPECT_THAT(labels(count_axis(1, 3, 10)), ElementsAre("1", "2", "3"));
  EXPECT_THAT(labels(count_axis(1, 25, 10)), ElementsAre("5", "10", "15", "20", "25"));
  EXPECT_THAT(labels(count_axis(7, 7, 10)), ElementsAre("7"));
  EXPECT_DOUBLE_EQ(count_axis(7, 7, 10).position(7), 0.5);
  EXPECT_DOUBLE_EQ(count_axis(1, 25, 10).position(1), 0.0);
}

}  // namespace
}  // namespace lockstep
