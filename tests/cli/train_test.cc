// The output and files of `train` and `eval`, which other programs read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <thread>

#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/weights.h"
#include "tests/cli/tool.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class Train : public ::testing::Test {
 protected:
  ToolResult train(const Arguments& more) { return run_tool(train_arguments(data_, more)); }
  // The weights of a run that must succeed.
  std::string weights_of(const Arguments& more) {
    const std::filesystem::path log = folder_ / "weights.log";
    Arguments all = more;
    all.insert(all.end(), {"--log", log});
    const ToolResult result = train(all);
    EXPECT_EQ(result.status, 0) << result.err;
    const auto end = events(log, "end");
    return end.empty() ? "none" : end.back().at("weights_sha256").get<std::string>();
  }
  SmallData data_;
  TemporaryFolder folder_;
};

TEST_F(Train, PrintsALineAnEpochAndOneAtTheEnd) {
  const ToolResult result = train({"--num-devices", "2"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");  // no terminal, no progress bar
  const auto printed = lines(result.out);
  ASSERT_EQ(printed.size(), 5u) << result.out;
  EXPECT_EQ(printed[0], "running on: [cpu:0, cpu:1]");
  EXPECT_TRUE(
      std::regex_match(printed[1], std::regex("recipe [0-9a-f]{8}: seed 0, 4 shards, batch 32, sgd at 0.1, f32")))
      << result.out;
  const std::string number = R"(\d+\.)";
  for (const int epoch : {1, 2}) {
    const std::regex form("epoch " + std::to_string(epoch) +
                          R"(, time \d+\.\d sec, train loss \d+\.\d{3}, test acc [01]\.\d\d)");
    EXPECT_TRUE(std::regex_match(printed[static_cast<std::size_t>(epoch + 1)], form)) << result.out;
  }
  EXPECT_TRUE(
      std::regex_match(printed[4], std::regex(R"(test acc: [01]\.\d\d, \d+\.\d sec/epoch on \[cpu:0, cpu:1\])")))
      << result.out;
  // The job reports the last epoch's accuracy.
  EXPECT_EQ(printed[4].substr(10, 4), printed[3].substr(printed[3].size() - 4));
}

TEST_F(Train, LogsEveryStepExactly) {
  const std::filesystem::path log = folder_ / "log.jsonl";
  ASSERT_EQ(train({"--num-devices", "2", "--log", log}).status, 0);
  const auto all = read_log(log);
  ASSERT_EQ(all.size(), 1u + 2 * (4 + 1) + 1);

  const nlohmann::json& start = all.front();
  EXPECT_EQ(start.at("event"), "start");
  EXPECT_EQ(start.at("devices"), (nlohmann::json{"cpu:0", "cpu:1"}));
  EXPECT_EQ(start.at("shards"), 4);
  EXPECT_EQ(start.at("world_size"), 1);
  EXPECT_EQ(start.at("parameters"), 784 * 256 + 256 + 256 * 10 + 10);

  std::int64_t step = 0;
  for (const int epoch : {1, 2}) {
    double sum = 0;
    std::int64_t samples = 0;
    for (const std::int64_t expected : {32, 32, 32, 4}) {
      const nlohmann::json& line = all[static_cast<std::size_t>(++step + epoch - 1)];
      EXPECT_EQ(line.at("event"), "step");
      EXPECT_EQ(line.at("step"), step);
      EXPECT_EQ(line.at("epoch"), epoch);
      EXPECT_EQ(line.at("samples"), expected);
      EXPECT_GT(line.at("images_per_second"), 0);
      EXPECT_GT(line.at("seconds"), 0);
      sum += line.at("loss").get<double>() * static_cast<double>(expected);
      samples += expected;
    }
    const nlohmann::json& line = all[static_cast<std::size_t>(step + epoch)];
    EXPECT_EQ(line.at("event"), "epoch");
    EXPECT_EQ(line.at("epoch"), epoch);
    EXPECT_GT(line.at("seconds"), 0);
    EXPECT_EQ(line.at("test_total"), SmallData::kTest);
    EXPECT_EQ(line.at("test_acc").get<double>(), line.at("test_correct").get<double>() / SmallData::kTest);
    // The losses kept all their bits: the mean of the values read equals the logged mean.
    EXPECT_EQ(line.at("train_loss").get<double>(), sum / static_cast<double>(samples));
  }
  // Ten classes that start alike.
  EXPECT_NEAR(all[1].at("loss").get<double>(), 2.3026, 0.1);

  const nlohmann::json& end = all.back();
  EXPECT_EQ(end.at("event"), "end");
  EXPECT_EQ(end.at("steps"), 8);
  EXPECT_EQ(end.at("test_acc"), all[all.size() - 2].at("test_acc"));
}

TEST_F(Train, TheLoggedHashIsThatOfTheExportedWeights) {
  const std::filesystem::path file = folder_ / "weights.safetensors";
  const std::string logged = weights_of({"--model", "lenet", "--export", file});
  SafetensorsFile weights = read_safetensors(file);
  std::ranges::sort(weights.tensors, {}, &TensorBytes::name);
  EXPECT_EQ(weights.tensors.size(), 10u);
  Sha256 hash;
  for (const TensorBytes& tensor : weights.tensors) hash.update(tensor.bytes);
  EXPECT_EQ(logged, hash.hex());
}

TEST_F(Train, FineTunesFromWeightsThatFitInPart) {
  const std::filesystem::path file = folder_ / "weights", log = folder_ / "log";
  ASSERT_EQ(train({"--model", "mlp", "--export", file}).status, 0);
  const ToolResult strict = train({"--model", "lenet", "--init-from", file});
  EXPECT_EQ(strict.status, 1);
  SafetensorsFile weights = read_safetensors(file);
  weights.tensors.erase(weights.tensors.begin());
  write_safetensors(file, weights.tensors, {});
  const ToolResult result = train({"--init-from", file, "--partial", "--log", log});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("lockstep: --partial: not in the file: 1.weight"));
  EXPECT_EQ(lines(result.err).size(), 1u);
  EXPECT_TRUE(events(log, "start").at(0).contains("init_from"));
}

TEST_F(Train, EndsEarlyAndKeepsTheBestCheckpointAndTheAverage) {
  const std::filesystem::path save = folder_ / "save", file = folder_ / "average", log = folder_ / "log";
  // Nothing is learned, so nothing improves.
  const ToolResult result =
      train({"--lr", "0", "--epochs", "9", "--patience", "2", "--save", save, "--save-best", "--log", log});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("lockstep: ended after step 12: 2 epochs without a better value"));
  EXPECT_EQ(events(log, "end").at(0).at("steps"), 12);
  EXPECT_EQ(find_latest_checkpoint(save / "best").checkpoint->step, 4);
  // The average of one step is the weights; later it is another.
  const std::string once = weights_of({"--average", "0.9", "--max-steps", "1", "--export", file});
  const auto hash_of = [&] {
    SafetensorsFile weights = read_safetensors(file);
    std::ranges::sort(weights.tensors, {}, &TensorBytes::name);
    Sha256 hash;
    for (const TensorBytes& tensor : weights.tensors) hash.update(tensor.bytes);
    return hash.hex();
  };
  EXPECT_EQ(hash_of(), once);
  EXPECT_NE(weights_of({"--average", "0.9", "--max-steps", "2", "--export", file}), hash_of());
}

