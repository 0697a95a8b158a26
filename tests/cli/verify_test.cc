// lockstep verify: layouts of devices and processes must agree, and a flipped bit must be detected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/tool.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class Verify : public ::testing::Test {
 protected:
  ToolResult verify(const Arguments& more) {
    Arguments all{"verify", "--data", data_.path(), "--steps", "4", "--batch-size", "12"};
    all.insert(all.end(), more.begin(), more.end());
    return run_tool(all);
  }
  SmallData data_;
};

TEST_F(Verify, LayoutsAgree) {
  for (const Arguments& recipe :
       {Arguments{"--model", "mlp", "--optimizer", "adamw", "--clip", "0.1"},
        Arguments{"--model", "lenet", "--dtype", "bf16", "--momentum", "0.9"},
        Arguments{"--model", "lenet", "--dtype", "f16", "--loss-scale", "16777216"},
        Arguments{"--model", "lenet", "--accumulate", "3"}, Arguments{"--model", "lenet", "--gradients", "bf16"}}) {
    Arguments all{"--shards", "4", "--layouts", "1,3,2x1,4x1,2x2"};
    all.insert(all.end(), recipe.begin(), recipe.end());
    const ToolResult result = verify(all);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, MatchesRegex("1 ( +[0-9a-f]{12}){4}\n3 ( +[0-9a-f]{12}){4}\n(2x1|4x1|2x2)(.|\n)*"
                                         "equal: 5 layouts, 4 steps, 4 shards\n(golden: no hash is known .*\n)?"));
  }
}

// f32 weights after four steps on the real Fashion-MNIST are the same with all vector instructions.
TEST(VerifyGolden, EveryMachineHasTheSameWeights) {
  struct Run {
    const char *model, *simd;
  };
  for (const Run& r : {Run{"mlp", ""}, Run{"mlp", "LOCKSTEP_SIMD=scalar"}, Run{"lenet", ""},
                       Run{"lenet", "LOCKSTEP_SIMD=scalar"}, Run{"resnet18", ""}}) {
    ToolOptions options;
    if (*r.simd) options.environment.push_back(r.simd);
    const ToolResult result = run_tool({"verify", "--model", r.model, "--layouts", "1,2"}, options);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(
        result.out,
        ContainsRegex("equal: 2 layouts, 4 steps, 2 shards\ngolden: [0-9a-f]{12} is the hash on every machine\n$"));
  }
}

