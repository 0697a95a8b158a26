#include "lockstep/engine/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
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

// The events of a timeline that holds together: lanes have names, slices of a lane do not overlap, and every arrow
// leads from the slice that it begins in to one that begins later, in another lane.
nlohmann::json sound_events(const Trace& trace) {
  std::ostringstream out;
  trace.write_json(out);
  const nlohmann::json events = nlohmann::json::parse(out.str())["traceEvents"];
  struct Slice {
    double begin, end;
  };
  std::map<int, std::string> lane_names, device_names;
  std::map<int, std::vector<Slice>> slices;  // by lane
  std::map<std::int64_t, nlohmann::json> starts, ends;
  for (const auto& event : events) {
    const std::string phase = event["ph"];
    const int lane = event["tid"];
    if (event["name"] == "process_name") device_names[event["pid"]] = event["args"]["name"];
    if (event["name"] == "thread_name") lane_names[lane] = event["args"]["name"];
    if (phase == "M") continue;
    EXPECT_TRUE(device_names.contains(event["pid"]));
    EXPECT_TRUE(lane_names.contains(lane));
    EXPECT_FALSE(event["name"].get<std::string>().empty());
    if (phase == "X") {
      const double begin = event["ts"], duration = event["dur"];
      EXPECT_GE(duration, 0);
      if (!slices[lane].empty()) {
        EXPECT_GE(begin, slices[lane].back().end - 1e-6);
      }
      slices[lane].push_back({begin, begin + duration});
    }
    if (phase == "s") {
      EXPECT_TRUE(starts.emplace(event["id"], event).second);
    }
    if (phase == "f") {
      EXPECT_TRUE(ends.emplace(event["id"], event).second);
    }
    if (phase == "C") {
      EXPECT_GE(event["args"].front().get<double>(), 0);
    }
  }
  EXPECT_EQ(starts.size(), ends.size());
  for (const auto& [id, start] : starts) {
    if (!ends.contains(id)) {
      ADD_FAILURE() << "arrow " << id << " has no end";
      continue;
    }
    const auto& end = ends.at(id);
    const double from = start["ts"], to = end["ts"];
    EXPECT_LE(from, to);
    EXPECT_NE(start["tid"], end["tid"]);
    EXPECT_EQ(end["bp"], "e");
    EXPECT_TRUE(std::ranges::any_of(slices[start["tid"]], [&](Slice s) { return s.begin <= from && from <= s.end; }));
    EXPECT_TRUE(std::ranges::any_of(slices[end["tid"]], [&](Slice s) { return s.begin == to; }));
  }
  return events;
}

std::vector<nlohmann::json> of_phase(const nlohmann::json& events, const std::string& phase) {
  std::vector<nlohmann::json> found;
  std::ranges::copy_if(events, std::back_inserter(found), [&](const auto& event) { return event["ph"] == phase; });
  return found;
}

TEST(Trace, WritesChromeTraceEvents) {
  Trace trace;
  const auto first = trace.add_lane("cpu:0", "compute 0");
  const auto second = trace.add_lane("cpu:1", "compute 0");
  const auto third = trace.add_lane("cpu:0", "copy \"in\"\n\\");
  const std::int64_t now = Trace::steady_ns();
  first->add("relu", {.begin_ns = now + 1'000'000, .end_ns = now + 1'002'500});
  third->add("a \"quoted\"\tname", {.begin_ns = now + 2'000'000, .end_ns = now + 2'000'000});

  const nlohmann::json events = sound_events(trace);
  std::vector<std::string> devices, lanes;
  for (const auto& event : events) {
    if (event["name"] == "process_name") devices.push_back(event["args"]["name"]);
    if (event["name"] == "thread_name") lanes.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(devices, ElementsAre("cpu:0", "cpu:1"));
  EXPECT_THAT(lanes, ElementsAre("compute 0", "compute 0", "copy \"in\"\n\\"));
  const auto tasks = of_phase(events, "X");
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0]["name"], "relu");
  EXPECT_EQ(tasks[1]["name"], "a \"quoted\"\tname");
  EXPECT_DOUBLE_EQ(tasks[0]["dur"], 2.5);
  EXPECT_NEAR(tasks[1]["ts"].get<double>() - tasks[0]["ts"].get<double>(), 1000, 0.01);
  EXPECT_EQ(tasks[0]["pid"], tasks[1]["pid"]);
  EXPECT_NE(tasks[0]["tid"], tasks[1]["tid"]);
}

// Two lanes, of which the first one is held until the second has its task.
class TracedLanes : public testing::Test {
 protected:
  Engine engine;
  std::shared_ptr<std::atomic<std::int64_t>> bytes = std::make_shared<std::atomic<std::int64_t>>(4096);
  LaneId a = engine.add_lane({.name = "compute 0", .device = "cpu:0", .device_bytes = bytes});
  LaneId b = engine.add_lane({.name = "compute 0", .device = "cpu:1"});
  std::shared_ptr<Trace> trace = std::make_shared<Trace>();
  std::promise<void> go;

