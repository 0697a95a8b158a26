// Language models in the tool: `train`, `eval`, and `verify` on a text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "tests/cli/tool.h"
#include "tests/wait_until.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class TrainText : public ::testing::Test {
 protected:
  // 400 characters, 40 of them for tests: 44 windows to train on and 4 to test.
  TrainText() {
    std::ofstream text(text_);
    for (int i = 0; i < 10; ++i) text << "the cat sat on the mat and the dog ran. ";
  }
  Arguments with_model(const char* command, const std::string& model, const Arguments& more) const {
    Arguments all{command,    "--model", model,     "--data", text_.string(),        "--context", "8",
                  "--layers", "1",       "--width", "8",      "--threads-per-shard", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Arguments training(const std::string& model, const Arguments& more) const {
    Arguments all = with_model("train", model, {"--batch-size", "8", "--shards", "8"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string hash(const std::filesystem::path& log) const {
    const auto end = events(log, "end");
    return end.empty() ? "none" : end.back().at("weights_sha256").get<std::string>();
  }

  TemporaryFolder folder_;
  std::filesystem::path text_ = folder_ / "text.txt", log_ = folder_ / "log";
};

TEST_F(TrainText, PrintsAndLogsThePerplexity) {
  const std::filesystem::path weights = folder_ / "weights";
  const ToolResult result = run_tool(training(
      "gpt", {"--epochs", "3", "--lr", "0.02", "--log", log_, "--export", weights, "--plot", folder_ / "plot.svg"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string plot = folder_.read("plot.svg");
  EXPECT_THAT(plot, HasSubstr("perplexity</tspan>"));
  EXPECT_THAT(plot, ::testing::Not(HasSubstr("test accuracy")));
  EXPECT_TRUE(std::regex_search(result.out, std::regex("seed 0, 8 shards, batch 8, adamw at 0.02, f32"))) << result.out;
  EXPECT_TRUE(std::regex_search(result.out, std::regex(R"(epoch 3, .*, test acc 0\.\d\d, perplexity \d+\.\d{3}\n)")));
  const auto epochs = events(log_, "epoch");
  ASSERT_EQ(epochs.size(), 3u);
  EXPECT_EQ(epochs[0].at("test_total"), 4 * 8);
  EXPECT_EQ(epochs[0].at("metrics").at("accuracy"), epochs[0].at("test_acc"));
  const double first = epochs[0].at("metrics").at("perplexity"), last = epochs[2].at("metrics").at("perplexity");
  EXPECT_LT(first, 20);
  EXPECT_LT(last, 0.8 * first);
  // The defaults of language models.
  const nlohmann::json start = events(log_, "start").at(0);
  EXPECT_EQ(start.at("optimizer"), "adamw");
  EXPECT_EQ(start.at("clip_norm"), 1);
  EXPECT_EQ(start.at("dropout"), 0.1);
  EXPECT_EQ(start.at("smaller_is_better"), nlohmann::json({"perplexity"}));

  const ToolResult evaluation =
      run_tool(with_model("eval", "gpt", {"--init-from", weights, "--metrics", "perplexity,confusion_matrix"}));
  ASSERT_EQ(evaluation.status, 0) << evaluation.err;
  const auto printed = lines(evaluation.out);
  // A row for each character that occurs in the test data or is predicted.
  ASSERT_GT(printed.size(), 3u + 5);
  ASSERT_LE(printed.size(), 3u + 1 + 14 + 1);
  EXPECT_THAT(printed[0], HasSubstr(" of 32)"));
  EXPECT_NEAR(std::stod(printed[1].substr(12)), last, 1e-3);
  EXPECT_EQ(printed[2], "confusion_matrix:");
  EXPECT_THAT(printed[3], ::testing::StartsWith("label \\ predicted"));
  EXPECT_THAT(printed.back(), ::testing::StartsWith("most often confused: "));
}

TEST_F(TrainText, LayoutsAgree) {
  for (const char* model : {"gpt", "lstm"}) {
    const ToolResult result = run_tool(with_model(
        "verify", model, {"--layouts", "1,3,2x1,2x2", "--shards", "4", "--batch-size", "8", "--steps", "4"}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("equal: 4 layouts, 4 steps, 4 shards")) << model;
  }
}

// Without bf16 arithmetic, the tool computes in f32 and says so.
TEST_F(TrainText, HalfTypesTrain) {
  std::vector<std::string> hashes;
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    for (const char* devices : {"1", "2"}) {
      const ToolResult result =
          run_tool(training("gpt", {"--dtype", dtype, "--num-devices", devices, "--max-steps", "4", "--log", log_}));
      ASSERT_EQ(result.status, 0) << result.err;
      hashes.push_back(hash(log_));
      std::filesystem::remove(log_);
    }
    EXPECT_EQ(hashes.back(), hashes[hashes.size() - 2]) << dtype;
  }
  EXPECT_NE(hashes[2], hashes[0]);
}

TEST_F(TrainText, PrintsASummary) {
  const ToolResult result = run_tool(training("gpt", {"--summary", "--max-steps", "1"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const std::regex embedding("\ntransformer\\.wte +Embedding +\\[1, 8, 8\\] +112  trainable\n");
  EXPECT_TRUE(std::regex_search(result.out, embedding)) << result.out;
  EXPECT_THAT(result.out, HasSubstr(" bytes of parameters, 0 of buffers\nrunning on: "));
}

// With dropout, clipping, and AdamW: the defaults.
TEST_F(TrainText, AKilledRunGoesOnInOtherLayouts) {
  const std::filesystem::path save = folder_ / "save", other = folder_ / "other";
  // No last step, so that the run cannot end before it is killed. The recipe does not have that number.
  const auto with = [&](const char* model, Arguments more, int processes = 1) {
    more.insert(more.end(), {"--epochs", "1000000"});
    Arguments all = training(model, more);
    if (processes > 1) {
      all.insert(all.begin(), {"launch", "--nproc-per-node", std::to_string(processes), "--", LOCKSTEP_TOOL});
    }
    return all;
  };
  for (const char* model : {"gpt", "lstm"}) {
    std::filesystem::remove_all(save);
    Tool killed(with(model, {"--num-devices", "2", "--save", save, "--save-every", "3"}));
    EXPECT_TRUE(wait_until([&] { return find_latest_checkpoint(save).checkpoint.has_value(); }));
    killed.send(SIGKILL);
    EXPECT_EQ(killed.wait().status, 128 + SIGKILL);
    const auto latest = find_latest_checkpoint(save).checkpoint;
    ASSERT_TRUE(latest.has_value());
    const std::string last = std::to_string(latest->step + 20);
    ASSERT_EQ(run_tool(with(model, {"--max-steps", last, "--log", log_})).status, 0);
    for (const auto& [devices, processes] : {std::pair{3, 1}, {8, 1}, {1, 2}, {2, 2}}) {
      const Arguments resumed{
          "--num-devices", std::to_string(devices), "--max-steps", last, "--resume", save, "--log", other};
      const ToolResult result = run_tool(with(model, resumed, processes));
      ASSERT_EQ(result.status, 0) << result.err;
      EXPECT_EQ(hash(other), hash(log_)) << model << ": " << processes << " processes of " << devices << " devices";
    }
  }
}

// Both have as many characters, so the weights fit.
TEST_F(TrainText, AnotherTextThanTheCheckpointsIsNoticed) {
  const std::string save = folder_ / "save";
  ASSERT_EQ(run_tool(training("gpt", {"--max-steps", "1", "--save", save})).status, 0);
  const auto eval = [&] { return run_tool(with_model("eval", "gpt", {"--init-from", save})); };
  const ToolResult same = eval();
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_EQ(same.err, "");
  {
    std::ofstream text(text_);
    for (int i = 0; i < 10; ++i) text << "the bat sat on the mat and the dog ran. ";
  }
  const ToolResult other = eval();
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("lockstep: --init-from " + save + ": learned another text than --data "));
}

TEST_F(TrainText, ErrorsNameTheOption) {
  const auto expect = [](const Arguments& arguments, const std::string& error, int status = 2) {
    const ToolResult result = run_tool(arguments);
    EXPECT_EQ(result.status, status);
    EXPECT_THAT(result.err, HasSubstr(error));
  };
  expect({"train", "--model", "gpt"}, "--model gpt: expected --data FILE, a text");
  expect({"train", "--model", "mlp", "--width", "8"}, "--width: only with --model gpt or lstm, not mlp");
  expect(training("lstm", {"--heads", "2"}), "--heads: only with --model gpt, not lstm");
  expect(training("gpt", {"--heads", "3"}), "--width 8: not divisible by --heads 3");
  expect(training("gpt", {"--metrics", "loudness"}), "--metrics loudness: expected accuracy, ");
  Arguments long_context = training("lstm", {});
  long_context[6] = "300";
  expect(long_context, "text.txt: 400 characters", 1);
}

}  // namespace
}  // namespace lockstep
