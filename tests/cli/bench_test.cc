// The output of `bench`. No test checks a time: machines differ, and this one may be busy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/cli/tool.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Bench : public ::testing::Test {
 protected:
  // The output of a run that must succeed. `notice` is a part of what it writes to standard error; empty: nothing.
  json run(const Arguments& more, const std::string& notice = "") {
    const std::filesystem::path file = folder_ / "bench.json";
    Arguments all{"bench"};
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), {"--rounds", "3", "--json", file});
    const ToolResult result = run_tool(all);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err.empty(), notice.empty()) << result.err;
    EXPECT_THAT(result.err, HasSubstr(notice));
    printed_ = result.out;
    return json::parse(folder_.read("bench.json"));
  }

  // Checks that parts, sum, longest, and together are consistent, and that all were printed.
  void expect_parts(const json& table, const std::vector<std::string>& parts) {
    EXPECT_THAT(printed_, HasSubstr(table.at("title").get<std::string>()));
    ASSERT_EQ(table.at("rows").size(), 2u);
    EXPECT_EQ(table["rows"][0]["engine"], "threaded");
    EXPECT_EQ(table["rows"][1]["engine"], "serial");
    for (const json& row : table["rows"]) {
      double sum = 0, longest = 0;
      for (const std::string& part : parts) {
        const double ms = row.at(part + " ms");
        EXPECT_GT(ms, 0);
        EXPECT_THAT(printed_, HasSubstr(part + " ms"));
        sum += ms;
        longest = std::max(longest, ms);
      }
      const double together = row.at("together ms");
      EXPECT_EQ(row.size(), parts.size() + 6);
      EXPECT_NEAR(row.at("sum ms"), sum, 1e-4 * sum);
      EXPECT_NEAR(row.at("longest ms"), longest, 1e-4 * longest);
      EXPECT_NEAR(row.at("together / longest"), together / longest, 1e-3 * together / longest);
      EXPECT_NEAR(row.at("hidden"), (sum - together) / (sum - longest), 1e-3 * sum / (sum - longest));
    }
  }

  TemporaryFolder folder_;
  std::string printed_;
};

TEST_F(Bench, ParallelTimesTwoDevicesAloneAndTogether) {
  const json result = run({"parallel", "--size", "32", "--count", "5"});
  EXPECT_EQ(result.at("benchmark"), "parallel");
  EXPECT_GT(result.at("machine").at("cores"), 0);
  EXPECT_EQ(result.at("settings").at("experiment"), "independent");
  ASSERT_EQ(result.at("tables").size(), 1u);
  EXPECT_EQ(result["tables"][0]["title"], "2 devices of 1 core; on each 5 products of 32 x 32");
  expect_parts(result["tables"][0], {"cpu:0", "cpu:1"});
  // The rounds of each part and of the whole, for each engine.
  ASSERT_EQ(result.at("rounds").size(), 2u);
  for (const json& parts : result["rounds"]) {
    ASSERT_EQ(parts.size(), 3u);
    for (const json& rounds : parts) EXPECT_EQ(rounds.size(), 3u);
  }
}

TEST_F(Bench, ThreeWayAddsTheCopiesBetweenThem) {
  const json result = run({"parallel", "--experiment", "three-way", "--size", "16", "--count", "4", "--copies", "3"});
  ASSERT_EQ(result.at("tables").size(), 1u);
  expect_parts(result["tables"][0], {"cpu:0", "cpu:1", "copies"});
  EXPECT_THAT(printed_, HasSubstr("each result copied to the other 3 times"));
}

TEST_F(Bench, OverlapTimesProductsAndCopies) {
  const json result = run({"overlap", "--size", "16", "--count", "4", "--copies", "2"});
  ASSERT_GE(result.at("tables").size(), 1u);
  const json& last = result["tables"].back();  // as many devices as there are cores
  std::vector<std::string> parts;
  for (int d = 0; d < result.at("machine").at("cores"); ++d) parts.push_back("cpu:" + std::to_string(d));
  parts.push_back("copies");
  expect_parts(last, parts);
  if (result["tables"].size() == 2) expect_parts(result["tables"][0], {"cpu:0", "copies"});
  EXPECT_THAT(result.at("notes").back(), HasSubstr("If every core computes"));
}

