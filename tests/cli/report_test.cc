// The page and the metrics that `lockstep train` writes about a run.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/cli/tool.h"
#include "tests/report/prometheus_reader.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json data_of(const std::string& html) {
  const std::string begin = "id=\"run\">";
  const std::size_t at = html.find(begin) + begin.size();
  return nlohmann::json::parse(html.substr(at, html.find("</script>", at) - at));
}

std::vector<int> steps_of(const std::string& html) {
  std::vector<int> steps;
  const nlohmann::json data = data_of(html);
  for (const auto& step : data.at("steps")) steps.push_back(step.at(0).get<int>());
  return steps;
}

ToolResult run_two_ranks(const SmallData& data, Arguments options) {
  options.insert(options.end(), {"--devices", "cpu:0"});
  Arguments ranks{"launch", "--nproc-per-node", "2", "--", LOCKSTEP_TOOL};
  const Arguments run = train_arguments(data, options);
  ranks.insert(ranks.end(), run.begin(), run.end());
  return run_tool(ranks);
}

TEST(Report, ShowsARunThatContinues) {
  const SmallData data;
  const TemporaryFolder folder;
  const Arguments run = train_arguments(data, {"--epochs", "3", "--save", folder / "run"});
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), run.begin(), run.end());
    return more;
  };
  ASSERT_EQ(run_tool(with({"--max-steps", "3"})).status, 0);
  const std::string first = folder.read("run/report.html");
  EXPECT_EQ(steps_of(first), (std::vector<int>{1, 2, 3}));
  EXPECT_THAT(first, HasSubstr("<b>0 of 3</b><span>epochs</span>"));  // the first is cut short
  const ToolResult resumed = run_tool(with({"--resume", folder / "run"}));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const std::string page = folder.read("run/report.html");
  const std::vector<int> steps = steps_of(page);
  ASSERT_GT(steps.size(), 3U);
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<int>(i) + 1);
  for (const char* part : {"finished at ", "<h2>Curves</h2>", "All 30 test examples", "Confusion matrix",
                           "Worst examples", "data:image/png;base64,iVBOR", "<h2>Timeline</h2>", "<h2>Model</h2>",
                           "<h2>Recipe</h2>", "<th>weights</th>", "cpu:0"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  // A page that is sent to others says neither where it was made nor how.
  for (const char* part : {"<h3>Command</h3>", "<th>host</th>"}) EXPECT_THAT(page, Not(HasSubstr(part)));
  // What the page shows does not change the run.
  const auto weights = [&](const Arguments& arguments) {
    EXPECT_EQ(run_tool(arguments).status, 0);
    return folder.read("w.safetensors");
  };
  const Arguments apart = train_arguments(data, {"--epochs", "3", "--export", folder / "w.safetensors"});
  const std::string expected = weights(apart);
  Arguments shown = apart;
  shown.insert(shown.end(), {"--report", folder / "elsewhere", "--report-origin"});
  EXPECT_EQ(weights(shown), expected);
  for (const char* part : {"finished at ", "<h3>Command</h3>", "<th>host</th>", " --report-origin"}) {
    EXPECT_THAT(folder.read("elsewhere/report.html"), HasSubstr(part));
  }
}

TEST(Report, ShowsTheAverageThatWasTested) {
  const SmallData data;
  const TemporaryFolder folder;
  ASSERT_EQ(run_tool(train_arguments(data, {"--average", "0.5", "--report", folder / "page"})).status, 0);
  const std::string page = folder.read("page/report.html");
  for (const char* part : {"with the average of the weights at the end", "<th>weights</th>",
                           "<th>average of the weights</th>", "<b>2 of 2</b><span>epochs</span>"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
}

// Each rank has a file of its own, and says what it sent.
TEST(Report, PrometheusReadsTheMetricsOfEachRank) {
  const SmallData data;
  const TemporaryFolder folder;
  const ToolResult result = run_two_ranks(data, {"--metrics-file", folder / "m.prom"});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const std::string rank : {"0", "1"}) {
    SCOPED_TRACE(rank);
    const PrometheusReader read(folder.read(rank == "0" ? "m.prom" : "m.rank1.prom"));
    const auto value = [&](const std::string& name, PrometheusReader::Labels labels = {}) {
      labels.emplace("rank", rank);
      const auto found = read.samples.find({name, labels});
      return found == read.samples.end() ? -1 : found->second;
    };
    EXPECT_EQ(value("lockstep_steps_total"), 8);
    EXPECT_EQ(value("lockstep_epoch"), 2);
    EXPECT_EQ(value("lockstep_examples_total"), 200);
    EXPECT_GT(value("lockstep_loss"), 0);
    EXPECT_GT(value("lockstep_images_per_second"), 0);
    EXPECT_GT(value("lockstep_test", {{"metric", "accuracy"}}), -0.5);
    EXPECT_GT(value("lockstep_waiting_seconds_total"), 0);
    EXPECT_GT(value("lockstep_link_sent_bytes_total", {{"peer", rank == "0" ? "1" : "0"}}), 0);
    EXPECT_GT(value("lockstep_lane_busy_seconds_total", {{"device", "cpu:0"}, {"lane", "compute 0"}}), 0);
    EXPECT_EQ(read.types.at("lockstep_steps_total"), "counter");
  }
  EXPECT_EQ(run_tool(train_arguments(data, {"--metrics-file", folder / "none/m.prom"})).status, 1);
}

// A run that ends before the page's timeline begins, and a rank whose metrics have no place.
TEST(Report, RankZeroWritesIt) {
  const SmallData data;
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "m.rank1.prom");
  const ToolResult result = run_two_ranks(data, {"--max-steps", "2", "--report", folder / "page", "--trace",
                                                 folder / "t.json", "--metrics-file", folder / "m.prom"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(folder.read("page/report.html"), HasSubstr("in each of 2 ranks"));
  EXPECT_THAT(folder.read("page/report.html"), HasSubstr("The first 2 steps, with the start and the tests, of rank 0"));
  EXPECT_THAT(result.err, HasSubstr("rank 1: the metrics file is not up to date: "));
}

TEST(Report, ShowsARunThatFailsAndLeavesOutWhatNobodyWants) {
  const SmallData data;
  const TemporaryFolder folder;
  const ToolResult failed = run_tool(train_arguments(data, {"--lr", "1e9", "--save", folder / "run"}));
  EXPECT_EQ(failed.status, 1);
  EXPECT_THAT(folder.read("run/report.html"), HasSubstr("<p class=\"status bad\">failed after step "));
  ASSERT_EQ(run_tool(train_arguments(data, {"--save", folder / "quiet", "--report", "none"})).status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "quiet/report.html"));
  folder.write("file", "x");
  const ToolResult refused = run_tool(train_arguments(data, {"--report", folder / "file/page"}));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("--report"));
}

TEST(Report, ShowsNumbersAndTexts) {
  const TemporaryFolder folder;
  std::string table = "x,\"a <&> \xff\",price\n", text;
  for (int i = 0; i < 80; ++i)
    table += fmt::format("{},{},{}.5\n", i * 7 % 20, i % 2 == 0 ? "red" : "b<u>e", 10 * (i * 7 % 20));
  for (int i = 0; i < 60; ++i) text += "a & b < c\n";
  folder.write("t.csv", table);
  folder.write("t.txt", text);
  ASSERT_EQ(run_tool({"train", "--data", folder / "t.csv", "--epochs", "2", "--save", folder / "numbers"}).status, 0);
  const std::string numbers = folder.read("numbers/report.html");
  EXPECT_THAT(numbers, HasSubstr("price: predictions by targets"));
  EXPECT_THAT(numbers, HasSubstr("a &lt;&amp;&gt; \uFFFD <b>"));
  EXPECT_THAT(numbers, Not(HasSubstr("Confusion")));
  // Rows have the numbers that `eval` prints: "  83.12  41: 20.5, expected 103.5".
  const ToolResult evaluated = run_tool({"eval", "--run", folder / "numbers", "--worst", "1"});
  const std::string line = lines(evaluated.out).back();
  std::smatch worst;
  ASSERT_TRUE(std::regex_match(line, worst, std::regex("  \\S+  (\\d+): .*"))) << evaluated.out << evaluated.err;
  const std::size_t at = numbers.find("<br>example " + worst[1].str() + ", error ");
  EXPECT_LT(at, numbers.find("</figure>"));
  const ToolResult trained =
      run_tool({"train", "--data", folder / "t.txt", "--model", "lstm", "--context", "8", "--width", "8", "--layers",
                "1", "--epochs", "1", "--batch-size", "8", "--report", folder / "text"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(folder.read("text/report.html"), HasSubstr("<span class=\"text\">"));
}

}  // namespace
}  // namespace lockstep
