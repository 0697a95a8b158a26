// A failure ends with an exit status that scripts can recognize and one line that says what to do.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "tests/cli/tool.h"
#include "tests/free_port.h"
#include "tests/wait_until.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

void expect_failure(const ToolResult& result, int status, const std::string& part) {
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_THAT(result.err, StartsWith("lockstep: "));
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_THAT(result.err, ::testing::EndsWith("\n"));
  EXPECT_THAT(result.err, HasSubstr(part));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("test acc")));
}

struct Unusable {
  Arguments arguments;
  std::string part;
};

// An option that changes nothing would be misleading.
TEST(Usage, NoCommandTakesOptionsThatItIgnores) {
  const SmallData data;
  const std::string file = data.path() + "/train-labels-idx1-ubyte";
  const std::vector<Unusable> cases{{{"eval", "--init-from", file, "--dropout", "0.2"}, "not expected: --dropout 0.2"},
                                    {{"eval", "--init-from", file, "--no-shuffle"}, "not expected: --no-shuffle"},
                                    {{"devices", "--shards", "2"}, "not expected: --shards 2"},
                                    {{"devices", "--batch-size", "2"}, "not expected: --batch-size 2"},
                                    {{"graph", "--out", "x.svg", "--init-from", file}, "not expected: --init-from"},
                                    {{"graph", "--out", "x.svg", "--data", data.path()}, "not expected: --data"},
                                    {{"bench", "--bogus", "train"}, "not expected before train: --bogus"}};
  for (const Unusable& unusable : cases) {
    SCOPED_TRACE(unusable.part);
    expect_failure(run_tool(unusable.arguments), 2, unusable.part);
  }
}

// Groups, no line beyond the width, and no ranges that only an error needs.
TEST(Usage, HelpFitsTheTerminal) {
  for (const int width : {60, 80, 100}) {
    const ToolResult result =
        run_tool({"train", "--help"}, {.environment = {"PATH=/usr/bin:/bin", fmt::format("COLUMNS={}", width)}});
    ASSERT_EQ(result.status, 0);
    std::size_t longest = 0;
    for (const std::string& line : lines(result.out)) longest = std::max(longest, line.size());
    EXPECT_LE(longest, static_cast<std::size_t>(width));
    EXPECT_GT(longest, static_cast<std::size_t>(width) - 12);
    std::size_t at = 0;
    for (const char* group : {"Model", "Data", "Training", "Devices", "Bits", "Checkpoints", "Output"}) {
      const std::size_t found = result.out.find(fmt::format("\n{}:\n", group));
      ASSERT_NE(found, std::string::npos) << group;
      EXPECT_GT(found, at);
      at = found;
    }
    EXPECT_THAT(result.out, HasSubstr("\n  --batch-size N "));
    EXPECT_THAT(result.out, HasSubstr("\n  --sync-bn  "));
    for (const char* noise : {"INT", "FLOAT", "Excludes", "1099511627776"}) {
      EXPECT_THAT(result.out, ::testing::Not(HasSubstr(noise)));
    }
  }
}

TEST(Usage, WhatDataAreNotIsSaid) {
  const SmallData data;
  std::filesystem::create_directory(data.path() + "/pictures");
  for (const auto& [path, found] :
       std::vector<std::pair<std::string, std::string>>{{data.path() + "/train-labels-idx1-ubyte", "a single IDX file"},
                                                        {data.path() + "/pictures", "the folder has nothing"}}) {
    const ToolResult result = run_tool({"train", "--model", "mlp", "--data", path});
    expect_failure(result, 1, path + ": " + found + ", expected a .csv or .tsv table, a text, ");
  }
}

