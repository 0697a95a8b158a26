// Training that begins with weights of another run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include "lockstep/checkpoint/weights.h"
#include "tests/cli/train_testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class FineTuning : public Train {
 protected:
  std::vector<std::byte> bytes_of(const std::string& file, const std::string& name) {
    const SafetensorsFile weights = read_safetensors(folder_ / file);
    const TensorBytes* found = weights.find(name);
    if (found == nullptr) return {};
    return {found->bytes.begin(), found->bytes.end()};
  }
};

// The first layer of mlp is "1", its last one "3".
TEST_F(FineTuning, FrozenPartsKeepTheirWeights) {
  ASSERT_EQ(train({"--export", folder_ / "a", "--epochs", "0"}).status, 0);
  for (const char* names : {"backbone", "1"}) {
    ASSERT_EQ(train({"--export", folder_ / "b", "--epochs", "1", "--freeze", names}).status, 0);
    EXPECT_EQ(bytes_of("b", "1.weight"), bytes_of("a", "1.weight"));
    EXPECT_NE(bytes_of("b", "3.weight"), bytes_of("a", "3.weight"));
  }
  EXPECT_THAT(train({"--freeze", "layer1"}).err,
              HasSubstr("--freeze layer1: the model has no such parameters: expected "
                        "backbone, or one of 1, 3"));
  EXPECT_THAT(train({"--freeze", "1,3"}).err, HasSubstr("--freeze 1,3: nothing is left to train"));
}

TEST_F(FineTuning, BatchNormsOfFrozenPartsKeepTheirStatistics) {
  ASSERT_EQ(train({"--model", "resnet18", "--limit-train", "2", "--limit-test", "1", "--batch-size", "2", "--shards",
                   "1", "--freeze", "backbone", "--epochs", "1", "--export", folder_ / "a"})
                .status,
            0);
  const std::vector<std::byte> mean = bytes_of("a", "1.running_mean");
  ASSERT_FALSE(mean.empty());
  EXPECT_TRUE(std::ranges::all_of(mean, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(FineTuning, TheLastLayerHasARateOfItsOwn) {
  ASSERT_EQ(train({"--export", folder_ / "a", "--epochs", "0"}).status, 0);
  ASSERT_EQ(train({"--export", folder_ / "b", "--epochs", "1", "--head-lr", "0"}).status, 0);
  EXPECT_NE(bytes_of("b", "1.weight"), bytes_of("a", "1.weight"));
  EXPECT_EQ(bytes_of("b", "3.weight"), bytes_of("a", "3.weight"));
}

TEST_F(FineTuning, AnotherNumberOfClassesGetsANewLastLayer) {
  ASSERT_EQ(train({"--export", folder_ / "a", "--epochs", "0"}).status, 0);
  // The same net with 3 classes.
  const SafetensorsFile file = read_safetensors(folder_ / "a");
  std::vector<TensorBytes> tensors = file.tensors;
  for (TensorBytes& t : tensors) {
    if (!t.name.starts_with("3.")) continue;
    t.bytes = t.bytes.first(t.bytes.size() / 10 * 3);
    t.shape = t.name == "3.bias" ? Shape{3} : Shape{3, 256};
  }
  write_safetensors(folder_ / "three", tensors);
  const ToolResult result =
      train({"--init-from", folder_ / "three", "--epochs", "1", "--freeze", "backbone", "--export", folder_ / "b"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("three: the last layer starts anew: 3.weight [3, 256]"));
  EXPECT_EQ(bytes_of("b", "1.weight"), bytes_of("a", "1.weight"));
  // Any other difference stays an error.
  for (TensorBytes& t : tensors) {
    if (t.name == "1.bias") t.name = "other.bias";
  }
  write_safetensors(folder_ / "other", tensors);
  const ToolResult other = train({"--init-from", folder_ / "other"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("1.bias"));
}

// The classes of the data have equal numbers, so that balanced weights are 1: the same loss, another recipe.
TEST_F(FineTuning, BalancedWeightsOfEqualClassesAreOnes) {
  const std::string log = folder_ / "log";
  ASSERT_EQ(train({"--log", log}).status, 0);
  const auto plain = events(log, "step");
  for (const char* accumulate : {"1", "2"}) {
    ASSERT_EQ(train({"--log", log, "--class-weights", "balanced", "--accumulate", accumulate, "--shards", "2"}).status,
              0);
    const auto balanced = events(log, "step");
    ASSERT_EQ(balanced.size(), plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_NEAR(balanced[i].at("loss").get<double>(), plain[i].at("loss").get<double>(), 1e-5);
    }
  }
  EXPECT_THAT(folder_.read("log"), HasSubstr("balanced"));
}

}  // namespace
}  // namespace lockstep
