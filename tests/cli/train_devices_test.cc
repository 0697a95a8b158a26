// Devices, ranks, shards and threads of `train`: they do not affect the weights.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "lockstep/device/topology.h"
#include "tests/cli/train_testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST_F(Train, TheWeightsDoNotDependOnTheDevices) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const std::string one = weights_of({"--num-devices", "1", "--dtype", dtype});
    EXPECT_EQ(weights_of({"--num-devices", "3", "--dtype", dtype}), one);
    EXPECT_EQ(weights_of({"--devices", "cpu:1,cpu:0", "--dtype", dtype}), one);
    EXPECT_NE(weights_of({"--seed", "1", "--dtype", dtype}), one);
  }
}

// The same bits are the default.
TEST_F(Train, DefaultsGiveOneHashOnAnyNumberOfDevicesAndRanks) {
  const std::filesystem::path log = folder_ / "log";
  for (const Arguments& recipe : {Arguments{"--model", "mlp"},
                                  {"--model", "mlp", "--dtype", "bf16"},
                                  {"--model", "lenet"},
                                  {"--model", "lenet", "--dtype", "bf16"}}) {
    SCOPED_TRACE(::testing::PrintToString(recipe));
    std::set<std::string> weights, recipes;
    auto run = [&](Arguments words, const Arguments& devices) {
      words.insert(words.end(), {"train", "--data", data_.path(), "--epochs", "2", "--log", log});
      words.insert(words.end(), recipe.begin(), recipe.end());
      words.insert(words.end(), devices.begin(), devices.end());
      const ToolResult result = run_tool(words);
      EXPECT_EQ(result.status, 0) << result.err;
      EXPECT_EQ(events(log, "start").at(0).at("shards"), 8);
      weights.insert(events(log, "end").at(0).at("weights_sha256"));
      recipes.insert(events(log, "start").at(0).at("recipe"));
    };
    run({}, {});
    for (const char* devices : {"1", "2", "4"}) run({}, {"--num-devices", devices});
    const Arguments two{"launch", "--nproc-per-node", "2", "--", "lockstep"};
    run(two, {});
    run(two, {"--num-devices", "2"});
    EXPECT_EQ(weights.size(), 1u);
    EXPECT_EQ(recipes.size(), 1u);
  }
}

// Also runs in the emulation.
TEST_F(Train, OnGpusEachHasAShardByDefault) {
  const std::filesystem::path log = folder_ / "log";
  const Arguments arguments{"train",       "--data", data_.path(), "--model", "mlp", "--devices", "cuda:0/0,cuda:0/1",
                            "--max-steps", "1",      "--log",      log};
  if (const ToolResult result = run_tool(arguments); result.status == 0) {
    EXPECT_THAT(result.out, HasSubstr("2 shards (one for each GPU: the bits depend on their number"));
    EXPECT_EQ(events(log, "start").at(0).at("shards"), 2);
  } else {
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("cuda:0 requested, but there is no GPU"));
  }
}

TEST_F(Train, ABatchOf32TrainsOnTwoDevices) {
  const std::string log = folder_ / "log";
  std::set<nlohmann::json> ends;
  for (const char* devices : {"1", "2"}) {
    const ToolResult result = run_tool({"train", "--data", data_.path(), "--model", "mlp", "--batch-size", "32",
                                        "--epochs", "1", "--num-devices", devices, "--log", log});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(events(log, "start").at(0).at("shards"), 2);
    ends.insert(events(log, "end").at(0));
  }
  EXPECT_EQ(ends.size(), 1U);
}

TEST_F(Train, MoreDevicesThanShardsNeedAnOption) {
  const Arguments common{"train", "--data", data_.path(), "--model", "mlp", "--batch-size", "32", "--num-devices", "3"};
  const ToolResult result = run_tool(common);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(
      result.err,
      HasSubstr("a batch of 32 makes 2 shards for 3 devices: expected at least one for each. --shards 3 gives"));
  Arguments more = common;
  more.insert(more.end(), {"--shards", "3", "--epochs", "1"});
  EXPECT_EQ(run_tool(more).status, 0);
}

// One device in rank 0, two in rank 1.
TEST_F(Train, RanksMayHaveDifferentNumbersOfDevices) {
  const std::string log = folder_ / "log", ranks_log = folder_ / "ranks.log";
  const std::string common = "train --data " + data_.path() + " --model mlp --batch-size 48 --epochs 1";
  const auto launch = [&](const std::string& more) {
    const std::string rank = LOCKSTEP_TOOL " " + common + " --num-devices $((RANK + 1)) " + more;
    return run_tool({"launch", "--nproc-per-node", "2", "--", "/bin/sh", "-c", rank});
  };
  const ToolResult refused = launch("");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("a batch of 48 makes 2 shards for 3 devices of 2 ranks: expected at least one for each"));
  const ToolResult result = launch("--shards 3 --log " + ranks_log);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(run_tool({"train", "--data", data_.path(), "--model", "mlp", "--batch-size", "48", "--epochs", "1",
                      "--shards", "3", "--log", log})
                .status,
            0);
  EXPECT_EQ(events(ranks_log, "end").at(0), events(log, "end").at(0));
}