TEST_F(Bench, LatencyIsThatOfOneThreadAndOfFour) {
  const json result = run({"latency", "--model", "mlp", "--calls", "8"});
  ASSERT_EQ(result.at("tables").size(), 1u);
  const json& rows = result["tables"][0].at("rows");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("calling threads"), 1);
  EXPECT_EQ(rows[1].at("calling threads"), 4);
  for (const json& row : rows) EXPECT_LE(row.at("median, ms"), row.at("99th percentile, ms"));
}

TEST_F(Bench, LatencyOfAGptIsThatOfTextsWithAndWithoutItsCache) {
  const json result = run({"latency", "--model", "gpt"});
  ASSERT_EQ(result.at("tables").size(), 1u);
  const json& rows = result["tables"][0].at("rows");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("tokens of a text"), 32);
  EXPECT_EQ(rows[1].at("tokens of a text"), 255);
  for (const json& row : rows) {
    EXPECT_GT(row.at("tokens/s"), 0);
    EXPECT_GT(row.at("tokens/s without cache"), 0);
  }
}

// Without a GPU, the tool says so.
TEST_F(Bench, OnGpusPinnedAndPageableMemoryAreSideBySide) {
  const Arguments arguments{"overlap", "--devices", "cuda:0", "--size", "16", "--count", "4", "--copies", "2"};
  Arguments all{"bench"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  if (const ToolResult result = run_tool(all); result.status != 0) {
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("cuda:0 requested, but there is no GPU"));
    return;
  }
  const json result = run(arguments);
  ASSERT_EQ(result.at("tables").size(), 2u);
  for (const char* memory : {"pinned", "pageable"}) {
    const json& table = result["tables"][memory == std::string("pinned") ? 0 : 1];
    EXPECT_EQ(table.at("title"),
              std::string("cuda:0, ") + memory +
                  " host memory; on each 4 products of 16 x 16, each result copied to the host 2 times");
    expect_parts(table, {"cuda:0", "copies"});
  }
  run({"parallel", "--devices", "cuda:0/0,cuda:0/1", "--size", "16", "--count", "4"});
  EXPECT_THAT(printed_, HasSubstr("Logical devices of one GPU share it"));
  for (const std::string experiment : {"three-way", "dag"}) {
    Arguments mixed_devices{"parallel", "--experiment", experiment, "--devices", "cpu:0,cuda:0",
                            "--size",   "16",           "--count",  "4"};
    if (experiment == "three-way") mixed_devices.insert(mixed_devices.end(), {"--copies", "2"});
    const json mixed = run(mixed_devices);
    EXPECT_THAT(mixed.at("tables").at(0).at("title"), HasSubstr("cpu:0,cuda:0"));
  }
}

TEST_F(Bench, ChoosesCountsAndCopiesItself) {
  const auto title = [&](const Arguments& arguments) {
    return run(arguments).at("tables").back().at("title").get<std::string>();
  };
  EXPECT_THAT(title({"overlap", "--size", "64", "--count", "10"}),
              ::testing::ContainsRegex("10 products of 64 x 64, each result copied to the host [1-9][0-9]* times?$"));
  EXPECT_THAT(title({"parallel", "--size", "384"}),
              ::testing::ContainsRegex("each [1-9][0-9]+ products of 384 x 384$"));
}

std::vector<std::string> engines(const json& table) {
  std::vector<std::string> names;
  for (const json& row : table.at("rows")) {
    EXPECT_GT(row.at("ms"), 0);
    EXPECT_GT(row.at("speed-up"), 0);
    names.push_back(row.at("engine"));
  }
  EXPECT_EQ(table["rows"][0]["speed-up"], 1);
  return names;
}

TEST_F(Bench, SmallOperationsRunOnOneLaneAndOnAll) {
  const json result = run({"parallel", "--experiment", "small-ops", "--size", "8", "--count", "6"});
  const std::vector<std::string> names = engines(result.at("tables").at(0));
  ASSERT_EQ(names.size(), 3u);
  EXPECT_THAT(names[2], ::testing::ContainsRegex("^[1-9][0-9]* lanes?, chosen by the engine$"));
}