TEST(Usage, TheVersionIsTold) {
  const ToolResult result = run_tool({"--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, ::testing::MatchesRegex("lockstep [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(Usage, UnusableArgumentsEndWithStatus2) {
  const SmallData data;
  const std::vector<Unusable> cases{
      {{"--devices", "cpu:x"}, "cpu:x"},
      {{"--devices", "tpu:0"}, "tpu:0"},
      {{"--devices", "cpu:0,"}, "unknown device ''"},
      {{"--devices", ""}, "device"},
      {{"--devices", "cpu:-1"}, "cpu:-1"},
      {{"--devices", "cpu:99999999999"}, "cpu:99999999999"},
      {{"--devices", "cuda:0"}, "cuda:0"},
      {{"--devices", "cpu:0,cpu:0"}, "cpu:0"},
      {{"--devices", "cpu:0", "--num-devices", "2"}, "cannot be combined"},
      {{"--num-devices", "0"}, "--num-devices"},
      {{"--num-devices", "-2"}, "--num-devices"},
      {{"--num-devices", "1000000"}, "--num-devices"},
      {{"--cores-per-device", "4096"}, "--cores-per-device 4096"},
      {{"--threads-per-shard", "0"}, "--threads-per-shard"},
      {{"--shards", "0"}, "--shards"},
      {{"--shards", "99999999999999999999"}, "--shards"},
      {{"--num-devices", "2", "--balance", "2"}, "--balance 2: 1 weight for 2 devices, expected one for each"},
      {{"--num-devices", "2", "--balance", "2,1,1"}, "--balance 2,1,1: 3 weights for 2 devices, expected one for each"},
      {{"--num-devices", "2", "--balance", "2,0"},
       "--balance 2,0: found '0', expected auto, equal, or a list of weights above 0"},
      {{"--num-devices", "2", "--balance", "2,-1"}, "--balance 2,-1: found '-1'"},
      {{"--num-devices", "2", "--balance", "fast,slow"}, "--balance fast,slow: found 'fast'"},
      {{"--num-devices", "2", "--balance", ""}, "--balance"},
      {{"--batch-size", "0"}, "--batch-size"},
      {{"--batch-size", "-32"}, "--batch-size"},
      {{"--batch-size", "1000000000000"}, "--batch-size"},
      {{"--batch-size", "1.5"}, "--batch-size"},
      {{"--batch-size", "many"}, "--batch-size"},
      {{"--epochs", "-1"}, "--epochs"},
      {{"--max-steps", "-1"}, "--max-steps"},
      {{"--lr", "-0.1"}, "--lr"},
      {{"--lr", "nan"}, "--lr"},
      {{"--lr", "0,05"}, "--lr: 0,05 is not a number"},
      {{"--lr", "inf"}, "--lr"},
      {{"--lr", ""}, "--lr"},
      {{"--momentum", "1.5"}, "--momentum"},
      {{"--weight-decay", "nan"}, "--weight-decay"},
      {{"--label-smoothing", "2"}, "--label-smoothing"},
      {{"--clip", "-1"}, "--clip"},
      {{"--seed", "-1"}, "--seed"},
      {{"--seed", "x"}, "--seed"},
      {{"--seed", "99999999999999999999"}, "99999999999999999999 is not an integer in [0 - 18446744073709551615]"},
      {{"--plot", "p.png"}, "--plot p.png: expected a name that ends in .svg"},
      {{"--resume", data.path(), "--init-from", data.path() + "/train-labels-idx1-ubyte"},
       "--init-from excludes --resume"},
      {{"--limit-train", "0"}, "--limit-train"},
      {{"--limit-test", "-5"}, "--limit-test"},
      {{"--warmup", "-1"}, "--warmup"},
      {{"--model", "resnet19"}, "resnet19"},
      {{"--dtype", "f8"}, "f8"},
      {{"--dtype", "f16", "--loss-scale", "1000"}, "1000 is not a power of two from 1 to 2^40"},
      {{"--loss-scale", "1024"}, "--loss-scale: only with --dtype f16"},
      {{"--optimizer", "lion"}, "lion"},
      {{"--schedule", "linear"}, "linear"},
      {{"--save-every", "5"}, "--save"},
      {{"--devices", "cpu", "--backend", "nccl"}, "--backend nccl: rank 0 trains on [cpu:0], expected a GPU"},
      {{"--watch", "train_loss"}, "--watch: only with --patience or --save-best"},
      {{"--min-delta", "0.1"}, "--min-delta: only with --patience or --save-best"},
      {{"--patience", "0", "--watch", "train_loss"}, "--watch: only with --patience or --save-best; --patience 0"},
      {{"--patience", "0", "--min-delta", "0.1"}, "--min-delta: only with --patience or --save-best; --patience 0"},
      {{"--patience", "1", "--watch", "accurcy"},
       "--watch accurcy: expected one of train_loss, accuracy (--metrics adds others)"},
      {{"--patience", "1", "--watch", "confusion_matrix", "--metrics", "perplexity,confusion_matrix"},
       "--watch confusion_matrix: expected one of train_loss, accuracy, perplexity (--metrics"},
      {{"--metrics", "perplexity,perplexity"}, "--metrics: perplexity is named twice"},
      {{"--metrics", "top11_accuracy"}, "--metrics top11_accuracy: there are 10 classes"},
      {{"--log", data.path() + "/x", "--export", data.path() + "/./x"}, "--export and --log name one file, "},
      {{"--log", data.path() + "/x", "--weights-log", data.path() + "/x"}, "--log and --weights-log name one file, "},
      {{"--accumulate", "3"}, "--accumulate 3: does not divide --batch-size 32"},
      {{"--dropout", "nan"}, "--dropout: nan is not in [0 - 0.99]"},
      {{"--inject-flip", "1:1.weight"}, "--inject-flip: only with --weights-log"},
      {{"--init-from", "/no/such/file"}, "/no/such/file"},
      {{"--resume", "/no/such/folder"}, "/no/such/folder"},
      {{"--bogus", "1"}, "not expected: --bogus 1 (see lockstep train --help)"},
      {{"--modle", "mlp", "more"}, "not expected: --modle mlp more; did you mean --model? (see lockstep train --help)"},
      {{"--num-device=2"}, "not expected: --num-device=2; did you mean --num-devices?"},
      {{"--lr"}, "--lr"},
  };
  for (const Unusable& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c.arguments));
    expect_failure(run_tool(train_arguments(data, c.arguments)), 2, c.part);
  }
}

// A script may start any number of ranks with the same options, or none. NCCL needs a GPU even where it has nothing to
// move.
TEST(Usage, OptionsOfRanksAreForASingleRankToo) {
  const SmallData data;
  const auto train = [&](const ToolOptions& options, const Arguments& more) {
    return run_tool(train_arguments(data, more), options);
  };
  const ToolOptions launched{.environment = {"PATH=/usr/bin:/bin", "RANK=0", "WORLD_SIZE=1"}};
  for (const ToolOptions& options : {ToolOptions(), launched}) {
    for (const char* backend : {"auto", "host", "gloo"}) {
      const ToolResult result = train(options, {"--backend", backend, "--timeout", "5"});
      EXPECT_EQ(result.status, 0) << result.err;
    }
  }
  expect_failure(train(launched, {"--devices", "cpu", "--backend", "nccl"}), 2,
                 "--backend nccl: rank 0 trains on [cpu:0], expected a GPU");
}

// Where there are GPUs, the variable hides them.
TEST(Usage, CudaNeedsAGpu) {
  const SmallData data;
  expect_failure(run_tool(train_arguments(data, {"--devices", "cuda"}),
                          {.environment = {"PATH=/usr/bin:/bin", "CUDA_VISIBLE_DEVICES="}}),
                 2, "--devices cuda: there is no GPU: ");
}

// One recipe may serve several models and devices.
TEST(Usage, OptionsOfOtherModelsAndDevicesAreNoticed) {
  const SmallData data;
  const ToolResult result = run_tool(
      train_arguments(data, {"--devices", "cpu", "--tf32", "--sync-bn", "--optimizer", "adam", "--momentum", "0.5"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("lockstep: --tf32 changes nothing on [cpu:0]: it is for GPUs\n"));
  EXPECT_THAT(result.err, HasSubstr("lockstep: --momentum changes nothing: the optimizer is adam\n"));
  EXPECT_THAT(result.err, HasSubstr("lockstep: --sync-bn changes nothing: the model mlp has no batch norm\n"));
}

TEST(Usage, TheCommandIsOneOfThoseThereAre) {
  expect_failure(run_tool({}), 2, "expected a command");
  expect_failure(run_tool({"fly"}), 2, "not expected: fly (see lockstep --help)");
  expect_failure(run_tool({"trian", "--epochs", "1"}), 2, "not expected: trian --epochs 1; did you mean train?");
  expect_failure(run_tool({"eval"}), 2, "--init-from or --run is required (see lockstep eval --help)");
}

TEST(Usage, WordsBeforeACommandAreNamed) {
  expect_failure(run_tool({"--bogus", "train"}), 2, "not expected before train: --bogus (see lockstep --help)");
  expect_failure(run_tool({"--model", "mlp", "train", "--bogus"}), 2,
                 "not expected before train: --model mlp (see lockstep --help)");
  expect_failure(run_tool({"bench", "--bogus", "train"}), 2,
                 "not expected before train: --bogus (see lockstep bench --help)");
  expect_failure(run_tool({"--bogus", "bench", "train", "--bogus"}), 2,
                 "not expected before bench: --bogus (see lockstep --help)");
}

TEST(Usage, TheHelpIsThatOfTheInnermostCommand) {
  expect_failure(run_tool({"bench", "train", "--steps", "0"}), 2, "(see lockstep bench train --help)");
  expect_failure(run_tool({"train", "--steps", "0"}), 2, "(see lockstep train --help)");
}

TEST(Usage, CommandsOfferNoOptionsThatTheyDoNotUse) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "");
  for (const Arguments& command : {Arguments{"eval", "--init-from", file, "--dropout", "0.2"},
                                   {"graph", "--out", folder / "g.dot", "--init-from", file},
                                   {"bench", "train", "--init-from", file},
                                   {"bench", "train", "--limit-test", "5"},
                                   {"bench", "kernels", "--init-from", file},
                                   {"bench", "kernels", "--dropout", "0.2"},
                                   {"bench", "kernels", "--tf32"},
                                   {"devices", "--shards", "4"},
                                   {"devices", "--threads-per-shard", "1"},
                                   {"devices", "--batch-size", "4"}}) {
    const bool flag = command.back() == "--tf32";
    const std::string& option = flag ? command.back() : *(command.end() - 2);
    expect_failure(run_tool(command), 2, "not expected: " + option);
  }
}

TEST(Usage, ValuesOutOfRangeEndWithStatus2) {
  const TemporaryFolder folder;
  for (const char* clip : {"nan", "-1"}) {
    expect_failure(run_tool({"graph", "--out", folder / "g.dot", "--clip", clip}), 2,
                   fmt::format("--clip: {} is not in [0 - 1000000000", clip));
  }
  const ToolResult rounds = run_tool({"bench", "allreduce", "--rounds", "2000"});
  expect_failure(rounds, 2, "--rounds 2000: expected at most 1000");
  EXPECT_EQ(rounds.out, "");
}

TEST(Usage, HelpSaysWhatAnOptionMeansForItsCommand) {
  const auto help = [](Arguments command) {
    command.emplace_back("--help");
    // Lines break anywhere.
    return std::regex_replace(run_tool(command).out, std::regex("\n +"), " ");
  };
  const std::string eval = help({"eval"}), graph = help({"graph"}), parallel = help({"bench", "parallel"});
  EXPECT_THAT(eval, HasSubstr("V: number of shards per batch; decides memory and speed only"));
  EXPECT_THAT(eval, HasSubstr("T: CPU threads that compute one shard; decides memory and speed only"));
  EXPECT_THAT(eval, ::testing::Not(HasSubstr("ranks")));
  EXPECT_THAT(graph, HasSubstr("T: CPU threads that compute one shard [1]"));
  EXPECT_THAT(parallel, HasSubstr("small-ops: chains [64]; dag: nodes of the graph [200]"));
  EXPECT_THAT(help({"launch"}), HasSubstr("Address of node 0 as the other hosts reach it; needed with several hosts"));
}

TEST(Usage, HelpSaysWhatKindOfValueAnOptionTakes) {
  const std::string train = std::regex_replace(run_tool({"train", "--help"}).out, std::regex("\n +"), " ");
  EXPECT_THAT(train, HasSubstr("Fraction of each target to spread over all classes, 0 to 1 [0]"));
  EXPECT_THAT(train, HasSubstr("sgd: momentum, 0 to 1 [0]"));
  EXPECT_THAT(train, HasSubstr("Learning rate [0.1; gpt, lstm: 0.001; data of your own: 0.001, sgd: 0.01]"));
  EXPECT_THAT(train, HasSubstr("number of layers [gpt: 4; lstm: 2]"));
  for (const char* option : {"--init-from PATH", "--resume DIR", "--watch NAME"}) EXPECT_THAT(train, HasSubstr(option));
  EXPECT_THAT(train, ::testing::Not(HasSubstr("TEXT")));
}

TEST(Usage, HelpGoesToStandardOutput) {
  for (const Arguments& arguments : {Arguments{"--help"}, Arguments{"train", "--help"}, Arguments{"eval", "-h"}}) {
    const ToolResult result = run_tool(arguments);
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.out, HasSubstr("lockstep"));
    EXPECT_EQ(result.err, "");
  }
}

// Scripts rely on these names.
TEST(Usage, TheHelpOfTrainNamesEveryOption) {
  const ToolResult train = run_tool({"train", "--help"});
  std::set<std::string> words;
  std::string word;
  for (const char c : train.out) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-') {
      word += c;
    } else {
      words.insert(std::exchange(word, {}));
    }
  }
  for (const char* option : {"--model",
                             "--data",
                             "--devices",
                             "--num-devices",
                             "--threads-per-shard",
                             "--cores-per-device",
                             "--shards",
                             "--balance",
                             "--batch-size",
                             "--epochs",
                             "--max-steps",
                             "--lr",
                             "--momentum",
                             "--weight-decay",
                             "--optimizer",
                             "--schedule",
                             "--warmup",
                             "--clip",
                             "--label-smoothing",
                             "--dtype",
                             "--loss-scale",
                             "--gradients",
                             "--accumulate",
                             "--tf32",
                             "--record-steps",
                             "--seed",
                             "--no-shuffle",
                             "--limit-train",
                             "--limit-test",
                             "--direct-conv",
                             "--sync-bn",
                             "--init-from",
                             "--export",
                             "--save",
                             "--save-every",
                             "--resume",
                             "--log",
                             "--plot",
                             "--trace",
                             "--backend",
                             "--timeout"}) {
    EXPECT_TRUE(words.contains(option)) << option << "\n" << train.out;
  }
}

