#include "lockstep/report/trace_summary.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono::nanoseconds;

class Summary : public testing::Test {
 protected:
  Trace trace;
  std::shared_ptr<TraceLane> compute = trace.add_lane("cpu:0", "compute 0"),
                             other = trace.add_lane("cpu:1", "compute 0"),
                             bulk = trace.add_lane("rank 0", "communicate bulk"),
                             urgent = trace.add_lane("rank 0", "communicate urgent");
  std::int64_t start = Trace::steady_ns();

  void add(TraceLane& lane, const char* name, int begin, int end) {
    lane.add(name, {.begin_ns = start + begin, .end_ns = start + end});
  }
  TraceSummary summary() { return summarize(trace, 0, INT64_MAX); }
};

TEST_F(Summary, AddsUpTimeByOperationAndByLane) {
  add(*compute, "relu", 0, 10);
  add(*compute, "conv2d", 10, 110);
  add(*other, "relu", 20, 50);
  const TraceSummary s = summary();
  ASSERT_EQ(s.operations.size(), 2u);
  EXPECT_EQ(s.operations[0].name, "conv2d");
  EXPECT_EQ(s.operations[0].total, nanoseconds(100));
  EXPECT_EQ(s.operations[1].count, 2);
  EXPECT_EQ(s.operations[1].total, nanoseconds(40));
  ASSERT_EQ(s.lanes.size(), 4u);
  EXPECT_EQ(s.lanes[0].name.device, "cpu:0");
  EXPECT_EQ(s.lanes[0].tasks, 2);
  EXPECT_EQ(s.lanes[0].busy, nanoseconds(110));
  EXPECT_EQ(s.lanes[2].tasks, 0);
  EXPECT_EQ(s.tasks, 3);
  EXPECT_FALSE(s.hidden());
}

TEST_F(Summary, CountsWhatBeginsInTheWindow) {
  add(*compute, "early", 0, 10);
  add(*compute, "in", 1'000'000, 1'000'010);
  add(*compute, "late", 2'000'000, 2'000'010);
  const std::int64_t in = trace.records()[1].begin_ns;
  const TraceSummary s = summarize(trace, in, in + 10);
  ASSERT_EQ(s.operations.size(), 1u);
  EXPECT_EQ(s.operations[0].name, "in");
}

// Communication in [50, 150) and [300, 400), of two lanes; computation in [0, 100), [80, 120) and [390, 500).
TEST_F(Summary, TellsHowMuchCommunicationWasHidden) {
  add(*compute, "a", 0, 100);
  add(*other, "b", 80, 120);
  add(*compute, "c", 390, 500);
  add(*bulk, "all-reduce", 50, 140);
  add(*urgent, "statistics", 100, 150);
  add(*bulk, "all-reduce", 300, 400);
  const TraceSummary s = summary();
  EXPECT_EQ(s.communication, nanoseconds(200));
  EXPECT_EQ(s.exposed, nanoseconds(30 + 90));
  EXPECT_DOUBLE_EQ(*s.hidden(), 0.4);
}

TEST_F(Summary, AllOrNothingMayBeHidden) {
  add(*bulk, "all-reduce", 10, 20);
  EXPECT_DOUBLE_EQ(*summary().hidden(), 0);
  add(*compute, "a", 0, 100);
  EXPECT_DOUBLE_EQ(*summary().hidden(), 1);
}

}  // namespace
}  // namespace lockstep
