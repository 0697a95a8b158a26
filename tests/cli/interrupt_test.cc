// `train` stopped by a signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "lockstep/checkpoint/weights.h"
#include "tests/cli/train_testing.h"
#include "tests/wait_until.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class Interrupt : public Train, public ::testing::WithParamInterface<int> {};

TEST_P(Interrupt, EndsWithACheckpointThatResumes) {
  const std::filesystem::path log = folder_ / "log", save = folder_ / "save";
  Tool tool(train_arguments(data_, {"--epochs", "1000000", "--log", log, "--save", save}));
  ASSERT_TRUE(wait_until([&] { return events(log, "step").size() >= 3; }));
  tool.send(GetParam());
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 128 + (GetParam() == SIGHUP ? SIGTERM : GetParam())) << result.err;
  std::smatch found;
  ASSERT_TRUE(std::regex_match(result.err, found,
                               std::regex("lockstep: interrupted at step (\\d+); the checkpoint is in .*\n")))
      << result.err;
  const int step = std::stoi(found[1]);
  EXPECT_EQ(static_cast<int>(events(log, "step").size()), step);
  EXPECT_TRUE(std::filesystem::exists(save / fmt::format("step-{:08}", step)));
  const std::string page = folder_.read("save/report.html");
  EXPECT_THAT(page, HasSubstr(fmt::format("<p class=\"status bad\">interrupted at step {}, at ", step)));
  // Within an epoch of four steps, the page says which epoch it was that was tested.
  if (const int epoch = step / 4; epoch > 0) {
    const std::string when = step % 4 == 0 ? "" : fmt::format(", epoch {}", epoch);
    EXPECT_THAT(page, HasSubstr("<span>test accuracy" + when + "</span>"));
  }

  const std::string further = std::to_string(step + 3);
  EXPECT_EQ(weights_of({"--epochs", "1000000", "--max-steps", further, "--resume", save, "--num-devices", "2"}),
            weights_of({"--epochs", "1000000", "--max-steps", further}));
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupt, ::testing::Values(SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2),
                         [](const auto& info) { return "SIG" + std::string(::sigabbrev_np(info.param)); });

TEST_F(Train, InterruptWithoutAFolderForCheckpointsSaysJustThat) {
  const std::filesystem::path log = folder_ / "log";
  Tool tool(train_arguments(data_, {"--epochs", "1000000", "--log", log}));
  ASSERT_TRUE(wait_until([&] { return events(log, "step").size() >= 3; }));
  tool.send(SIGINT);
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 130);
  EXPECT_TRUE(std::regex_match(result.err, std::regex("lockstep: interrupted at step \\d+\n"))) << result.err;
}

TEST_F(Train, AnInterruptedRunIsMarkedAsOne) {
  const std::filesystem::path log = folder_ / "log", file = folder_ / "weights";
  // The first epoch is long enough to be stopped in.
  Tool tool(train_arguments(
      data_, {"--batch-size", "1", "--shards", "1", "--model", "resnet18", "--log", log, "--export", file}));
  ASSERT_TRUE(wait_until([&] { return !events(log, "step").empty(); }));
  tool.send(SIGINT);
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 130);
  EXPECT_THAT(result.err, HasSubstr("; " + file.string() + " has the weights of this step\n"));
  EXPECT_FALSE(read_safetensors(file).tensors.empty());
  const nlohmann::json end = events(log, "end").at(0);
  EXPECT_EQ(end.at("stopped"), true);
  EXPECT_FALSE(end.contains("test_acc")) << end;  // nothing was evaluated
}

}  // namespace
}  // namespace lockstep