TEST_F(Train, TheWeightsDoNotDependOnTheDevices) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const std::string one = weights_of({"--num-devices", "1", "--dtype", dtype});
    EXPECT_EQ(weights_of({"--num-devices", "3", "--dtype", dtype}), one);
    EXPECT_EQ(weights_of({"--devices", "cpu:1,cpu:0", "--dtype", dtype}), one);
    EXPECT_NE(weights_of({"--seed", "1", "--dtype", dtype}), one);
  }
}

TEST_F(Train, F16LogsTheLossScaleAndGoesOnFromACheckpoint) {
  const std::filesystem::path log = folder_ / "log", save = folder_ / "save", file = folder_ / "weights";
  const Arguments f16{"--dtype", "f16", "--loss-scale", "16777216", "--log", log};
  auto with = [&](Arguments more) {
    more.insert(more.end(), f16.begin(), f16.end());
    return train(more);
  };
  const ToolResult whole = with({"--export", file});
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("lockstep: CPUs compute f16 in f32"));
  const auto steps = events(log, "step");
  ASSERT_EQ(steps.size(), 8u);
  EXPECT_EQ(steps[0].at("loss_scale"), 16777216);
  EXPECT_EQ(steps[1].at("loss_scale"), 8388608);  // the first step overflows
  const auto weights = events(log, "end").at(0).at("weights_sha256");

  ASSERT_EQ(with({"--max-steps", "3", "--save", save}).status, 0);
  ASSERT_EQ(with({"--resume", save}).status, 0);
  EXPECT_EQ(events(log, "step").back().at("loss_scale"), steps.back().at("loss_scale"));
  EXPECT_EQ(events(log, "end").back().at("weights_sha256"), weights);
  EXPECT_THAT(train({"--resume", save}).err, HasSubstr("was made with --dtype f16; this run has --dtype f32\n"));

  const ToolResult eval = run_tool(
      {"eval", "--data", data_.path(), "--model", "mlp", "--init-from", file, "--dtype", "f16", "--batch-size", "7"});
  EXPECT_EQ(eval.status, 0) << eval.err;
  EXPECT_THAT(eval.out, HasSubstr("of 30)"));
}

