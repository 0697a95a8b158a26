// Options without an effect: rank 0 says so on standard error, and the recipe is that of a run without them.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "tests/cli/train_testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const ToolOptions kOnlyRank{.environment = {"PATH=/usr/bin:/bin", "RANK=0", "WORLD_SIZE=1"}};

class Notices : public Train {
 protected:
  // The hash of the recipe of a run that must succeed and write one line to standard error, or none if it is empty.
  std::string recipe(const Arguments& more, const std::string& line = "") {
    SCOPED_TRACE(::testing::PrintToString(more));
    const std::filesystem::path log = folder_ / "log";
    Arguments all = more;
    all.insert(all.end(), {"--log", log});
    const ToolResult result = train(all);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, line.empty() ? "" : "lockstep: " + line + "\n");
    const auto start = events(log, "start");
    return start.empty() ? "none" : start.at(0).at("recipe").get<std::string>();
  }
};

TEST_F(Notices, OptionsOfOtherModelsAndOptimizersKeepTheRecipe) {
  EXPECT_EQ(recipe({"--optimizer", "adam", "--momentum", "0.5"}, "--momentum changes nothing: the optimizer is adam"),
            recipe({"--optimizer", "adam"}));
  const std::string plain = recipe({});
  EXPECT_EQ(recipe({"--sync-bn"}, "--sync-bn changes nothing: the model mlp has no batch norm"), plain);
  EXPECT_EQ(recipe({"--direct-conv"}, "--direct-conv changes nothing: the model mlp has no convolutions"), plain);
  EXPECT_NE(recipe({"--model", "lenet", "--direct-conv"}), recipe({"--model", "lenet"}));
}

TEST_F(Notices, OptionsThatTheDataAndDevicesLeaveWithoutAnEffect) {
  const std::string plain = recipe({});
  EXPECT_EQ(recipe({"--num-devices", "1", "--balance", "auto"}, "--balance auto changes nothing: there is one device"),
            plain);
  EXPECT_EQ(
      recipe({"--num-devices", "4", "--balance", "auto"}, "--balance auto changes nothing: each device has one shard"),
      plain);
  EXPECT_EQ(recipe({"--num-devices", "2", "--balance", "auto"}), plain);
  EXPECT_EQ(recipe({"--limit-train", "101"}, "--limit-train 101 changes nothing: there are 100 train examples"), plain);
  EXPECT_EQ(recipe({"--limit-test", "31"}, "--limit-test 31 changes nothing: there are 30 test examples"), plain);
  EXPECT_EQ(recipe({"--limit-train", "100", "--limit-test", "30"}), plain);
  EXPECT_EQ(recipe({"--timeout", "5"}, "--timeout changes nothing: no launcher started this process"), plain);
  const ToolResult launched = run_tool(train_arguments(data_, {"--timeout", "5"}), kOnlyRank);
  EXPECT_EQ(launched.status, 0);
  EXPECT_EQ(launched.err, "");
}

TEST_F(Notices, AWarmUpThatDoesNotEndBeforeTheRun) {
  const std::string end = ", so the warm-up does not end before it";
  recipe({"--warmup", "7"});  // of eight steps
  recipe({"--warmup", "8"}, "--warmup 8: the run has 8 steps" + end);
  recipe({"--warmup", "2", "--max-steps", "1"}, "--warmup 2: the run has 1 step" + end);
  // Each epoch has 13 micro-batches of 8 examples, four to a step.
  recipe({"--warmup", "8", "--accumulate", "4"}, "--warmup 8: the run has 8 steps" + end);
}

TEST_F(Notices, OneShardHasTheWholeBatch) {
  const Arguments resnet{"--model",  "resnet18", "--batch-size", "4", "--limit-train", "10", "--epochs", "1",
                         "--shards", "1",        "--limit-test", "1", "--sync-bn"};
  recipe(resnet, "--sync-bn is for several shards: the only one has the whole batch");
}

TEST_F(Notices, Tf32IsForF32) {
  const ToolResult result = train({"--tf32", "--dtype", "f16", "--max-steps", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("lockstep: --tf32 is for products of f32: layers compute in f16\n"));
}

TEST_F(Notices, ComeFromRank0Alone) {
  Arguments all{"launch", "-n", "2", "--", "lockstep"};
  const Arguments rank =
      train_arguments(data_, {"--optimizer", "adam", "--momentum", "0.5", "--limit-train", "101", "--max-steps", "1"});
  all.insert(all.end(), rank.begin(), rank.end());
  const ToolResult result = run_tool(all);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err,
            "[rank 0] lockstep: --momentum changes nothing: the optimizer is adam\n"
            "[rank 0] lockstep: --limit-train 101 changes nothing: there are 100 train examples\n");
}

TEST_F(Notices, GraphAndBenchmarksHaveThemToo) {
  const std::string notice = "lockstep: --direct-conv changes nothing: the model mlp has no convolutions\n";
  const ToolResult graph = run_tool({"graph", "--model", "mlp", "--devices", "cpu", "--batch-size", "4",
                                     "--direct-conv", "--out", folder_ / "mlp.dot"});
  EXPECT_EQ(graph.status, 0);
  EXPECT_EQ(graph.err, notice);
  const ToolResult bench = run_tool({"bench", "train", "--data", data_.path(), "--model", "mlp", "--batch-size", "4",
                                     "--steps", "1", "--rounds", "1", "--devices", "cpu", "--direct-conv"});
  EXPECT_EQ(bench.status, 0);
  EXPECT_EQ(bench.err, notice);
}

TEST_F(Notices, EvalHasThoseOfTheTestData) {
  const std::filesystem::path weights = folder_ / "weights";
  recipe({"--max-steps", "1", "--export", weights});
  const ToolResult result =
      run_tool({"eval", "--data", data_.path(), "--model", "mlp", "--init-from", weights, "--limit-test", "31"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "lockstep: --limit-test 31 changes nothing: there are 30 test examples\n");
}

// Older versions put such settings into the recipe.
TEST_F(Notices, ACheckpointWhoseRecipeHasSuchOptionsResumes) {
  const std::string save = folder_ / "save", old = folder_ / "old";
  const Arguments adam{"--optimizer", "adam", "--lr", "0.01"};
  const auto with = [&](const Arguments& more) {
    Arguments all = adam;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ASSERT_EQ(train(with({"--max-steps", "3", "--save", save})).status, 0);
  const Checkpoint checkpoint = *find_latest_checkpoint(save).checkpoint;
  CheckpointWriter writer(old, checkpoint.step);
  for (const std::string& name : checkpoint.files) {
    std::string contents = folder_.read("save/step-00000003/" + name);
    if (name == "state.json") {
      nlohmann::json state = nlohmann::json::parse(contents);
      state.at("recipe")["momentum"] = 0.5;
      state.at("recipe")["sync_bn"] = true;
      state.at("recipe")["direct_conv"] = true;
      state.erase("recipe_hash");
      contents = state.dump();
    }
    writer.add_file(name, contents);
  }
  writer.publish();
  const std::string whole = weights_of(adam);
  std::filesystem::remove(folder_ / "weights.log");
  EXPECT_EQ(weights_of(with({"--resume", old})), whole);
  std::filesystem::remove(folder_ / "weights.log");
  EXPECT_EQ(weights_of(with({"--resume", old, "--momentum", "0.5", "--sync-bn", "--direct-conv"})), whole);
}

}  // namespace
}  // namespace lockstep
