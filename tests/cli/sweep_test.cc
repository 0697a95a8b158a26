// Runs with several values of options, each once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/train_testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class Sweep : public Train {
 protected:
  ToolResult sweep(const Arguments& options, const Arguments& more = {}) {
    Arguments all{"sweep", "--results", folder_ / "results"};
    all.insert(all.end(), options.begin(), options.end());
    all.emplace_back("--");
    const Arguments train = train_arguments(data_, more);
    all.insert(all.end(), train.begin(), train.end());
    return run_tool(all);
  }
};

TEST_F(Sweep, NoRecipeRunsTwice) {
  const ToolResult first = sweep({"--lr", "0.5,0.0001", "--momentum", "0,0.0"});
  ASSERT_EQ(first.status, 0) << first.err << first.out;
  EXPECT_THAT(first.out, HasSubstr("4 runs; results in "));
  EXPECT_THAT(first.out, HasSubstr("\nbest: lr 0.5, momentum 0\n"));
  int folders = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_ / "results")) ++folders;
  EXPECT_EQ(folders, 2);
  const ToolResult again = sweep({"--lr", "0.5,0.0001"});
  EXPECT_THAT(again.out, HasSubstr("lr 0.5: known: accuracy "));
  EXPECT_THAT(again.out, HasSubstr("lr 0.0001: known: accuracy "));
}

// Other devices, and another path of the same data, do not make another.
TEST_F(Sweep, AnotherMeasurementIsAnotherRun) {
  const auto run_of = [&](const Arguments& more) {
    Arguments all{"--dry-run"};
    all.insert(all.end(), more.begin(), more.end());
    const ToolResult result = train(all);
    return result.status == 0 ? lines(result.out).back() : result.err;
  };
  const std::string run = run_of({});
  EXPECT_TRUE(run.starts_with("run ")) << run;
  EXPECT_EQ(run_of({"--num-devices", "2", "--workers", "2", "--data", data_.path() + "/."}), run);
  for (const Arguments& other :
       {Arguments{"--limit-test", "5"}, Arguments{"--metrics", "perplexity"}, Arguments{"--epochs", "3"}}) {
    EXPECT_NE(run_of(other), run) << other.front();
  }
}

// The metric of the best epoch decides what is in the folder best.
TEST_F(Sweep, AnotherBestIsAnotherRun) {
  const ToolResult result = sweep({"--watch", "accuracy,train_loss"}, {"--save-best"});
  ASSERT_EQ(result.status, 0) << result.err << result.out;
  const std::filesystem::directory_iterator folders(folder_ / "results");
  EXPECT_EQ(std::distance(begin(folders), end(folders)), 2);
}

// `predict` takes the checkpoint in the folder best.
TEST_F(Sweep, ARunWithABestEpochHasItsResults) {
  ASSERT_EQ(sweep({"--lr", "0.1"}, {"--save-best", "--min-delta", "1000"}).status, 0);
  const auto run = std::filesystem::directory_iterator(folder_ / "results")->path();
  const auto result = nlohmann::json::parse(std::ifstream(run / "result.json"));
  const auto epochs = events(run / "log.jsonl", "epoch");
  ASSERT_EQ(epochs.size(), 2U);
  EXPECT_NE(epochs[0].at("train_loss"), epochs[1].at("train_loss"));
  EXPECT_EQ(result.at("train_loss"), epochs[0].at("train_loss"));
  EXPECT_EQ(result.at("metrics").at("accuracy"), epochs[0].at("test_acc"));
}

TEST_F(Sweep, AFalseFlagReplacesThatOfTheConfig) {
  folder_.write("run.toml", "drop-last = true\n");
  const ToolResult result = sweep({"--drop-last", "true,false"}, {"--config", folder_ / "run.toml"});
  ASSERT_EQ(result.status, 0) << result.err << result.out;
  const std::filesystem::directory_iterator folders(folder_ / "results");
  EXPECT_EQ(std::distance(begin(folders), end(folders)), 2);
}

TEST_F(Sweep, MayLeaveOutThePages) {
  ASSERT_EQ(sweep({"--lr", "0.1"}, {"--report", "none"}).status, 0);
  const auto run = std::filesystem::directory_iterator(folder_ / "results")->path();
  EXPECT_TRUE(std::filesystem::exists(run / "result.json"));
  EXPECT_FALSE(std::filesystem::exists(run / "report.html"));
}

