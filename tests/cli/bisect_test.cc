// The first operation that differs between two trainings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cli/train_testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class Bisect : public Train {
 protected:
  // lockstep train on small data, with four shards.
  Arguments lenet(const Arguments& more = {}, const std::string& model = "lenet", const std::string& steps = "3") {
    const Arguments options = after({"--model", model, "--max-steps", steps, "--limit-test", "10"}, more);
    return after({"lockstep"}, train_arguments(data_, options));
  }
  static ToolResult bisect(const Arguments& options, const Arguments& a, const Arguments& b) {
    Arguments all{"bisect"};
    for (const Arguments& words : {options, {"--"}, a, {"--"}, b}) all.insert(all.end(), words.begin(), words.end());
    return run_tool(all);
  }
  static Arguments after(Arguments words, const Arguments& command) {
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
};

TEST_F(Bisect, FindsABitThatABackwardKernelFlips) {
  const std::string found = folder_ / "found.json";
  const ToolResult result = bisect({"--inject-flip", "2:3:conv2d backward weights:1:7", "--json", found}, lenet(),
                                   lenet({"--num-devices", "2", "--record-steps"}));
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("step 2: conv2d backward weights of module 3, backward pass, shard 1 of 4: element "
                                    "[0, 0, 1, 2] is "));
  EXPECT_THAT(result.out, HasSubstr("; 1 of 2400 elements of [16, 6, 5, 5] differ; its inputs are equal\n"));
  std::ifstream file(found);
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json.at("step"), 2);
  EXPECT_EQ(json.at("element"), (std::vector<int>{0, 0, 1, 2}));
  // The highest byte differs in its lowest bit.
  const std::string a = json.at("bits")[0], b = json.at("bits")[1];
  EXPECT_EQ(std::stoul(a, nullptr, 16) ^ std::stoul(b, nullptr, 16), 0x01000000U);
}

TEST_F(Bisect, InstructionSetsAndLayoutsAreEqual) {
  const ToolResult result = bisect({}, after({"lockstep", "launch", "-n", "2", "--"}, lenet()),
                                   after({"env", "LOCKSTEP_SIMD=scalar"}, lenet({"--num-devices", "2"})));
  EXPECT_EQ(result.status, 0) << result.err << result.out;
  EXPECT_EQ(result.out, "equal: 3 steps: loss, weights, buffers, and optimizer state\n");
}

TEST_F(Bisect, RecipesDiffer) {
  const ToolResult rates = bisect({}, lenet(), lenet({"--lr", "0.2", "--momentum", "0.9"}));
  EXPECT_EQ(rates.status, 1) << rates.err;
  EXPECT_THAT(rates.out,
              HasSubstr("recipes differ: learning_rate is 0.1 in A, 0.2 in B; momentum is 0.0 in A, 0.9 in B"));
  EXPECT_THAT(rates.out, HasSubstr("step 1: 0.weight after the step: element [0, 0, 0, 0] is "));
  EXPECT_THAT(rates.out, HasSubstr("; all gradients are equal\n"));
  const ToolResult seeds = bisect({}, lenet(), lenet({"--no-shuffle"}));
  EXPECT_EQ(seeds.status, 1) << seeds.err;
  EXPECT_THAT(seeds.out, HasSubstr("step 1: the data, part 0 of the batch, shard 0 of 4: element [0, 0, "));
  const ToolResult lengths = bisect({}, lenet(), lenet({}, "lenet", "2"));
  EXPECT_EQ(lengths.status, 1) << lengths.err;
  EXPECT_EQ(lengths.out, "2 steps are equal, and A has more\n");
}

TEST_F(Bisect, CommandsThatDoNotFit) {
  const auto fails = [](const ToolResult& result, int status, const std::string& part) {
    EXPECT_EQ(result.status, status) << result.out;
    EXPECT_THAT(result.err, HasSubstr(part));
  };
  fails(run_tool({"bisect"}), 2, "bisect: found 0 commands, expected two");
  fails(run_tool({"bisect", "--", "true"}), 2, "bisect: found 1 command, expected two");
  fails(bisect({"--inject-flip", "1:fc"}, {"true"}, {"true"}), 2, "expected STEP:MODULE:OPERATION:SHARD:ELEMENT");
  fails(bisect({}, {"true"}, {"true"}), 1, "bisect: command A (true) ended without a step of a Trainer");
  fails(bisect({}, {"no_such_program"}, {"true"}), 1, "bisect: command A: cannot start no_such_program: ");
  fails(bisect({}, lenet(), lenet({"--lr", "fast"})), 1, "exited with status 2: --lr: fast is not a number");
  fails(bisect({}, lenet(), lenet({}, "mlp")), 1, "A has 0.bias, and B has not");
  fails(bisect({"--inject-flip", "1:3:sqrt:0:0"}, lenet(), lenet()), 1,
        "step 1 has no operation 'sqrt' of module '3' in shard 0");
}

}  // namespace
}  // namespace lockstep