class TrainErrors : public ::testing::Test {
 protected:
  ToolResult train(const Arguments& more) { return run_tool(train_arguments(data_, more)); }
  SmallData data_;
  TemporaryFolder folder_;
};

TEST_F(TrainErrors, MissingDataSaysHowToGetIt) {
  expect_failure(train({"--data", "/no/such/folder"}), 1, "/no/such/folder");
  expect_failure(train({"--data", folder_.path()}), 1, "the folder has nothing, expected a .csv");
}

TEST_F(TrainErrors, DamagedDataNamesTheFile) {
  const std::string name = "train-images-idx3-ubyte.gz";
  const std::string whole = data_.folder().read(name);
  data_.folder().write(name, whole.substr(0, whole.size() / 2));
  expect_failure(train({}), 1, name);
  data_.folder().write(name, "");
  expect_failure(train({}), 1, name);
}

// The error comes before the first step, not after the last one.
TEST_F(TrainErrors, OutputsThatCannotBeWrittenAreNoticedBeforeTraining) {
  const std::string file = folder_.write("file", ""), folder = folder_ / "folder.svg";
  std::filesystem::create_directory(folder);
  for (const char* option : {"--export", "--plot", "--log", "--save"}) {
    SCOPED_TRACE(option);
    const std::string path = file + "/below.svg";
    ToolResult result = train({option, path});
    expect_failure(result, 1, file);
    EXPECT_THAT(result.out, ::testing::Not(HasSubstr("epoch")));
  }
  for (const char* option : {"--export", "--plot", "--log", "--weights-log"}) {
    SCOPED_TRACE(option);
    expect_failure(train({option, folder_ / "none/x.svg"}), 1, (folder_ / "none/x.svg").string());
    expect_failure(train({option, folder}), 1, folder);
  }
  for (const char* option : {"--log", "--weights-log"}) {
    const std::string path = folder_ / "none/log";
    // Before the ranks meet: rank 1 never comes.
    const ToolOptions alone{.environment = {"PATH=/usr/bin:/bin", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                            fmt::format("MASTER_PORT={}", free_port())}};
    expect_failure(
        run_tool(train_arguments(data_, {option, path, "--timeout", "60"}), alone), 1,
        fmt::format("lockstep: {} {}: the folder {} does not exist", option, path, (folder_ / "none").string()));
  }
  expect_failure(train({"--save", file}), 1, file);
  EXPECT_EQ(folder_.entries(), 2);  // nothing is left behind
}

