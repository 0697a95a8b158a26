// --config, and the run.toml of a run's folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/train_testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class Config : public Train {
 protected:
  ToolResult run(const std::string& text, const Arguments& more = {}) {
    folder_.write("options.toml", text);
    Arguments all{"train", "--config", file()};
    all.insert(all.end(), more.begin(), more.end());
    return run_tool(all);
  }
  std::string file() const { return folder_ / "options.toml"; }
};

// The second line has the recipe.
std::string recipe_of(const ToolResult& result) {
  const auto all = lines(result.out);
  return all.size() > 1 ? all[1] : result.err;
}

TEST_F(Config, TheFolderOfARunHasWhatRepeatsIt) {
  const std::string first = folder_ / "first", second = folder_ / "second";
  const ToolResult a = train({"--save", first, "--lr", "0.05", "--momentum", "0.5", "--schedule", "cosine", "--warmup",
                              "2", "--no-shuffle", "--metrics", "top2_accuracy,perplexity", "--limit-train", "70"});
  ASSERT_EQ(a.status, 0) << a.err;
  const ToolResult b = run_tool({"train", "--config", first + "/run.toml", "--save", second});
  ASSERT_EQ(b.status, 0) << b.err;
  EXPECT_EQ(recipe_of(b), recipe_of(a));
  EXPECT_EQ(folder_.read("second/run.toml"), folder_.read("first/run.toml"));
  // Every option that decides the result is there, with or without a value of the user.
  const std::string text = folder_.read("first/run.toml");
  for (const char* part : {"no-shuffle = true", "metrics = [\"top2_accuracy\", \"perplexity\"]", "optimizer = \"sgd\"",
                           "seed = 0", "shards = 4", "weight-decay = 0", "epochs = 2"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + part + "\n"));
  }
  for (const char* other : {"save", "heads", "limit-test", "devices"}) {
    EXPECT_THAT(text, ::testing::Not(HasSubstr(std::string("\n") + other + " ="))) << other;
  }
}

TEST_F(Config, TheCommandLineCountsInsteadOfTheFile) {
  const std::string text = "model = 'mlp'  # a net\nbatch-size = 50\ndata = \"" + data_.path() + "\"\n";
  const std::string options = "[train]\nepochs = 1\nlr = 0.25\n[eval]\nbatch-size = 7\n";
  const ToolResult file = run(text + options);
  ASSERT_EQ(file.status, 0) << file.err;
  EXPECT_THAT(recipe_of(file), HasSubstr("batch 50, sgd at 0.25"));
  for (const Arguments& given : {Arguments{"--lr", "0.5"}, Arguments{"--lr=0.5"}}) {
    EXPECT_THAT(recipe_of(run(text + options, given)), HasSubstr("batch 50, sgd at 0.5"));
  }
}

TEST_F(Config, AnErrorNamesTheFileAndWhatIsWrong) {
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"batchsize = 3", ": unknown key batchsize: lockstep train has no such option; did you mean batch-size?"},
           {"config = 'x'", ": unknown key config"},
           {"inject-flip = '1:0.weight'\n", "unknown key inject-flip"},
           {"[trian]\nlr = 1", ": unknown table [trian]"},
           {"\nlr = 0,1", ":2: found \",1\", expected the end of the line"},
           {"lr", ":1: found the end of the line, expected ="},
           {"lr = ", ":1: found the end of the line, expected a value"},
           {"model = \"mlp", ":1: found \"\"mlp\", expected a closing \""},
           {"metrics = ['a' 'b']", "expected a comma or ]"},
           {"lr = 1\nlr = 2", ":2: lr is given twice"},
           {"lr = [1, 2]", ": lr = 1, 2, expected one value"},
           {"lr = 1\nlog = 'a'\nsave = 'b'",
            ": log, save would say where to write: expected --allow-output, or --log, --save on the command line"},
           {"receipt = 'a'", ": receipt would say where to write"},
           {"[train]\nreport = 'a'", ": report would say where to write"},
           {"allow-output = true", ": unknown key allow-output"},
           {"save = ''\nlr = 1", ": save = , expected a value that is not empty"},
           {"tf32 = 1", ": tf32 = 1, expected true or false"}}) {
    const ToolResult result = run(text);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("lockstep: " + file()));
    EXPECT_THAT(result.err, HasSubstr(part));
  }
  EXPECT_THAT(run("lr = 'fast'").err, HasSubstr("--lr: fast is not a number, in " + file()));
  EXPECT_THAT(run_tool({"train", "--config", "none.toml"}).err, HasSubstr("--config: File does not exist: none.toml"));
}

TEST_F(Config, SaysWhereToWriteOnlyIfItIsAllowedTo) {
  const std::string log = folder_ / "log.jsonl", page = folder_ / "page";
  const std::string text = "model = 'mlp'\nepochs = 1\ndata = '" + data_.path() + "'\nlog = '" + log + "'\n";
  EXPECT_EQ(run(text).status, 2);
  EXPECT_FALSE(std::filesystem::exists(log));
  EXPECT_EQ(run(text, {"--allow-output"}).status, 0);
  EXPECT_TRUE(std::filesystem::exists(log));
  // What the command line says counts, so that the file's is not asked for.
  EXPECT_EQ(run(text, {"--log", folder_ / "other.jsonl"}).status, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "other.jsonl"));
  for (const Arguments& command :
       {Arguments{"sweep", "--lr", "0.1"}, Arguments{"graph"}, Arguments{"bisect"}, Arguments{"eval", "--run", "r"}}) {
    Arguments words = command;
    const std::string key = command[0] == "sweep"    ? "results"
                            : command[0] == "graph"  ? "out"
                            : command[0] == "bisect" ? "json"
                                                     : "confusion";
    folder_.write("o.toml", key + " = '" + page + "'\n");
    words.insert(words.end(), {"--config", folder_ / "o.toml"});
    EXPECT_THAT(run_tool(words).err, HasSubstr(key + " would say where to write"));
  }
}

TEST_F(Config, EveryCommandHasIt) {
  const std::string weights = folder_ / "w.safetensors";
  ASSERT_EQ(train({"--export", weights, "--epochs", "1"}).status, 0);
  folder_.write("e.toml", "model = 'mlp'\ninit-from = '" + weights + "'\ndata = '" + data_.path() + "'\n");
  const ToolResult eval = run_tool({"eval", "--config", folder_ / "e.toml"});
  EXPECT_THAT(eval.out, HasSubstr("of 30)")) << eval.err;
  folder_.write("v.toml",
                "layouts = [1, 2]\nsteps = 1\nshards = 2\nmodel = 'mlp'\nlr = 0.2\ndata = '" + data_.path() + "'\n");
  const ToolResult verify = run_tool({"verify", "--config", folder_ / "v.toml"});
  EXPECT_THAT(verify.out, HasSubstr("equal: 2 layouts, 1 steps, 2 shards")) << verify.err;
}

}  // namespace
}  // namespace lockstep
