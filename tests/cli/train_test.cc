// The output and files of `train` and `eval`, which other programs read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>

#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/weights.h"
#include "tests/cli/train_testing.h"
#include "tests/wait_until.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_EQ(start.at("backend"), "host");
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
      EXPECT_EQ(line.at("lr"), 0.1);
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

  // The same weights, with the axes of one of them in the other order.
  ASSERT_EQ(train({"--model", "mlp", "--export", file}).status, 0);
  SafetensorsFile turned = read_safetensors(file);
  const auto first = std::ranges::find(turned.tensors, "1.weight", &TensorBytes::name);
  ASSERT_NE(first, turned.tensors.end());
  first->shape = {first->shape[1], first->shape[0]};
  const std::filesystem::path other = folder_ / "turned";
  write_safetensors(other, turned.tensors, {});
  const ToolResult different = train({"--init-from", other, "--partial"});
  EXPECT_EQ(different.status, 0) << different.err;
  EXPECT_THAT(different.err, HasSubstr("lockstep: --partial: does not fit: 1.weight "));
  EXPECT_EQ(lines(different.err).size(), 1u);
}

TEST_F(Train, KeepsAsManyCheckpointsAsWanted) {
  const std::filesystem::path save = folder_ / "save";
  const auto kept = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(save)) {
      if (const std::string name = entry.path().filename(); name.starts_with("step-")) names.insert(name);
    }
    return names;
  };
  ASSERT_EQ(train({"--max-steps", "6", "--save", save, "--save-every", "1", "--keep", "3"}).status, 0);
  EXPECT_THAT(kept(), ::testing::ElementsAre("step-00000004", "step-00000005", "step-00000006"));
}

TEST_F(Train, EachRankWritesItsTimeline) {
  const auto tasks = [&](const std::string& name) {
    std::set<std::string> names;
    const auto trace = nlohmann::json::parse(folder_.read(name));
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X") names.insert(event.at("name"));
    }
    return names;
  };
  Arguments arguments = train_arguments(data_, {"--max-steps", "1", "--trace", folder_ / "trace.json"});
  ASSERT_EQ(run_tool(arguments).status, 0);
  EXPECT_THAT(tasks("trace.json"), ::testing::Contains("matmul"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "trace.rank1.json"));
  std::filesystem::remove(folder_ / "trace.json");
  arguments.insert(arguments.begin(), {"launch", "-n", "2", "--", "lockstep"});
  const ToolResult result = run_tool(arguments);
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* name : {"trace.json", "trace.rank1.json"}) EXPECT_THAT(tasks(name), ::testing::Contains("matmul"));
}

// eval measures what the run measured.
TEST_F(Train, EvalReadsCheckpointsAndFolders) {
  const std::string save = folder_ / "save";
  const Arguments run{"--epochs", "2", "--save", save, "--save-best", "--average", "0.9"};
  ASSERT_EQ(train(run).status, 0);
  const auto eval = [&](const std::string& from) {
    return run_tool({"eval", "--data", data_.path(), "--model", "mlp", "--init-from", from});
  };
  const std::string newest = eval(save).out;
  EXPECT_THAT(newest, ::testing::StartsWith("test acc: "));
  EXPECT_EQ(eval(save + "/step-00000008").out, newest);
  EXPECT_EQ(eval(save + "/best").status, 0);
  std::string from_log;
  const std::filesystem::path log = folder_ / "log";
  ASSERT_EQ(train({"--epochs", "2", "--average", "0.9", "--log", log}).status, 0);
  const auto epoch = events(log, "epoch").back();
  EXPECT_THAT(newest, HasSubstr(fmt::format("({} of {})", epoch.at("test_correct").get<int>(),
                                            epoch.at("test_total").get<int>())));
  const ToolResult empty = eval(folder_ / ".");
  EXPECT_EQ(empty.status, 1);
  EXPECT_THAT(empty.err, HasSubstr("there is no checkpoint in this folder, expected a safetensors file"));
  EXPECT_EQ(train({"--init-from", save, "--max-steps", "1"}).status, 0);
  EXPECT_THAT(
      eval(folder_.write("net.pth", std::string("PK\3\4\0\0\0\0\0\0", 10))).err,
      HasSubstr("net.pth: this is a file of torch.save(), which only Python can read: convert it with python3"));
}

// The weights of an hour must not be lost with the last line.
TEST_F(Train, AnExportThatCannotBeWrittenGoesElsewhere) {
  const std::filesystem::path place = folder_ / "place", file = place / "net";
  const std::filesystem::path temporary = folder_ / "temporary";
  std::filesystem::create_directories(place);
  std::filesystem::create_directories(temporary);
  const auto export_to_a_folder_that_vanishes = [&](const Arguments& more) {
    std::filesystem::create_directories(place);
    std::filesystem::remove(folder_ / "log");
    Arguments all{"--export", file, "--epochs", "1000000", "--log", folder_ / "log"};
    all.insert(all.end(), more.begin(), more.end());
    Tool tool(train_arguments(data_, all), {.environment = {"PATH=/usr/bin:/bin", "TMPDIR=" + temporary.string()}});
    EXPECT_TRUE(wait_until([&] { return !events(folder_ / "log", "step").empty(); }));
    std::filesystem::remove_all(place);
    tool.send(SIGTERM);
    return tool.wait();
  };
  const ToolResult result = export_to_a_folder_that_vanishes({});
  EXPECT_EQ(result.status, 1);
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(temporary), std::filesystem::directory_iterator()), 1);
  const std::filesystem::path written = std::filesystem::directory_iterator(temporary)->path();
  EXPECT_THAT(result.err, HasSubstr("--export: cannot write " + file.string()));
  EXPECT_THAT(result.err, HasSubstr("; the weights are in " + written.string() + "\n"));
  EXPECT_FALSE(read_safetensors(written).tensors.empty());
  const std::string save = folder_ / "save";
  EXPECT_THAT(export_to_a_folder_that_vanishes({"--save", save}).err,
              HasSubstr("; the checkpoint in " + save + " has the weights\n"));
}