// The weights are worth more than the log.
TEST_F(TrainErrors, AFullDiskEndsTheLogAndNotTheRun) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const ToolResult result = train({"--log", "/dev/full", "--export", folder_ / "weights"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err,
            "lockstep: log: cannot write /dev/full: No space left on device; the training goes on without the log\n"
            "lockstep: the log is incomplete: log: cannot write /dev/full: No space left on device\n");
  EXPECT_THAT(result.out, HasSubstr("test acc"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "weights"));
}

// `verify` compares the hashes of every step, so it needs them all.
TEST_F(TrainErrors, AFullDiskForTheHashesEndsTheRun) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const ToolResult result = train({"--weights-log", "/dev/full"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "lockstep: --weights-log: cannot write /dev/full: No space left on device\n");
}

TEST_F(TrainErrors, APlotThatCannotBeWrittenDoesNotEndTheRun) {
  const std::filesystem::path gone = folder_ / "gone";
  const std::string log = folder_ / "log";
  std::filesystem::create_directory(gone);
  Tool tool(train_arguments(data_, {"--epochs", "1000000", "--plot", gone / "p.svg", "--log", log}));
  const auto epochs = [&] { return std::filesystem::exists(log) ? events(log, "epoch").size() : 0; };
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(gone / "p.svg"); }));
  // The tool may be writing the next picture.
  std::error_code busy;
  ASSERT_TRUE(wait_until([&] { return std::filesystem::remove_all(gone, busy), !std::filesystem::exists(gone); }));
  const std::size_t before = epochs();
  ASSERT_TRUE(wait_until([&] { return epochs() > before + 2; }));
  tool.send(SIGINT);
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 130);
  const std::string error = "p.svg: No such file or directory";
  EXPECT_THAT(result.err, HasSubstr(error + "; the training goes on without the plot\n"));
  EXPECT_THAT(result.err, HasSubstr("lockstep: the plot is not up to date: "));
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 3) << result.err;
}