TEST_F(Train, RecordedStepsGiveTheSameWeights) {
  for (const Arguments& more :
       {Arguments{"--schedule", "cosine", "--momentum", "0.9"}, Arguments{"--optimizer", "adamw"},
        Arguments{"--num-devices", "3", "--clip", "0.1"}, Arguments{"--dtype", "f16", "--loss-scale", "16777216"}}) {
    Arguments recorded = more;
    recorded.push_back("--record-steps");
    EXPECT_EQ(weights_of(recorded), weights_of(more)) << more[0];
  }
}

TEST_F(Train, OptionsOfTheRecipeReachTheTraining) {
  const std::string plain = weights_of({});
  for (const Arguments& more :
       {Arguments{"--momentum", "0.9"}, Arguments{"--weight-decay", "0.01"}, Arguments{"--optimizer", "adam"},
        Arguments{"--optimizer", "adamw"}, Arguments{"--schedule", "cosine"}, Arguments{"--warmup", "4"},
        Arguments{"--clip", "0.01"}, Arguments{"--label-smoothing", "0.1"}, Arguments{"--no-shuffle"},
        Arguments{"--limit-train", "50"}, Arguments{"--lr", "0.05"}}) {
    EXPECT_NE(weights_of(more), plain) << more[0];
  }
  EXPECT_EQ(weights_of({}), plain);
}

