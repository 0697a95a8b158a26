// Runs of `train` that resume from a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "tests/cli/train_testing.h"
#include "tests/wait_until.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST_F(Train, ResumesToTheBitOnOtherDevices) {
  const std::filesystem::path whole = folder_ / "whole.log", log = folder_ / "part.log", save = folder_ / "save";
  ASSERT_EQ(train({"--optimizer", "adam", "--lr", "0.01", "--log", whole}).status, 0);
  // Stopped in the middle of the second epoch, after steps 1 to 6 of 8.
  ASSERT_EQ(train({"--optimizer", "adam", "--lr", "0.01", "--log", log, "--save", save, "--max-steps", "6"}).status, 0);
  const ToolResult resumed =
      train({"--optimizer", "adam", "--lr", "0.01", "--log", log, "--resume", save, "--num-devices", "3"});
  EXPECT_EQ(resumed.status, 0);
  EXPECT_THAT(resumed.err,
              ::testing::MatchesRegex("lockstep: resumed from .*step-00000006, step 6\n"
                                      "lockstep: no more checkpoints are written; --save DIR continues to write "
                                      "them\n"));
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

TEST_F(Train, RmspropResumesWithItsMomentum) {
  const std::filesystem::path log = folder_ / "log", save = folder_ / "save";
  const auto end = [&](Arguments more) {
    more.insert(more.end(), {"--optimizer", "rmsprop", "--lr", "0.01", "--log", log});
    const ToolResult result = train(more);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, ::testing::Not(HasSubstr("--momentum changes nothing")));
    return events(log, "end").back().at("weights_sha256");
  };
  const auto whole = end({"--momentum", "0.5"});
  EXPECT_EQ(events(log, "start").at(0).at("optimizer"), "rmsprop");
  EXPECT_EQ(events(log, "start").at(0).at("momentum"), 0.5);
  EXPECT_NE(end({}), whole);
  end({"--momentum", "0.5", "--save", save, "--max-steps", "6"});
  EXPECT_EQ(end({"--momentum", "0.5", "--resume", save}), whole);
  EXPECT_THAT(train({"--optimizer", "rmsprop", "--lr", "0.01", "--resume", save}).err,
              HasSubstr("--momentum 0.5; this run has --momentum 0.0"));
}

TEST_F(Train, ResumesFromTheNewestCheckpointThatIsWhole) {
  const std::string save = folder_ / "save";
  ASSERT_EQ(train({"--max-steps", "6", "--save", save, "--save-every", "3"}).status, 0);
  const Checkpoint newest = *find_latest_checkpoint(save).checkpoint;
  ASSERT_EQ(newest.step, 6);
  folder_.write("save/step-00000006/" + newest.files.front(), "damaged");
  const ToolResult resumed = train({"--resume", save, "--save", folder_ / "other"});
  EXPECT_EQ(resumed.status, 0);
  const auto printed = lines(resumed.err);
  ASSERT_EQ(printed.size(), 2u) << resumed.err;
  EXPECT_THAT(printed[0], ::testing::StartsWith("lockstep: skipped a damaged checkpoint: "));
  EXPECT_THAT(printed[0], HasSubstr("step-00000006"));
  EXPECT_THAT(printed[1], ::testing::MatchesRegex("lockstep: resumed from .*step-00000003, step 3"));
}