// A list of weights applies to the layouts with that number of devices.
TEST_F(Verify, SharesDoNotChangeTheBits) {
  const ToolResult result = verify({"--model", "mlp", "--shards", "4", "--layouts", "1,2,2x1,1x2", "--balance", "1,3"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("equal: 4 layouts, 4 steps, 4 shards"));
  // Enough steps for shares to change.
  const ToolResult automatic = run_tool({"verify", "--data", data_.path(), "--batch-size", "12", "--model", "mlp",
                                         "--shards", "4", "--layouts", "1,2", "--balance", "auto"});
  EXPECT_EQ(automatic.status, 0) << automatic.err;
  EXPECT_THAT(automatic.out, HasSubstr("equal: 2 layouts, 42 steps, 4 shards"));
  const ToolResult none = verify({"--model", "mlp", "--layouts", "1,2x1", "--balance", "1,3,1"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("--balance 1,3,1: 3 weights, expected a layout with as many devices among 1,2x1"));
}

TEST_F(Verify, AFlippedBitIsFound) {
  const ToolResult result = verify({"--model", "mlp", "--layouts", "1,2,2x1", "--inject-flip", "3:1.weight"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "lockstep: verify: layout 2x1 differs from layout 1: step 3, parameter 1.weight\n");
}

// An injection that flips no bit proves nothing.
TEST_F(Verify, AFlipThatWouldNotHappenIsRefusedBeforeAnyTraining) {
  struct Refused {
    std::string flip, error;
  };
  for (const Refused& r :
       {Refused{"5:1.weight", "--inject-flip 5:1.weight: step 5 is after the last step, 4 (see --steps)"},
        Refused{"0:1.weight", "the step"}, Refused{"1.weight", "--inject-flip 1.weight: expected STEP:PARAMETER"},
        Refused{"x:1.weight", "the step"},
        Refused{"3:9.weight", "the model has no parameter '9.weight'; its first is 1.weight"}}) {
    const ToolResult result = verify({"--model", "mlp", "--layouts", "1,2", "--inject-flip", r.flip});
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(r.error));
  }
}

TEST_F(Verify, SaysWhatItCannotUse) {
  EXPECT_EQ(verify({"--layouts", "1"}).status, 2);
  EXPECT_THAT(verify({"--layouts", "1,2y"}).err, HasSubstr("'2y', expected D (devices in one process) or PxD"));
  EXPECT_THAT(verify({"--layouts", "1,3x1", "--shards", "2"}).err,
              HasSubstr("--shards 2 for 3 devices of layout 3x1: expected at least one for each"));
  const ToolResult bad = verify({"--layouts", "1,2", "--model", "mlp", "--bogus"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr("layout 1"));
  EXPECT_THAT(bad.err, HasSubstr("--bogus"));
  const ToolResult nowhere = run_tool({"verify"}, {.environment = {"PATH=/usr/bin:/bin", "TMPDIR=/none"}});
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("TMPDIR is '/none', and /none is no folder: expected one for temporary files"));
}

// A file that each layout replaces, output that no one sees, and runs that end early or start late.
TEST_F(Verify, OptionsThatDoNotFitAreRefusedByNameBeforeAnyTraining) {
  const std::string folder = data_.path();
  for (const Arguments& option : {Arguments{"--max-steps", "3"},
                                  {"--epochs", "3"},
                                  {"--num-devices", "2"},
                                  {"--devices", "cpu"},
                                  {"--log", "x"},
                                  {"--weights-log", "x"},
                                  {"--save", "x"},
                                  {"--save-every", "5"},
                                  {"--save-best"},
                                  {"--keep", "3"},
                                  {"--resume", folder},
                                  {"--export", "x"},
                                  {"--plot", "x.svg"},
                                  {"--trace=x"},
                                  {"--summary"},
                                  {"--metrics", "perplexity"},
                                  {"--patience", "1"},
                                  {"--watch", "train_loss"},
                                  {"--min-delta=0.1"}}) {
    Arguments all{"--model", "mlp", "--layouts", "1,2"};
    all.insert(all.end(), option.begin(), option.end());
    const ToolResult result = verify(all);
    const std::string name = option[0].substr(0, option[0].find('='));
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, ::testing::ContainsRegex("^lockstep: verify (takes no|sets) " + name + "[: ]"));
    EXPECT_THAT(run_tool({"verify", "--help"}).out,
                ::testing::ContainsRegex("except for(.|\n)*[ \n]" + name + "[ \n]"));
  }
  EXPECT_THAT(verify({"--layouts", "1,2", "--max-steps", "3"}).err,
              HasSubstr("verify sets --max-steps itself: give --steps"));
}

TEST_F(Verify, TheNumberOfShardsIsThatOfTrain) {
  const auto shards = [&](const Arguments& more) {
    Arguments all{"verify", "--steps", "1", "--layouts", "1,1x1"};
    all.insert(all.end(), more.begin(), more.end());
    const ToolResult result = run_tool(all);
    EXPECT_EQ(result.status, 0) << result.err;
    const std::string begin = "equal: 2 layouts, 1 steps, ";
    const std::size_t found = result.out.find(begin);
    if (found == std::string::npos) return result.out;
    const std::size_t end = result.out.find('\n', found);
    return result.out.substr(found + begin.size(), end + 1 - found - begin.size());
  };
  const Arguments mlp{"--data", data_.path(), "--model", "mlp", "--batch-size", "64"};
  EXPECT_EQ(shards(mlp), "2 shards\n");
  Arguments micro = mlp;
  micro.insert(micro.end(), {"--accumulate", "2"});
  EXPECT_EQ(shards(micro), "1 shards\n");
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the cat sat on the mat and the dog ran. ";
  const std::string file = data_.folder().write("text", text);
  EXPECT_EQ(shards({"--data", file, "--model", "lstm", "--context", "8", "--layers", "1", "--width", "8",
                    "--batch-size", "16"}),
            "4 shards\n");
}

TEST_F(Verify, SaysWhereNoGoldenHashIsKnown) {
  const ToolResult result = verify({"--model", "mlp", "--layouts", "1,2"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(lines(result.out).back(), "golden: no hash is known for this recipe after 4 steps");
}

}  // namespace
}  // namespace lockstep
