// Why does nothing move? Waits that take too long say which tasks wait for what, and go on.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/engine/engine.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Context = const TaskContext&;

// An engine whose first task is held until so many reports have come.
class SlowWait : public testing::Test {
 protected:
  static constexpr int kReports = 3;

  std::promise<void> go;
  std::vector<std::chrono::nanoseconds> waited;
  std::vector<std::string> reports;
  Engine engine{{.max_pending_tasks = 2, .slow_wait = 2ms, .on_slow_wait = [this](auto time, const auto& report) {
                   waited.push_back(time);
                   reports.push_back(report);
                   if (reports.size() == kReports) go.set_value();
                   if (reports.size() % 2) fail("not heard");
                 }}};
  LaneId a = engine.add_lane({.name = "a"}), b = engine.add_lane({.name = "b"});
  Resource x = engine.make_resource(), y = engine.make_resource();

  void push_held() {
    engine.push({.name = "held", .lane = a, .writes = {x}, .run = [this](Context) { go.get_future().wait(); }});
  }
};

TEST_F(SlowWait, ReportsWhoWaitsForWhatAndGoesOn) {
  push_held();
  engine.push({.name = "next", .lane = b, .reads = {x}, .writes = {y}, .run = [](Context) {}});
  engine.wait_readable(y);
  ASSERT_GE(reports.size(), std::size_t{kReports});  // one more where the machine is busy with something else
  waited.resize(kReports);
  reports.resize(kReports);
  for (const std::string& report : reports) {
    EXPECT_EQ(report, "a: held is running or about to run\nb: next waits for held on a\n");
  }
  EXPECT_EQ(waited, (std::vector<std::chrono::nanoseconds>{2ms, 4ms, 8ms}));
}

TEST_F(SlowWait, AlsoWhereThePusherWaitsForRoom) {
  push_held();
  for (int i = 0; i < 4; ++i) engine.push({.name = "t", .lane = a, .run = [](Context) {}});
  EXPECT_GE(reports.size(), std::size_t{kReports});
  EXPECT_EQ(reports[0], "a: held is running or about to run; then t\n");
  engine.wait_all();
}

// Longer than a busy machine keeps a thread waiting for a core.
TEST(FastWaits, ReportNothing) {
  int reports = 0;
  Engine engine({.slow_wait = 20s, .on_slow_wait = [&](auto, const auto&) { ++reports; }});
  const LaneId lane = engine.add_lane({.name = "a"});
  const Resource x = engine.make_resource();
  for (int i = 0; i < 200; ++i) {
    engine.push({.name = "t", .lane = lane, .writes = {x}, .run = [](Context) {}});
    engine.wait_readable(x);
  }
  EXPECT_EQ(reports, 0);
}

}  // namespace
}  // namespace lockstep