TEST_F(TrainErrors, AFullDiskEndsTheRun) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  for (const Arguments& arguments : {train_arguments(data_), Arguments{"devices"}, Arguments{"train", "--help"}}) {
    expect_failure(run_tool(arguments, {.out = "/dev/full"}), 1, "standard output: No space left on device");
  }
}

TEST_F(TrainErrors, WeightsThatDoNotFitNameTheFile) {
  const std::string garbage = folder_.write("garbage", "these are no weights");
  expect_failure(train({"--init-from", garbage}), 1, garbage);
  expect_failure(run_tool({"eval", "--data", data_.path(), "--model", "mlp", "--init-from", garbage}), 1, garbage);
  const std::string empty = folder_.write("empty", "");
  expect_failure(train({"--init-from", empty}), 1, empty);
  const std::string lenet = folder_ / "lenet";
  ASSERT_EQ(train({"--model", "lenet", "--max-steps", "1", "--export", lenet}).status, 0);
  expect_failure(train({"--init-from", lenet}), 1, lenet);
}

TEST_F(TrainErrors, WeightsOfAnotherModelNameTheModels) {
  const std::string save = folder_ / "save", weights = folder_ / "lenet.safetensors";
  ASSERT_EQ(train({"--model", "lenet", "--max-steps", "1", "--save", save, "--export", weights}).status, 0);
  const auto eval = [&](const std::string& from) {
    return run_tool({"eval", "--data", data_.path(), "--model", "mlp", "--init-from", from});
  };
  for (const ToolResult& result : {eval(save), train({"--init-from", save})}) {
    expect_failure(result, 1, "; the checkpoint is of --model lenet, expected --model mlp");
  }
  expect_failure(eval(weights), 1, "; expected weights of --model mlp");
  const ToolResult bad = eval(folder_.write("bad", "these are no weights"));
  expect_failure(bad, 1, "not a safetensors file");
  EXPECT_THAT(bad.err, ::testing::Not(HasSubstr("--model")));
}

