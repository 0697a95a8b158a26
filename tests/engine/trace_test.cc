#include "lockstep/engine/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/engine/engine.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using Context = const TaskContext&;

TEST(Trace, RecordsTasksWhileItIsSet) {
  Engine engine;
  const LaneId a = engine.add_lane({.name = "compute 0", .device = "cpu:0"});
  const auto push = [&](const char* name) { engine.push({.name = name, .lane = a, .run = [](Context) {}}); };
  const auto trace = std::make_shared<Trace>();
  push("before");
  engine.wait_all();
  engine.set_trace(trace);
  push("one");
  const LaneId b = engine.add_lane({.name = "copy in", .device = "cpu:0"});
  engine.wait_all();
  engine.push({.name = "two", .lane = b, .run = [](Context) { fail("bad"); }});
  EXPECT_THROW(engine.wait_all(), TaskError);
  engine.set_trace(nullptr);
  push("after");
  engine.wait_all();

  const std::vector<TraceRecord> records = trace->records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].name, "one");
  EXPECT_EQ(records[0].lane, a.index);
  EXPECT_EQ(records[1].name, "two");
  EXPECT_EQ(records[1].lane, b.index);
  EXPECT_LE(0, records[0].begin_ns);
  EXPECT_LE(records[0].begin_ns, records[0].end_ns);
  EXPECT_LE(records[0].end_ns, records[1].begin_ns);
}

TEST(Trace, DoesNotRecordSkippedTasks) {
  Engine engine({.serial = true});
  const LaneId a = engine.add_lane({.name = "a"});
  const Resource x = engine.make_resource();
  const auto trace = std::make_shared<Trace>();
  engine.set_trace(trace);
  engine.push({.name = "bad", .lane = a, .writes = {x}, .run = [](Context) { fail("bad"); }});
  engine.push({.name = "skipped", .lane = a, .reads = {x}, .run = [](Context) {}});
  ASSERT_EQ(trace->records().size(), 1u);
  EXPECT_EQ(trace->records()[0].name, "bad");
}

TEST(Trace, WritesChromeTraceEvents) {
  Trace trace;
  const auto first = trace.add_lane("cpu:0", "compute 0");
  const auto second = trace.add_lane("cpu:1", "compute 0");
  const auto third = trace.add_lane("cpu:0", "copy \"in\"\n\\");
  const std::int64_t now = Trace::steady_ns();
  first->add("relu", now + 1'000'000, now + 1'002'500);
  third->add("a \"quoted\"\tname", now + 2'000'000, now + 2'000'000);
  std::ostringstream out;
  trace.write_json(out);

  const nlohmann::json events = nlohmann::json::parse(out.str())["traceEvents"];
  std::vector<std::string> devices, lanes, tasks;
  for (const auto& event : events) {
    if (event["name"] == "process_name") devices.push_back(event["args"]["name"]);
    if (event["name"] == "thread_name") lanes.push_back(event["args"]["name"]);
    if (event["ph"] == "X") tasks.push_back(event["name"]);
  }
  EXPECT_THAT(devices, ElementsAre("cpu:0", "cpu:1"));
  EXPECT_THAT(lanes, ElementsAre("compute 0", "compute 0", "copy \"in\"\n\\"));
  EXPECT_THAT(tasks, ElementsAre("relu", "a \"quoted\"\tname"));
  const auto& relu = events[events.size() - 2];
  const auto& other = events[events.size() - 1];
  EXPECT_DOUBLE_EQ(relu["dur"], 2.5);
  EXPECT_NEAR(other["ts"].get<double>() - relu["ts"].get<double>(), 1000, 0.01);
  EXPECT_EQ(relu["pid"], other["pid"]);
  EXPECT_NE(relu["tid"], other["tid"]);
}

TEST(Trace, AnEmptyTraceIsValid) {
  std::ostringstream out;
  Trace().write_json(out);
  EXPECT_TRUE(nlohmann::json::parse(out.str())["traceEvents"].empty());
}

}  // namespace
}  // namespace lockstep