TEST_F(Train, OneRankReportsADamagedCheckpoint) {
  const std::string save = folder_ / "save";
  ASSERT_EQ(train({"--max-steps", "6", "--save", save, "--save-every", "3"}).status, 0);
  folder_.write("save/step-00000006/" + find_latest_checkpoint(save).checkpoint->files.front(), "damaged");
  Arguments arguments = train_arguments(data_, {"--max-steps", "6", "--save", save, "--resume", "auto"});
  arguments.insert(arguments.begin(), {"launch", "--nproc-per-node", "2", "--", "lockstep"});
  const ToolResult resumed = run_tool(arguments);
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  const auto printed = lines(resumed.err);
  ASSERT_EQ(printed.size(), 2u) << resumed.err;
  EXPECT_THAT(printed[0], ::testing::StartsWith("[rank 0] lockstep: skipped a damaged checkpoint: "));
  EXPECT_THAT(printed[1], HasSubstr("step-00000003, step 3"));
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

TEST_F(Train, AResumedRunsPlotIsThatOfTheWholeRun) {
  const std::string save = folder_ / "save", whole = folder_ / "whole.svg", plot = folder_ / "plot.svg";
  ASSERT_EQ(train({"--epochs", "4", "--plot", whole}).status, 0);
  ASSERT_EQ(train({"--epochs", "4", "--plot", plot, "--save", save, "--max-steps", "10"}).status, 0);
  EXPECT_NE(folder_.read("plot.svg"), folder_.read("whole.svg"));
  ASSERT_EQ(train({"--epochs", "4", "--plot", plot, "--resume", save}).status, 0);
  EXPECT_EQ(folder_.read("plot.svg"), folder_.read("whole.svg"));
}

// The earlier run continued after its checkpoint, which lies inside an epoch and before the end.
TEST_F(Train, AResumedRunsLogHasEachStepOnce) {
  const std::string whole = folder_ / "whole.log", log = folder_ / "log", save = folder_ / "save";
  ASSERT_EQ(train({"--epochs", "3", "--log", whole}).status, 0);
  ASSERT_EQ(train({"--epochs", "3", "--log", log, "--save", save, "--save-every", "6", "--max-steps", "10"}).status, 0);
  ASSERT_EQ(events(log, "step").size(), 10u);
  ASSERT_EQ(train({"--epochs", "3", "--log", log, "--resume", save + "/step-00000006"}).status, 0);
  auto without_times = [](std::vector<nlohmann::json> events) {
    for (nlohmann::json& event : events)
      event.erase("seconds"), event.erase("data_seconds"), event.erase("images_per_second");
    return events;
  };
  for (const char* kind : {"step", "epoch", "end"}) {
    EXPECT_EQ(without_times(events(log, kind)), without_times(events(whole, kind))) << kind;
  }
  EXPECT_EQ(events(log, "start").size(), 2u);
}

TEST_F(Train, AResumedRunsWeightsLogHasEachStepOnce) {
  const std::string save = folder_ / "save";
  ASSERT_EQ(train({"--weights-log", folder_ / "whole"}).status, 0);
  ASSERT_EQ(train({"--weights-log", folder_ / "part", "--save", save, "--save-every", "3", "--max-steps", "5"}).status,
            0);
  ASSERT_EQ(train({"--weights-log", folder_ / "part", "--resume", save + "/step-00000003"}).status, 0);
  EXPECT_EQ(folder_.read("part"), folder_.read("whole"));
}

// The other commands prefer the folder best, so it must not be taken for the best epoch of the longer run.
TEST_F(Train, AnOldBestCheckpointIsNotTakenInSilence) {
  const std::string save = folder_ / "save";
  // Nothing is learned, so the first epoch is the best.
  const Arguments run{"--lr", "0", "--save", save, "--resume", "auto"};
  const auto resumed = [&](const Arguments& more) {
    Arguments all = run;
    all.insert(all.end(), more.begin(), more.end());
    const ToolResult result = train(all);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  EXPECT_EQ(resumed({"--epochs", "1", "--save-best"}), "");
  EXPECT_EQ(run_tool({"predict", "--run", save, data_.path()}).err, "");
  EXPECT_THAT(resumed({"--epochs", "2", "--save-best"}), ::testing::Not(HasSubstr("folder best")));
  EXPECT_THAT(resumed({"--epochs", "3"}), HasSubstr("--save " + save +
                                                    ": eval, predict, and export take the weights in its folder best, "
                                                    "which this run leaves as they are; --save-best"));
  for (const Arguments& command : {Arguments{"predict", "--run", save, data_.path()},
                                   {"eval", "--run", save},
                                   {"export", "--run", save, folder_ / "net.onnx"}}) {
    const ToolResult result = run_tool(command);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "lockstep: --run " + save + ": takes the weights of " + save +
                              "/best/step-00000004; the newest checkpoint is " + save + "/step-00000012\n");
  }
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
  const std::filesystem::path log = folder_ / "log", save = folder_ / "save";
  Tool tool(train_arguments(data_, {"--epochs", "1000000", "--log", log, "--save", save, "--save-every", "1"}));
  ASSERT_TRUE(wait_until([&] { return events(log, "step").size() >= 6; }));
  tool.send(SIGKILL);
  EXPECT_EQ(tool.wait().status, 128 + SIGKILL);
  const auto latest = find_latest_checkpoint(save).checkpoint;
  ASSERT_TRUE(latest.has_value());
  EXPECT_GE(latest->step, 5);
  const std::string further = std::to_string(latest->step + 3);
  EXPECT_EQ(weights_of({"--epochs", "1000000", "--max-steps", further, "--resume", save, "--num-devices", "3"}),
            weights_of({"--epochs", "1000000", "--max-steps", further}));
}

// One command starts the run, goes on after a kill, and has nothing left to do after the end.
TEST_F(Train, OneCommandStartsAndGoesOn) {
  const std::string save = folder_ / "save";
  const std::string whole = weights_of({"--epochs", "3"});
  for (const Arguments& words : {Arguments{"--resume", "auto"}, {"--resume", save + "/"}}) {
    std::filesystem::remove_all(save);
    Arguments all{"--epochs", "3", "--save", save};
    all.insert(all.end(), words.begin(), words.end());
    Arguments stopped = all;
    stopped.insert(stopped.end(), {"--max-steps", "5"});
    const ToolResult start = train(stopped);
    EXPECT_EQ(start.status, 0);
    EXPECT_EQ(start.err, "");
    EXPECT_EQ(weights_of(all), whole);
    const ToolResult end = train(all);
    EXPECT_EQ(end.status, 0);
    EXPECT_THAT(end.err, HasSubstr("nothing left to do: the checkpoint has 12 steps, 3 epochs; --epochs 3\n"));
    EXPECT_THAT(end.out, ::testing::MatchesRegex("(.|\n)*\ntest acc: [01].[0-9]* on .cpu:0.\n"));
  }
  const ToolResult other = train({"--save", save, "--resume", "auto", "--lr", "0.2"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("the checkpoint was made with --lr 0.1; this run has --lr 0.2"));
  EXPECT_EQ(train({"--resume", "auto"}).err, "lockstep: --resume auto: only with --save\n");
}

TEST_F(Train, OneCommandStartsFromWeightsAndGoesOn) {
  const std::string save = folder_ / "save", start = folder_ / "start", other = folder_ / "other";
  ASSERT_EQ(train({"--max-steps", "1", "--seed", "5", "--export", start}).status, 0);
  ASSERT_EQ(train({"--max-steps", "1", "--seed", "6", "--export", other}).status, 0);
  const std::string whole = weights_of({"--init-from", start});
  ASSERT_EQ(train({"--init-from", start, "--save", save, "--resume", "auto", "--max-steps", "3"}).status, 0);
  EXPECT_EQ(weights_of({"--init-from", start, "--save", save, "--resume", "auto"}), whole);
  // The start weights are in the recipe.
  EXPECT_THAT(train({"--init-from", other, "--save", save, "--resume", "auto"}).err, HasSubstr("initial weights"));
}

TEST_F(Train, ARequeuedSlurmJobGoesOn) {
  const std::string save = folder_ / "save";
  ASSERT_EQ(train({"--max-steps", "2", "--save", save}).status, 0);
  const Arguments more{"--max-steps", "4", "--save", save};
  const auto run = [&](const char* count) {
    return run_tool(train_arguments(data_, more),
                    {.environment = {"PATH=/usr/bin:/bin", std::string("SLURM_RESTART_COUNT=") + count}});
  };
  EXPECT_EQ(run("0").status, 2);
  const ToolResult again = run("1");
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("resumed from " + save));
}

// A rank on another host does not see rank 0's disk, and an old listing of a network disk must not split the job.
TEST_F(Train, OnlyRankZeroReadsTheCheckpoint) {
  const std::string save = folder_ / "save", log = folder_ / "log", whole = folder_ / "whole.log";
  ASSERT_EQ(train({"--log", whole}).status, 0);
  ASSERT_EQ(train({"--max-steps", "3", "--save", save}).status, 0);
  const std::string elsewhere = folder_ / "elsewhere";
  Arguments job{"launch", "--nproc-per-node", "2", "--", "sh", "-c"};
  const auto launch = [&](const std::string& resume) {
    std::string command = "[ $RANK = 0 ] && save=" + save + " || save=" + elsewhere + "; exec " LOCKSTEP_TOOL;
    for (const std::string& word : train_arguments(data_, {"--log", log, "--num-devices", "1"})) command += " " + word;
    Arguments all = job;
    all.push_back(command + " --save $save --resume " + resume);
    return run_tool(all);
  };
  const ToolResult result = launch("auto");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(events(log, "end").at(0), events(whole, "end").at(0));
  EXPECT_FALSE(std::filesystem::exists(elsewhere));
  // All ranks end with rank 0's error.
  const ToolResult missing = launch(folder_ / "none");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("[rank 1] lockstep: --resume: Directory does not exist"));
}

}  // namespace
}  // namespace lockstep