TEST_F(Bench, ARandomGraphRunsOnBothEngines) {
  const json result = run({"parallel", "--experiment", "dag", "--size", "8", "--count", "30"});
  EXPECT_THAT(engines(result.at("tables").at(0)), ElementsAre("serial engine", "threaded engine"));
  EXPECT_THAT(result["tables"][0]["title"], HasSubstr("of 90 edges between the devices"));
  EXPECT_THAT(result.at("notes").at(0), HasSubstr("The graph allows "));
}

TEST_F(Bench, TheTimelineHasTheTasksOfOneRun) {
  for (const Arguments& experiment : {Arguments{"overlap", "--copies", "2"}, Arguments{"parallel"},
                                      Arguments{"parallel", "--experiment", "three-way", "--copies", "2"}}) {
    Arguments all = experiment;
    all.insert(all.end(), {"--size", "16", "--count", "4", "--trace", folder_ / "trace.json"});
    run(all);
    const int devices = experiment[0] == "parallel" ? 2 : 1;
    int products = 0;
    const json trace = json::parse(folder_.read("trace.json"));
    for (const json& event : trace.at("traceEvents")) {
      products += event.at("ph") == "X" && event.at("name") == "matmul";
    }
    EXPECT_EQ(products, 4 * devices);
  }
}

TEST_F(Bench, EngineTellsWhatATaskCostsBesideAHandOver) {
  const json result = run({"engine", "--tasks", "1000", "--hand-overs", "100"});
  ASSERT_EQ(result.at("tables").size(), 2u);
  EXPECT_EQ(result["tables"][0]["rows"].size(), 6u);
  EXPECT_EQ(result["tables"][1]["rows"].size(), 2u);
  for (const json& table : result["tables"]) {
    for (const json& row : table["rows"]) {
      EXPECT_GT(row.at("wall us"), 0);
      EXPECT_GE(row.at("cpu us"), 0);
      EXPECT_THAT(printed_, HasSubstr(row.at("what").get<std::string>()));
    }
  }
}

TEST_F(Bench, KernelsListsTheCallsOfATrainingStep) {
  const json result = run({"kernels", "--model", "lenet", "--batch-size", "4"});
  std::map<std::string, int> calls;
  for (const json& row : result.at("tables").at(0).at("rows")) {
    const std::string name = row.at("kernel");
    EXPECT_THAT(printed_, HasSubstr(name));
    calls[name] += row.at("calls a step").get<int>();
    EXPECT_GT(row.at("ms a call"), 0) << name;
    if (row.at("GFLOP/s") != "-") {
      EXPECT_GT(row.at("GFLOP/s"), 0) << name;
    }
  }
  // Each layer once in each pass. The first one has no gradient of its data.
  const std::map<std::string, int> expected{{"conv2d forward [4, 1, 28, 28] 5x5 -> 6", 1},
                                            {"conv2d backward weights [4, 1, 28, 28] 5x5 -> 6", 1},
                                            {"weights of conv2d forward [4, 1, 28, 28] 5x5 -> 6", 1},
                                            {"weights of conv2d forward [4, 6, 14, 14] 5x5 -> 16", 1},
                                            {"weights of conv2d backward data [4, 6, 14, 14] 5x5 -> 16", 1},
                                            {"conv2d forward [4, 6, 14, 14] 5x5 -> 16", 1},
                                            {"conv2d backward data [4, 6, 14, 14] 5x5 -> 16", 1},
                                            {"conv2d backward weights [4, 6, 14, 14] 5x5 -> 16", 1},
                                            {"matmul [4, 400] x [120, 400]^T", 1},
                                            {"matmul [4, 120] x [120, 400]", 1},
                                            {"matmul [4, 120]^T x [4, 400]", 1},
                                            {"matmul [4, 120] x [84, 120]^T", 1},
                                            {"matmul [4, 84] x [84, 120]", 1},
                                            {"matmul [4, 84]^T x [4, 120]", 1},
                                            {"matmul [4, 84] x [10, 84]^T", 1},
                                            {"matmul [4, 10] x [10, 84]", 1},
                                            {"matmul [4, 10]^T x [4, 84]", 1}};
  EXPECT_EQ(calls, expected);
}