  void SetUp() override { engine.set_trace(trace); }
  void push_held(const char* name, const Resource& writes) {
    engine.push({.name = name, .lane = a, .writes = {writes}, .run = [this](Context) { go.get_future().wait(); }});
  }
  TraceRecord record(const std::string& name) {
    for (const TraceRecord& record : trace->records()) {
      if (record.name == name) return record;
    }
    fail("{} is not recorded", name);
  }
};

TEST_F(TracedLanes, AnArrowLeadsToATaskFromTheOneThatHeldItUp) {
  const Resource x = engine.make_resource();
  push_held("source", x);
  engine.push({.name = "user", .lane = b, .reads = {x}, .run = [](Context) {}});
  engine.push({.name = "next", .lane = b, .run = [](Context) {}});
  go.set_value();
  engine.wait_all();

  EXPECT_EQ(record("user").waited_for, record("source").order);
  EXPECT_EQ(record("next").waited_for, -1);  // its own lane is no arrow
  const nlohmann::json events = sound_events(*trace);
  const auto starts = of_phase(events, "s"), ends = of_phase(events, "f");
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0]["tid"], a.index);
  EXPECT_EQ(ends[0]["tid"], b.index);
  EXPECT_NE(starts[0]["pid"], ends[0]["pid"]);
}

TEST_F(TracedLanes, AnArrowLeadsThroughReusedMemory) {
  const Resource x = engine.make_resource();
  push_held("old user", x);
  const Resource fresh = engine.make_successor(engine.make_successor(x));
  engine.push({.name = "new user", .lane = b, .writes = {fresh}, .run = [](Context) {}});
  go.set_value();
  engine.wait_all();
  EXPECT_EQ(record("new user").waited_for, record("old user").order);
  EXPECT_EQ(of_phase(sound_events(*trace), "s").size(), 1u);
}

TEST_F(TracedLanes, CountsQueuedTasksAndBytesInUse) {
  const Resource x = engine.make_resource();
  push_held("first", x);
  for (int i = 0; i < 3; ++i) engine.push({.name = "t", .lane = a, .run = [](Context) {}});
  go.set_value();
  engine.wait_all();
  *bytes = 8192;
  engine.push({.name = "last", .lane = a, .run = [](Context) {}});
  engine.wait_all();

  std::vector<double> queue, memory;
  for (const auto& event : of_phase(sound_events(*trace), "C")) {
    if (event["name"] == "queue of compute 0") queue.push_back(event["args"]["tasks"]);
    if (event["name"] == "memory in use") memory.push_back(event["args"]["bytes"]);
  }
  // The first one began as soon as it was pushed.
  EXPECT_THAT(queue, ElementsAre(1, 3, 2, 1, 0, 1, 0));
  EXPECT_THAT(memory, ElementsAre(4096, 8192));
}

TEST(Trace, KeepsTheLatestRecordsOfALane) {
  Trace trace({.records_per_lane = 4});
  const auto full = trace.add_lane("cpu:0", "compute 0");
  const auto quiet = trace.add_lane("cpu:0", "copy in");
  const std::int64_t now = Trace::steady_ns();
  const auto add = [&](TraceLane& lane, const char* name, int at) {
    lane.add(name, {.begin_ns = now + at, .end_ns = now + at + 1});
  };
  add(*quiet, "early", 0);
  for (int i = 10; i < 20; ++i) add(*full, std::to_string(i).c_str(), i);
  add(*quiet, "late", 30);
  std::vector<std::string> names;
  for (const TraceRecord& record : trace.records()) names.push_back(record.name);
  // Without "early": what the full lane did then is lost.
  EXPECT_THAT(names, ElementsAre("16", "17", "18", "19", "late"));
  EXPECT_THROW(Trace({.records_per_lane = 0}), Error);
}

TEST(Trace, OfARandomProgramHoldsTogether) {
  for (int seed = 0; seed < 20; ++seed) {
    Engine engine;
    std::mt19937 random(seed);
    std::vector<LaneId> lanes;
    for (int i = 0; i < 4; ++i) {
      lanes.push_back(engine.add_lane({.name = std::to_string(i), .device = "cpu:" + std::to_string(i / 2)}));
    }
    const auto trace = std::make_shared<Trace>(TraceOptions{.records_per_lane = 40});
    engine.set_trace(trace);
    std::vector<Resource> resources(5);
    for (Resource& resource : resources) resource = engine.make_resource();
    for (int i = 0; i < 200; ++i) {
      engine.push({.name = "task",
                   .lane = lanes[random() % 4],
                   .reads = {resources[random() % 5]},
                   .writes = {resources[random() % 5]},
                   .run = [](Context) {}});
    }
    engine.wait_all();
    EXPECT_GT(of_phase(sound_events(*trace), "X").size(), 40u);
  }
}

TEST(Trace, AnEmptyTraceIsValid) {
  std::ostringstream out;
  Trace().write_json(out);
  EXPECT_TRUE(nlohmann::json::parse(out.str())["traceEvents"].empty());
}

}  // namespace
}  // namespace lockstep