TEST_F(TrainErrors, ThereHasToBeACheckpointToResumeFrom) {
  expect_failure(train({"--resume", folder_.path()}), 1, "there is no valid checkpoint to resume from");
}

TEST_F(TrainErrors, AnotherRecipeIsNoResumption) {
  const std::string save = folder_ / "save";
  ASSERT_EQ(train({"--max-steps", "3", "--save", save}).status, 0);
  auto refused = [&](Arguments other, const std::string& difference) {
    SCOPED_TRACE(difference);
    other.insert(other.end(), {"--resume", save});
    expect_failure(train(other), 1, "the checkpoint was made with " + difference);
  };
  refused({"--seed", "7"}, "--seed 0; this run has --seed 7");
  refused({"--shards", "2"}, "--shards 4; this run has --shards 2");
  refused({"--batch-size", "16"}, "--batch-size 32; this run has --batch-size 16");
  refused({"--lr", "0.2"}, "--lr 0.1; this run has --lr 0.2");
  refused({"--optimizer", "adam"}, "--optimizer sgd; this run has --optimizer adam");
  refused({"--model", "lenet"}, "--model mlp; this run has --model lenet");
  refused({"--no-shuffle"}, "no --no-shuffle; this run has --no-shuffle");
  refused({"--limit-train", "50"}, "100 training examples (--data, --limit-train); this run has 50 training examples");
  refused({"--schedule", "cosine"}, "--schedule constant; this run has --schedule cosine");
  refused({"--gradients", "bf16"}, "--gradients f32; this run has --gradients bf16");
  // One error names all differences.
  refused({"--seed", "7", "--momentum", "0.5", "--clip", "1"},
          "--seed 0, --clip 0.0, --momentum 0.0; this run has --seed 7, --clip 1.0, --momentum 0.5");
}