// What it wrote would describe the weights of the other run.
TEST_F(Train, ARunThatDoesNotGetItsFolderWritesNothing) {
  const std::string save = folder_ / "save", hashes = folder_ / "hashes", log = folder_ / "log";
  Tool first(train_arguments(data_, {"--epochs", "1000000", "--save", save, "--save-every", "1000000", "--weights-log",
                                     hashes, "--log", log}));
  ASSERT_TRUE(wait_until([&] { return events(log, "step").size() >= 2; }));
  const std::string json = folder_.read("save/run.json"), toml = folder_.read("save/run.toml");
  EXPECT_THAT(toml, HasSubstr("\nlr = 0.1\n"));
  const ToolResult second = train({"--lr", "0.5", "--save", save, "--weights-log", hashes});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("another run writes to " + save));
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().status, 128 + SIGTERM);
  EXPECT_EQ(folder_.read("save/run.json"), json);
  EXPECT_EQ(folder_.read("save/run.toml"), toml);
  EXPECT_EQ(events(hashes, "weights").at(0).at("step"), 1);
}

TEST_F(Train, ATraceThatCannotBeWrittenLosesNoWeights) {
  const std::filesystem::path place = folder_ / "place", net = folder_ / "net", log = folder_ / "log";
  std::filesystem::create_directories(place);
  Tool tool(
      train_arguments(data_, {"--export", net, "--trace", place / "trace.json", "--epochs", "1000000", "--log", log}));
  EXPECT_TRUE(wait_until([&] { return !events(log, "step").empty(); }));
  std::filesystem::remove_all(place);
  tool.send(SIGTERM);
  EXPECT_EQ(tool.wait().status, 1);
  ASSERT_TRUE(std::filesystem::exists(net));
  EXPECT_FALSE(read_safetensors(net).tensors.empty());
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
        Arguments{"--optimizer", "adamw"}, Arguments{"--optimizer", "rmsprop"}, Arguments{"--optimizer", "adagrad"},
        Arguments{"--optimizer", "adadelta"}, Arguments{"--schedule", "cosine"}, Arguments{"--warmup", "4"},
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

// Numbers of classes alone, since these data are not Fashion-MNIST.
TEST_F(Train, PrintsTheConfusionMatrixAtTheEnd) {
  const ToolResult result = train({"--metrics", "confusion_matrix"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto printed = lines(result.out);
  const auto begin = std::ranges::find(printed, "confusion_matrix:");
  ASSERT_GT(printed.end() - begin, 3) << result.out;
  const auto numbers = [](std::string line) {
    std::istringstream words(line.replace(0, 17, 17, ' '));
    std::vector<int> all;
    for (int n = 0; words >> n;) all.push_back(n);
    return all;
  };
  EXPECT_TRUE(begin[1].starts_with("label \\ predicted")) << begin[1];
  const std::vector<int> classes = numbers(begin[1]);
  int sum = 0, right = 0;
  for (std::size_t row = 0; row < classes.size(); ++row) {
    const std::string& line = begin[static_cast<std::ptrdiff_t>(row) + 2];
    EXPECT_EQ(std::stoi(line), classes[row]);
    const std::vector<int> counts = numbers(line);
    ASSERT_EQ(counts.size(), classes.size());
    for (const int count : counts) sum += count;
    right += counts[row];
  }
  EXPECT_EQ(sum, SmallData::kTest);
  EXPECT_THAT(result.out, HasSubstr(fmt::format("\ntest acc: {:.2f},", static_cast<double>(right) / sum)));
  EXPECT_TRUE(printed.back().starts_with("most often confused: ")) << printed.back();
}

TEST_F(Train, DrawsAPlot) {
  ASSERT_EQ(
      train({"--plot", folder_ / "plot.svg", "--devices", "cpu:0,cpu:1,cpu:2,cpu:3,cpu:4", "--shards", "5"}).status, 0);
  EXPECT_THAT(folder_.read("plot.svg"), HasSubstr("<svg"));
  EXPECT_THAT(folder_.read("plot.svg"), HasSubstr(">mlp on 5 CPU devices</text>"));
}

// The hash covers exactly the settings that decide the bits.
TEST_F(Train, WritesAFileForTensorBoard) {
  ASSERT_EQ(train({"--tensorboard", folder_ / "board", "--histograms", "3"}).status, 0);
  std::filesystem::directory_iterator file(folder_ / "board");
  EXPECT_THAT(file->path().filename().string(), HasSubstr("events.out.tfevents."));
  const std::string bytes = folder_.read("board/" + file->path().filename().string());
  for (const char* tag : {"train/loss", "epoch/test_acc", "weights/1.weight", "gradients/3.bias", "mlp"}) {
    EXPECT_THAT(bytes, HasSubstr(tag));
  }
}

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
  const std::vector<Arguments> others = {{"--seed", "1"},        {"--shards", "2"},       {"--lr", "0.2"},
                                         {"--momentum", "0.5"},  {"--limit-train", "99"}, {"--init-from", weights},
                                         {"--optimizer", "adam"}};
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

}  // namespace
}  // namespace lockstep