TEST_F(Sweep, ARunThatWasKilledGoesOn) {
  ASSERT_EQ(sweep({"--lr", "0.1"}, {"--save-every", "3"}).status, 0);
  const auto run = std::filesystem::directory_iterator(folder_ / "results")->path();
  std::filesystem::remove(run / "result.json");
  ASSERT_EQ(sweep({"--lr", "0.1"}).status, 0);
  std::ifstream output(run / "output.txt");
  const std::string text{std::istreambuf_iterator<char>(output), {}};
  EXPECT_THAT(text, HasSubstr("nothing left to do: the checkpoint has 8 steps"));
  EXPECT_TRUE(std::filesystem::exists(run / "result.json"));
}

TEST_F(Sweep, TheRunsSayWhichValueIsTheBest) {
  const Arguments options{"--lr", "0.1,0.01"};
  ASSERT_EQ(sweep(options).status, 0);
  for (const bool smaller : {false, true}) {
    for (const auto& run : std::filesystem::directory_iterator(folder_ / "results")) {
      if (!run.is_directory()) continue;
      nlohmann::json result = nlohmann::json::parse(std::ifstream(run.path() / "result.json"));
      EXPECT_TRUE(result.at("smaller_is_better").is_array());
      result["metrics"]["accuracy"] = result.at("options").dump().find("0.01") != std::string::npos ? 0.25 : 0.75;
      result["smaller_is_better"] = smaller ? nlohmann::json({"accuracy"}) : nlohmann::json::array();
      std::ofstream(run.path() / "result.json") << result;
    }
    EXPECT_THAT(sweep(options).out, HasSubstr(smaller ? "best: lr 0.01\n" : "best: lr 0.1\n"));
  }
}

TEST_F(Sweep, AFailedRunDoesNotEndTheOthers) {
  const ToolResult result = sweep({"--accumulate", "1,3"});
  EXPECT_EQ(result.status, 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("accumulate 3: failed: --accumulate 3: does not divide --batch-size 32"));
  EXPECT_THAT(result.out, HasSubstr("best: accumulate 1\n"));
}

TEST_F(Sweep, TheOptionsOfARunAreOneValueEach) {
  folder_.write("run.toml", "hidden = [\"8\", \"4\"]\n");
  folder_.write("t.csv", "a,k\n1,x\n2,y\n3,x\n4,y\n5,x\n6,y\n");
  const Arguments sweep{"sweep", "--results", folder_ / "r", "--config", folder_ / "run.toml", "--seed", "1"};
  Arguments all = sweep;
  all.insert(all.end(), {"--", "train", "--data", folder_ / "t.csv", "--val-split", "0.4", "--epochs", "1"});
  const ToolResult result = run_tool(all);
  EXPECT_THAT(result.out, HasSubstr("\n8,4     1 ")) << result.err;
  // A metric that no run has ranks none.
  all.insert(all.begin() + 1, {"--best", "f1"});
  const ToolResult unranked = run_tool(all);
  EXPECT_EQ(unranked.status, 1);
  EXPECT_THAT(unranked.err, HasSubstr("--best f1: no run has this metric; they have train_loss, accuracy"));
  EXPECT_THAT(unranked.out, ::testing::Not(HasSubstr("best:")));
}

TEST_F(Sweep, ArgumentsThatDoNotFit) {
  for (const auto& [arguments, part] : std::vector<std::pair<Arguments, std::string>>{
           {{"sweep", "--lr", "1,2"}, "sweep: found no command, expected -- train and its options"},
           {{"sweep", "--lr", "1,2", "--", "eval"}, "sweep: found eval, expected -- train"},
           {{"sweep", "--", "train"}, "sweep: expected an option with its values"},
           {{"sweep", "--lr", "1", "--", "train", "--save", "x"}, "sweep: --save is its own"},
           {{"sweep", "--lr", "1,2", "--", "train", "--export=w"}, "sweep: takes no --export: each run would replace"},
           {{"sweep", "--lr", "1,2", "--", "train", "--metrics-file=m"}, "sweep: takes no --metrics-file: each run"},
           {{"sweep", "--lr", "1,2", "--", "train", "--report", "x"}, "sweep: takes no --report: each run"},
           {{"sweep", "--lr", "1", "--", "train", "--lr=2"}, "sweep: --lr is given on both sides of --"},
           {{"sweep", "--lr", "1,,2", "--", "train"}, "--lr: found '1,,2', which has an empty value"},
           {{"sweep", "--sync-bn", "maybe", "--", "train"}, "--sync-bn: found maybe, expected true, false, or both"},
           {{"sweep", "--results", folder_ / "r", "--lr", "fast", "--", "train"},
            "lr fast: --lr: fast is not a number"}}) {
    const ToolResult result = run_tool(arguments);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(part));
  }
}

}  // namespace
}  // namespace lockstep