TEST_F(TrainErrors, TwoRunsDoNotShareAFolder) {
  const std::string save = folder_ / "save";
  ASSERT_EQ(train({"--max-steps", "3", "--save", save}).status, 0);
  expect_failure(train({"--save", save}), 2,
                 "holds step 3 of an earlier run; --resume " + save + " continues it, or name another folder");
}

TEST_F(TrainErrors, ARestartIsNoWayIntoAnotherRunsFolder) {
  const std::string save = folder_ / "save";
  ASSERT_EQ(train({"--max-steps", "3", "--save", save}).status, 0);
  Arguments job{"launch", "--nproc-per-node", "1", "--max-restarts", "2", "--restart-delay", "0", "--", "lockstep"};
  const Arguments rank = train_arguments(data_, {"--max-steps", "6", "--save", save});
  job.insert(job.end(), rank.begin(), rank.end());
  const ToolResult result = run_tool(job);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("holds step 3 of an earlier run"));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("restart 1")));
}

TEST_F(TrainErrors, ALossThatIsNotFiniteNamesTheStep) {
  const ToolResult result = train({"--lr", "1e9", "--epochs", "20"});
  expect_failure(result, 1, "the loss is ");
  EXPECT_THAT(result.err, HasSubstr(" at step "));
}

}  // namespace
}  // namespace lockstep