// oneDNN is measured beside f32 alone.
TEST_F(Bench, KernelsMeasuresOtherTypesAndProductsOfManyMatrices) {
  for (const Arguments& more : {Arguments{"--model", "lenet", "--dtype", "f16"},
                                Arguments{"--model", "gpt", "--layers", "1", "--width", "16", "--context", "8"}}) {
    Arguments all{"kernels", "--batch-size", "2"};
    all.insert(all.end(), more.begin(), more.end());
    const bool half = more.back() == "f16";
    const json result = run(all, half ? "CPUs compute f16 in f32" : "");
    EXPECT_EQ(result.at("settings").at("dtype"), half ? "f16" : "f32");
    const json& rows = result.at("tables").at(0).at("rows");
    EXPECT_GE(rows.size(), 10u);
    for (const json& row : rows) {
      EXPECT_GT(row.at("ms a call"), 0) << row;
      if (half) {
        EXPECT_EQ(row.at("oneDNN GFLOP/s"), "-") << row;
      }
      EXPECT_FALSE(result.at("rounds").at(row.at("kernel").get<std::string>()).empty());
    }
  }
}

TEST(BenchUsage, UnusableArgumentsEndWithStatus2) {
  for (const auto& [arguments, part] : std::vector<std::pair<Arguments, std::string>>{
           {{}, "expected a benchmark"},
           {{"fly"}, "fly"},
           {{"parallel", "--experiment", "juggling"}, "juggling"},
           {{"parallel", "--size", "0"}, "--size"},
           {{"parallel", "--count", "-1"}, "--count"},
           {{"overlap", "--copies", "0"}, "--copies"},
           {{"overlap", "--cores-per-device", "4096"}, "--cores-per-device 4096"},
           {{"parallel", "--cores-per-device", "4096"}, "--cores-per-device 4096"},
           {{"parallel", "--devices", "cpu:0"}, "--devices cpu:0 is one device"},
           {{"parallel", "--experiment", "dag", "--devices", "cpu:0,cpu:1,cpu:2"}, "names 3 devices, expected 2"},
           {{"parallel", "--experiment", "small-ops", "--devices", "cpu:0"}, "--devices"},
           {{"parallel", "--experiment", "small-ops", "--cores-per-device", "2"}, "takes no --cores-per-device"},
           {{"parallel", "--copies", "2"}, "--copies: only with --experiment three-way, not independent"},
           {{"train", "--bogus", "5"}, "not expected: --bogus 5 (see lockstep bench train --help)"},
           {{"overlap", "--devices", "gpu:0"}, "unknown device 'gpu:0'"},
           {{"kernels", "--model", "alexnet"}, "--model"},
           {{"kernels", "--batch-size", "0"}, "--batch-size"},
           {{"kernels", "--tf32"}, "--tf32"},
           {{"latency", "--model", "alexnet"}, "--model"},
           {{"engine", "--tasks", "0"}, "--tasks"},
           {{"engine", "--rounds", "0"}, "--rounds"},
           {{"train", "--model", "mlp", "--devices", "cpu", "--num-devices", "3", "--shards", "2"}, "--shards 2 for 3"},
       }) {
    SCOPED_TRACE(::testing::PrintToString(arguments));
    Arguments all{"bench"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ToolResult result = run_tool(all);
    EXPECT_EQ(result.status, 2) << result.out;
    EXPECT_EQ(result.out, "");  // no title: nothing is measured
    EXPECT_THAT(result.err, ::testing::StartsWith("lockstep: "));
    EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1);
  }
}

TEST(BenchUsage, AFileThatCannotBeWrittenIsNoticedBeforeMeasuring) {
  const ToolResult result = run_tool({"bench", "engine", "--json", "/no/such/folder/file"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("/no/such/folder/file"));
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace lockstep