TEST_F(Train, EvalCountsTheSameImagesAsTraining) {
  const std::filesystem::path log = folder_ / "log", file = folder_ / "weights";
  ASSERT_EQ(train({"--epochs", "5", "--momentum", "0.9", "--log", log, "--export", file}).status, 0);
  const std::int64_t correct = events(log, "epoch").back().at("test_correct");
  EXPECT_GT(correct, 10);  // it has learned: chance is 3 of 30
  for (const char* devices : {"1", "3"}) {
    const ToolResult result = run_tool({"eval", "--data", data_.path(), "--model", "mlp", "--init-from", file,
                                        "--num-devices", devices, "--batch-size", "7"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.out, fmt::format("test acc: {:.4f} ({} of 30)\n", static_cast<double>(correct) / 30, correct));
  }
  // A run that starts from these weights begins where this one ended.
  ASSERT_EQ(train({"--epochs", "0", "--init-from", file, "--log", log}).status, 0);
  EXPECT_EQ(events(log, "end").at(0).at("test_acc").get<double>(), static_cast<double>(correct) / 30);
}

TEST_F(Train, DrawsAPlot) {
  ASSERT_EQ(train({"--plot", folder_ / "plot.svg"}).status, 0);
  EXPECT_THAT(folder_.read("plot.svg"), HasSubstr("<svg"));
}

TEST_F(Train, ResumesToTheBitOnOtherDevices) {
  const std::filesystem::path whole = folder_ / "whole.log", log = folder_ / "part.log", save = folder_ / "save";
  ASSERT_EQ(train({"--optimizer", "adam", "--lr", "0.01", "--log", whole}).status, 0);
  // Stopped in the middle of the second epoch, after steps 1 to 6 of 8.
  ASSERT_EQ(train({"--optimizer", "adam", "--lr", "0.01", "--log", log, "--save", save, "--max-steps", "6"}).status, 0);
  const ToolResult resumed =
      train({"--optimizer", "adam", "--lr", "0.01", "--log", log, "--resume", save, "--num-devices", "3"});
  EXPECT_EQ(resumed.status, 0);
  EXPECT_THAT(resumed.err, ::testing::MatchesRegex("lockstep: resumed from .*step-00000006, step 6\n"));
  auto losses = [](const std::filesystem::path& file) {
    std::vector<double> all;
    for (const nlohmann::json& step : events(file, "step")) all.push_back(step.at("loss"));
    return all;
  };
  EXPECT_EQ(losses(log), losses(whole));
  const nlohmann::json end = events(log, "end").back(), expected = events(whole, "end").back();
  EXPECT_EQ(end, expected);
  EXPECT_EQ(events(log, "epoch").back().at("train_loss"), events(whole, "epoch").back().at("train_loss"));
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

TEST_F(Train, MoreDevicesThanShardsNeedAnOption) {
  const Arguments common{"train", "--data", data_.path(), "--model", "mlp", "--batch-size", "64", "--num-devices", "3"};
  const ToolResult result = run_tool(common);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(
      result.err,
      HasSubstr("a batch of 64 makes 2 shards for 3 devices: expected at least one for each. --shards 3 gives"));
  Arguments more = common;
  more.insert(more.end(), {"--shards", "3", "--epochs", "1"});
  EXPECT_EQ(run_tool(more).status, 0);
}

TEST_F(Train, ResumesFromACheckpointOfAnOlderVersion) {
  const std::string save = folder_ / "save", old = folder_ / "old", whole = folder_ / "whole.log",
                    log = folder_ / "log";
  ASSERT_EQ(train({"--log", whole}).status, 0);
  ASSERT_EQ(train({"--max-steps", "3", "--save", save}).status, 0);
  const Checkpoint checkpoint = *find_latest_checkpoint(save).checkpoint;
  CheckpointWriter writer(old, checkpoint.step);
  for (const std::string& name : checkpoint.files) {
    std::string contents = folder_.read("save/step-00000003/" + name);
    if (name == "state.json") {
      nlohmann::json state = nlohmann::json::parse(contents);
      state.at("recipe").erase("data");
      state.at("recipe")["threads_per_shard"] = 1;  // affected bits in older versions
      state.erase("recipe_hash");
      state.erase("version");
      contents = state.dump();
    }
    writer.add_file(name, contents);
  }
  writer.publish();
  const ToolResult resumed = train({"--resume", old, "--log", log});
  EXPECT_EQ(resumed.status, 0);
  EXPECT_THAT(resumed.err, HasSubstr("step 3; the checkpoint does not record data: this run's setting is used\n"));
  EXPECT_EQ(events(log, "end").back(), events(whole, "end").back());
}

// Another number of shards would be refused.
TEST_F(Train, AResumedRunWithMoreDevicesThanShardsNeedsFewerDevices) {
  const std::string save = folder_ / "save";
  ASSERT_EQ(train({"--shards", "2", "--max-steps", "2", "--save", save}).status, 0);
  Arguments resume{"train", "--data", data_.path(), "--model", "mlp", "--batch-size", "32", "--resume", save};
  resume.insert(resume.end(), {"--num-devices", "3"});
  const std::string help = "A resumed run keeps its checkpoint's number of shards, 2: use no more devices\n";
  const ToolResult result = run_tool(resume);
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err, "lockstep: the checkpoint has 2 shards for 3 devices: expected at least one for each. " + help);
  resume.insert(resume.end(), {"--shards", "1"});
  EXPECT_EQ(run_tool(resume).err, "lockstep: --shards 1 for 3 devices: expected at least one for each. " + help);
}

// One device in rank 0, two in rank 1.
TEST_F(Train, RanksMayHaveDifferentNumbersOfDevices) {
  const std::string log = folder_ / "log", ranks_log = folder_ / "ranks.log";
  const std::string common = "train --data " + data_.path() + " --model mlp --batch-size 96 --epochs 1";
  const auto launch = [&](const std::string& more) {
    const std::string rank = LOCKSTEP_TOOL " " + common + " --num-devices $((RANK + 1)) " + more;
    return run_tool({"launch", "--nproc-per-node", "2", "--", "/bin/sh", "-c", rank});
  };
  const ToolResult refused = launch("");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("a batch of 96 makes 2 shards for 3 devices of 2 ranks: expected at least one for each"));
  const ToolResult result = launch("--shards 3 --log " + ranks_log);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(run_tool({"train", "--data", data_.path(), "--model", "mlp", "--batch-size", "96", "--epochs", "1",
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
  if (std::thread::hardware_concurrency() < 2) return;  // one core is never idle
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

// The hash covers exactly the settings that decide the bits.
TEST_F(Train, TheRecipesHashNamesTheRun) {
  const std::filesystem::path log = folder_ / "log", weights = folder_ / "weights", save = folder_ / "save";
  auto recipe = [&](const Arguments& more) {
    Arguments all = more;
    all.insert(all.end(), {"--log", log});
    const ToolResult result = train(all);
    EXPECT_EQ(result.status, 0) << result.err;
    const std::string hash = events(log, "start").at(0).at("recipe");
    EXPECT_EQ(hash.size(), 64u);
    EXPECT_THAT(result.out, HasSubstr("\nrecipe " + hash.substr(0, 8) + ": seed "));
    return hash;
  };
  const std::string plain = recipe({"--export", weights});
  EXPECT_EQ(recipe({"--num-devices", "3", "--epochs", "1"}), plain);
  std::set<std::string> all{plain};
  const std::vector<Arguments> others = {{"--seed", "1"},       {"--shards", "2"},       {"--lr", "0.2"},
                                         {"--momentum", "0.5"}, {"--limit-train", "99"}, {"--init-from", weights},
                                         {"--sync-bn"}};
  for (const Arguments& other : others) all.insert(recipe(other));
  EXPECT_EQ(all.size(), others.size() + 1);
  const SmallData other_pictures(3);
  EXPECT_NE(recipe({"--data", other_pictures.path()}), plain);

  // Checkpoints contain it, and a resumed run keeps its original start weights.
  const std::string started = recipe({"--init-from", weights, "--max-steps", "2", "--save", save});
  const auto state = nlohmann::json::parse(std::ifstream(find_latest_checkpoint(save).checkpoint->file("state.json")));
  EXPECT_EQ(state.at("recipe_hash"), started);
  std::filesystem::remove(log);
  EXPECT_EQ(recipe({"--max-steps", "4", "--resume", save}), started);
}

TEST_F(Train, AResumedRunsPlotIsThatOfTheWholeRun) {
  const std::string save = folder_ / "save", whole = folder_ / "whole.svg", plot = folder_ / "plot.svg";
  ASSERT_EQ(train({"--epochs", "4", "--plot", whole}).status, 0);
  ASSERT_EQ(train({"--epochs", "4", "--plot", plot, "--save", save, "--max-steps", "10"}).status, 0);
  EXPECT_NE(folder_.read("plot.svg"), folder_.read("whole.svg"));
  ASSERT_EQ(train({"--epochs", "4", "--plot", plot, "--resume", save}).status, 0);
  EXPECT_EQ(folder_.read("plot.svg"), folder_.read("whole.svg"));
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

// The earlier run continued after its checkpoint, which lies inside an epoch and before the end.
TEST_F(Train, AResumedRunsLogHasEachStepOnce) {
  const std::string whole = folder_ / "whole.log", log = folder_ / "log", save = folder_ / "save";
  ASSERT_EQ(train({"--epochs", "3", "--log", whole}).status, 0);
  ASSERT_EQ(train({"--epochs", "3", "--log", log, "--save", save, "--save-every", "6", "--max-steps", "10"}).status, 0);
  ASSERT_EQ(events(log, "step").size(), 10u);
  ASSERT_EQ(train({"--epochs", "3", "--log", log, "--resume", save + "/step-00000006"}).status, 0);
  auto without_times = [](std::vector<nlohmann::json> events) {
    for (nlohmann::json& event : events) event.erase("seconds"), event.erase("images_per_second");
    return events;
  };
  for (const char* kind : {"step", "epoch", "end"}) {
    EXPECT_EQ(without_times(events(log, kind)), without_times(events(whole, kind))) << kind;
  }
  EXPECT_EQ(events(log, "start").size(), 2u);
}

// Omitted shard settings come from the checkpoint.
TEST_F(Train, ResumesOnOtherDevicesAndProcessesWithoutBeingToldTheShards) {
  const std::filesystem::path log = folder_ / "log", whole = folder_ / "whole.log", save = folder_ / "save";
  const Arguments common{"train", "--data", data_.path(), "--model", "mlp", "--batch-size", "32", "--epochs", "3"};
  auto run = [&](Arguments words, const Arguments& more) {
    words.insert(words.end(), common.begin(), common.end());
    words.insert(words.end(), more.begin(), more.end());
    const ToolResult result = run_tool(words);
    EXPECT_EQ(result.status, 0) << result.err;
  };
  run({}, {"--num-devices", "2", "--shards", "3", "--threads-per-shard", "2", "--log", whole});
  run({}, {"--num-devices", "2", "--shards", "3", "--threads-per-shard", "2", "--max-steps", "3", "--save", save});
  run({}, {"--num-devices", "1", "--max-steps", "6", "--save", save, "--resume", save});
  run({"launch", "--nproc-per-node", "2", "--", "lockstep"},
      {"--num-devices", "1", "--log", log, "--save", save, "--resume", save});
  EXPECT_EQ(events(whole, "start").at(0).at("shards"), 3);
  EXPECT_EQ(events(log, "step").at(0).at("step"), 7);
  EXPECT_EQ(events(log, "end").at(0), events(whole, "end").at(0));
}

TEST_F(Train, ARestartGoesOnFromItsOwnCheckpointNotFromTheFirstOne) {
  const std::string first = folder_ / "first", second = folder_ / "second";
  ASSERT_EQ(train({"--max-steps", "2", "--save", first}).status, 0);
  ASSERT_EQ(train({"--max-steps", "4", "--resume", first, "--save", second}).status, 0);
  const ToolResult again =
      run_tool(train_arguments(data_, {"--max-steps", "6", "--resume", first, "--save", second}),
               {.environment = {"PATH=/usr/bin:/bin", "RANK=0", "WORLD_SIZE=1", "TORCHELASTIC_RESTART_COUNT=1"}});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("resumed from " + second));
}

TEST_F(Train, AKilledRunResumesToTheBit) {
  using namespace std::chrono_literals;
  const std::filesystem::path log = folder_ / "log", save = folder_ / "save";
  Tool tool(train_arguments(data_, {"--epochs", "1000000", "--log", log, "--save", save, "--save-every", "1"}));
  for (int i = 0; i < 5000 && events(log, "step").size() < 6; ++i) std::this_thread::sleep_for(2ms);
  tool.send(SIGKILL);
  EXPECT_EQ(tool.wait().status, 128 + SIGKILL);
  const auto latest = find_latest_checkpoint(save).checkpoint;
  ASSERT_TRUE(latest.has_value());
  EXPECT_GE(latest->step, 5);
  const std::string further = std::to_string(latest->step + 3);
  EXPECT_EQ(weights_of({"--epochs", "1000000", "--max-steps", further, "--resume", save, "--num-devices", "3"}),
            weights_of({"--epochs", "1000000", "--max-steps", further}));
}

class Interrupt : public Train, public ::testing::WithParamInterface<int> {};

TEST_P(Interrupt, EndsWithACheckpointThatResumes) {
  using namespace std::chrono_literals;
  const std::filesystem::path log = folder_ / "log", save = folder_ / "save";
  Tool tool(train_arguments(data_, {"--epochs", "1000000", "--log", log, "--save", save}));
  for (int i = 0; i < 5000 && events(log, "step").size() < 3; ++i) std::this_thread::sleep_for(2ms);
  tool.send(GetParam());
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 130) << result.err;
  std::smatch found;
  ASSERT_TRUE(std::regex_match(result.err, found,
                               std::regex("lockstep: interrupted at step (\\d+); the checkpoint is in .*\n")))
      << result.err;
  const int step = std::stoi(found[1]);
  EXPECT_EQ(static_cast<int>(events(log, "step").size()), step);
  EXPECT_TRUE(std::filesystem::exists(save / fmt::format("step-{:08}", step)));

  const std::string further = std::to_string(step + 3);
  EXPECT_EQ(weights_of({"--epochs", "1000000", "--max-steps", further, "--resume", save, "--num-devices", "2"}),
            weights_of({"--epochs", "1000000", "--max-steps", further}));
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupt, ::testing::Values(SIGINT, SIGTERM),
                         [](const auto& info) { return info.param == SIGINT ? "SIGINT" : "SIGTERM"; });

TEST_F(Train, InterruptWithoutAFolderForCheckpointsSaysJustThat) {
  using namespace std::chrono_literals;
  const std::filesystem::path log = folder_ / "log";
  Tool tool(train_arguments(data_, {"--epochs", "1000000", "--log", log}));
  for (int i = 0; i < 5000 && events(log, "step").size() < 3; ++i) std::this_thread::sleep_for(2ms);
  tool.send(SIGINT);
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 130);
  EXPECT_TRUE(std::regex_match(result.err, std::regex("lockstep: interrupted at step \\d+\n"))) << result.err;
}

TEST_F(Train, AnInterruptedRunIsMarkedAsOne) {
  using namespace std::chrono_literals;
  const std::filesystem::path log = folder_ / "log", file = folder_ / "weights";
  // The first epoch is long enough to be stopped in.
  Tool tool(train_arguments(data_, {"--batch-size", "4", "--model", "resnet18", "--log", log, "--export", file}));
  for (int i = 0; i < 10000 && events(log, "step").empty(); ++i) std::this_thread::sleep_for(2ms);
  tool.send(SIGINT);
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 130);
  EXPECT_THAT(result.err, HasSubstr("; " + file.string() + " has the weights of this step\n"));
  EXPECT_FALSE(read_safetensors(file).tensors.empty());
  const nlohmann::json end = events(log, "end").at(0);
  EXPECT_EQ(end.at("stopped"), true);
  EXPECT_FALSE(end.contains("test_acc")) << end;  // nothing was evaluated
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
