// lockstep graph, and the report of a step by lockstep bench train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "tests/cli/tool.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class Graph : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(Graph, DrawsAColumnForEachDevice) {
  const std::string file = path("mlp.dot");
  const ToolResult result = run_tool({"graph", "--model", "mlp", "--devices", "cpu:0,cpu:1,cpu:2",
                                      "--threads-per-shard", "1", "--batch-size", "6", "--out", file});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string dot = read(file);
  for (const char* part : {"cluster_0", "cluster_1", "cluster_2", "<b>cpu:2</b>", "label=<sgd<br/>", "label=<tree sum>",
                           "label=<copy in>", "cross entropy backward", "reads it on another device"}) {
    EXPECT_THAT(dot, HasSubstr(part));
  }
  EXPECT_EQ(dot.find("cluster_3"), std::string::npos);
}

TEST_F(Graph, NamesWeightsAndColorsTheClippedNorm) {
  const std::string file = path("mlp.dot");
  const ToolResult result = run_tool({"graph", "--model", "mlp", "--num-devices", "1", "--batch-size", "4", "--clip",
                                      "1", "--threads-per-shard", "1", "--out", file});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string dot = read(file);
  EXPECT_THAT(dot, HasSubstr("batch 4 as 1 shard<"));
  std::map<std::string, int> products;  // by the weight
  std::string update, root;
  std::istringstream all(dot);
  for (std::string line; std::getline(all, line);) {
    std::smatch found;
    const std::regex box(R"(label=<(matmul|sgd|sqrt)(?:<br/><font[^>]*>([^<]*)</font>)?>, fillcolor="(#[0-9a-f]+)\")");
    if (!std::regex_search(line, found, box)) continue;
    if (found[1] == "matmul") ++products[found[2].str().substr(0, found[2].str().find(','))];
    if (found[1] == "sgd") update = found[3];
    if (found[1] == "sqrt") root = found[3];
  }
  EXPECT_EQ(root, update);
  EXPECT_NE(update, "");
  EXPECT_EQ(products.size(), 2U) << dot;
  EXPECT_EQ(products.count(""), 0U) << dot;
}

TEST_F(Graph, BringsALargeStepToASizeThatCanBeRead) {
  // Shards of one layer share a box; so do the layers of a deep net.
  for (const auto& [model, box] : {std::pair{"lenet", "label=<conv2d ×2<br/>"}, {"resnet18", "<b>forward</b>"}}) {
    const std::string file = path("step.dot");
    const ToolResult result = run_tool({"graph", "--model", model, "--devices", "cpu:0,cpu:1", "--threads-per-shard",
                                        "1", "--shards", "4", "--batch-size", "4", "--out", file});
    ASSERT_EQ(result.status, 0) << result.err;
    const std::string dot = read(file);
    EXPECT_THAT(dot, HasSubstr(box));
    EXPECT_LT(std::ranges::count(dot, '\n'), 400);
  }
}

TEST_F(Graph, AnSvgNeedsGraphviz) {
  const std::string file = path("mlp.svg");
  const Arguments arguments{"graph", "--model", "mlp", "--num-devices", "1", "--batch-size", "2", "--out", file};
  const ToolResult without = run_tool(arguments, {.environment = {"PATH=/nonexistent"}});
  EXPECT_EQ(without.status, 1);
  EXPECT_THAT(without.err, HasSubstr("apt-get install graphviz"));
  EXPECT_FALSE(std::filesystem::exists(file));

  if (std::system("dot -V >/dev/null 2>&1") != 0) GTEST_SKIP() << "Graphviz is not installed";
  const ToolResult result = run_tool(arguments);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(read(file), HasSubstr("</svg>"));
}

TEST_F(Graph, WritesNothingElse) {
  const ToolResult result = run_tool({"graph", "--out", path("mlp.png")});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("expected a name that ends in .dot or .svg"));
}

TEST_F(Graph, BenchTrainSaysWhereTheTimeGoes) {
  const SmallData data;
  const std::string json = path("bench.json"), timeline = path("timeline.json");
  const ToolResult result =
      run_tool({"bench",    "train",    "--model", "mlp",          "--data",  data.path(), "--num-devices",
                "2",        "--shards", "2",       "--batch-size", "20",      "--steps",   "3",
                "--rounds", "2",        "--json",  json,           "--trace", timeline});
  ASSERT_EQ(result.status, 0) << result.err;
  const nlohmann::json report = nlohmann::json::parse(read(json));
  std::map<std::string, nlohmann::json> tables;
  for (const auto& table : report["tables"]) tables[table["title"]] = table["rows"];
  double share = 0, matmuls = 0;
  for (const auto& row : tables.at("operations")) {
    share += row["% of all"].get<double>();
    if (row["operation"] == "matmul") matmuls = row["tasks a step"];
  }
  EXPECT_NEAR(share, 100, 0.5);
  EXPECT_NEAR(matmuls, 10, 4);  // 5 for each of 2 shards; a window between steps cuts some off
  for (const auto& lane : tables.at("lanes")) EXPECT_LE(lane["% busy"].get<double>(), 101);
  EXPECT_EQ(tables.at("memory, MiB").size(), 2u);
  for (const auto& row : tables.at("steps")) EXPECT_GT(row["value"].get<double>(), 0) << row["what"];
  EXPECT_GT(nlohmann::json::parse(read(timeline))["traceEvents"].size(), 100u);
}

TEST_F(Graph, Rank0AloneReportsBenchTrain) {
  const SmallData data;
  const std::string json = path("bench.json");
  const ToolResult result = run_tool({"launch", "-n",       "2",   "--",           "lockstep",  "bench",
                                      "train",  "--model",  "mlp", "--data",       data.path(), "--num-devices",
                                      "1",      "--shards", "2",   "--batch-size", "20",        "--steps",
                                      "2",      "--rounds", "1",   "--json",       json});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, testing::StartsWith("[rank 0] train on "));
  EXPECT_EQ(result.out.find("[rank 1]"), std::string::npos) << result.out;
  EXPECT_EQ(nlohmann::json::parse(read(json)).at("settings").at("ranks"), 2);
}

TEST_F(Graph, AnUnreadableTimeForSlowWaitsIsSaid) {
  const ToolResult result = run_tool({"graph", "--out", path("mlp.dot")}, {.environment = {"LOCKSTEP_SLOW_WAIT=soon"}});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("LOCKSTEP_SLOW_WAIT is \"soon\""));
}

}  // namespace
}  // namespace lockstep