// The other ranks do not wait for it.
TEST_F(Train, ARankThatCannotUseItsDevicesTellsTheOthersWhy) {
  const std::string rank =
      LOCKSTEP_TOOL " train --data " + data_.path() + " --model mlp --cores-per-device $((1 + RANK * 2000))";
  const ToolResult result = run_tool({"launch", "--nproc-per-node", "2", "--", "/bin/sh", "-c", rank});
  EXPECT_THAT(result.err, HasSubstr("[rank 1] lockstep: --cores-per-device 2001: this process may use"));
  EXPECT_THAT(result.err, ::testing::ContainsRegex("\\[rank 0\\] lockstep: .*rank 1.*--cores-per-device 2001"));
}

TEST_F(Train, SaysWhichCoresAreIdle) {
  if (available_cpus().size() < 2) GTEST_SKIP() << "one core is never idle";
  Arguments common{"train", "--data",        data_.path(), "--model",  "mlp", "--batch-size",       "32", "--epochs",
                   "1",     "--num-devices", "1",          "--shards", "1",   "--cores-per-device", "2"};
  EXPECT_THAT(run_tool(common).out, ::testing::Not(HasSubstr("idle")));
  common.insert(common.end(), {"--threads-per-shard", "1"});
  EXPECT_THAT(run_tool(common).out, HasSubstr("1 shard, batch 32, sgd at 0.1, f32; 1 of 2 cores idle "
                                              "(--threads-per-shard 2 uses them, with the same bits)"));
}

// With f32, the number of threads affects only the speed.
TEST_F(Train, ThreadsOfAShardDecideNoBits) {
  const std::filesystem::path log = folder_ / "log";
  std::vector<nlohmann::json> ends;
  for (const char* threads : {"1", "2", "3"}) {
    std::filesystem::remove(log);
    ASSERT_EQ(train({"--threads-per-shard", threads, "--log", log}).status, 0);
    ends.push_back(events(log, "end").back());
    ends.back()["recipe"] = events(log, "start").back().at("recipe");
  }
  EXPECT_EQ(ends[1], ends[0]);
  EXPECT_EQ(ends[2], ends[0]);
}

TEST_F(Train, TheLogHasTheSharesOfAllDevices) {
  const auto shares = [&](const Arguments& more) {
    const std::string log = folder_ / "log";
    Arguments all{"--shards", "4", "--log", log};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(train(all).status, 0);
    for (const nlohmann::json& step : events(log, "step"))
      EXPECT_EQ(step.at("shares"), events(log, "step")[0].at("shares"));
    return std::pair(events(log, "step").at(0).at("shares"), events(log, "end").at(0).at("weights_sha256"));
  };
  const auto [one, weights] = shares({"--num-devices", "1"});
  EXPECT_EQ(one, nlohmann::json({4}));
  const std::vector<std::pair<Arguments, nlohmann::json>> cases{{{}, {2, 2}},
                                                                {{"--balance", "equal"}, {2, 2}},
                                                                {{"--balance", "auto"}, {2, 2}},  // of 8 steps
                                                                {{"--balance", "3,1"}, {3, 1}},
                                                                {{"--balance", "0.1,0.3"}, {1, 3}}};
  for (const auto& [options, expected] : cases) {
    Arguments all{"--num-devices", "2"};
    all.insert(all.end(), options.begin(), options.end());
    EXPECT_EQ(shares(all), std::pair(expected, weights));
  }
}

// More than a batch has shards.
TEST(Devices, AreAsManyAsWanted) {
  const ToolResult result = run_tool({"devices", "--devices", "cpu", "--num-devices", "16"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(lines(result.out).size(), 16u);
}

TEST(Devices, PrintsALineForEach) {
  const ToolResult result = run_tool({"devices", "--num-devices", "3"});
  EXPECT_EQ(result.status, 0);
  const auto printed = lines(result.out);
  ASSERT_EQ(printed.size(), 3u) << result.out;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::regex_match(printed[i],
                                 std::regex(fmt::format("cpu:{}  cpu  \\d+ cores? \\(.*\\) of .*  [\\d.]+ GiB", i))))
        << printed[i];
  }
}

}  // namespace
}  // namespace lockstep
