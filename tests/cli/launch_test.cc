// `lockstep launch`, as users see it. tests/launch has the tests of the launcher itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>

#include "tests/cli/tool.h"
#include "tests/free_port.h"
#include "tests/rank_scripts.h"
#include "tests/wait_until.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

ToolResult launch(Arguments options, const std::string& script) {
  options.insert(options.begin(), "launch");
  options.insert(options.end(), {"--", "/bin/sh", "-c", script});
  return run_tool(options);
}

TEST(Launch, PrefixesEveryLineWithItsRank) {
  const ToolResult result = launch({"--nproc-per-node", "2"}, "printf 'a '; sleep 0.05; echo b; echo problem >&2");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(lines(result.out), UnorderedElementsAre("[rank 0] a b", "[rank 1] a b"));
  EXPECT_THAT(lines(result.err), UnorderedElementsAre("[rank 0] problem", "[rank 1] problem"));
}

TEST(Launch, TorchrunsSpellingsAreKnown) {
  EXPECT_EQ(lines(launch({"--nproc_per_node", "2"}, "echo $RANK").out).size(), 2u);
  EXPECT_EQ(lines(launch({"-n", "2"}, "echo $RANK").out).size(), 2u) << "mpirun's";
  const ToolResult result = launch({"--nproc-per-node", "auto"}, "echo $RANK");  // as many as there are GPUs, or one
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[rank 0] 0\n"));
}

TEST(Launch, OneRankIsTheDefault) { EXPECT_EQ(launch({}, "echo $RANK of $WORLD_SIZE").out, "[rank 0] 0 of 1\n"); }

TEST(Launch, ArgumentsOfTheCommandAreItsOwn) {
  const ToolResult result = run_tool({"launch", "--", "echo", "train", "--model", "x", "--help", "--", "--nnodes"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "[rank 0] train --model x --help -- --nnodes\n");
}

TEST(Launch, ThisProgramNeedNotBeInPath) {
  const ToolResult result =
      run_tool({"launch", "--nproc-per-node", "2", "--", "lockstep", "devices", "--num-devices", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[rank 0] cpu:0  cpu  "));
  EXPECT_THAT(result.out, HasSubstr("[rank 1] cpu:0  cpu  "));
}

// Every rank would do all the work and print the same.
TEST(Launch, CommandsOfOneProcessSayThatTheyAre) {
  const TemporaryFolder folder;
  const std::string file = folder.write("weights", ""), picture = folder / "mlp.dot";
  const std::vector<std::pair<std::string, Arguments>> cases{{"eval", {"eval", "--init-from", file}},
                                                             {"graph", {"graph", "--out", picture}},
                                                             {"verify", {"verify"}},
                                                             {"bench engine", {"bench", "engine"}},
                                                             {"bench kernels", {"bench", "kernels"}}};
  for (const auto& [name, command] : cases) {
    const ToolResult result = run_tool(command, {.environment = {"PATH=/usr/bin:/bin", "RANK=1", "WORLD_SIZE=2"}});
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err,
              "lockstep: " + name + " runs in one process: WORLD_SIZE says 2 ranks. Start it without a launcher\n");
  }
  const ToolResult alone = run_tool({"launch", "--", "lockstep", "graph", "--batch-size", "4", "--out", picture});
  EXPECT_EQ(alone.status, 0) << alone.err;
}

TEST(Launch, ExitsAsTheRankThatFailsAndNamesItLast) {
  const TemporaryFolder folder;
  const ToolResult result = launch({"--nproc-per-node", "3"}, rank_one_ends_first(folder.path().string(), "exit 9") +
                                                                  "echo 'rank 1 lost' >&2; exit 1");
  EXPECT_EQ(result.status, 9);
  const auto printed = lines(result.err);
  ASSERT_EQ(printed.size(), 3u) << result.err;
  EXPECT_THAT((std::vector(printed.begin(), printed.end() - 1)),
              UnorderedElementsAre("[rank 0] rank 1 lost", "[rank 2] rank 1 lost"));
  EXPECT_EQ(printed.back(), "lockstep: rank 1 exited with status 9");

  const ToolResult killed = launch({"--nproc-per-node", "2"}, "[ $RANK != 1 ] || kill -KILL $$");
  EXPECT_EQ(killed.status, 137);
  EXPECT_EQ(killed.err, "lockstep: rank 1 was killed by signal 9 (Killed)\n");
}

TEST(Launch, StartsAgainAfterAFailure) {
  const ToolResult result = launch({"--max-restarts", "2", "--restart-delay", "0"},
                                   "echo start $LOCKSTEP_RESTART_COUNT; exit $((6 - LOCKSTEP_RESTART_COUNT * 3))");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(lines(result.out), ElementsAre("[rank 0] start 0", "[rank 0] start 1", "[rank 0] start 2"));
  EXPECT_THAT(lines(result.err), ElementsAre("lockstep: rank 0 exited with status 6; restart 1 of 2",
                                             "lockstep: rank 0 exited with status 3; restart 2 of 2"));
}

// All ranks print the reason and end alike, in any order.
TEST(Launch, NamesTheRankThatCannotSave) {
  const SmallData data;
  const TemporaryFolder folder;
  const std::filesystem::path save = folder / "save", log = folder / "log";
  Arguments all = train_arguments(data, {"--epochs", "1000000", "--log", log, "--save", save, "--save-every", "1"});
  all.insert(all.begin(), {"launch", "--nproc-per-node", "3", "--", "lockstep"});
  Tool tool(all);
  ASSERT_TRUE(wait_until([&] { return events(log, "step").size() >= 3; }));
  // Again if rank 0 makes the folder anew before the file is there.
  std::error_code busy;
  for (int i = 0; !std::filesystem::is_regular_file(save); ++i) {
    std::filesystem::rename(save, folder / fmt::format("moved{}", i), busy);
    std::ofstream(save) << "a file in its place";
  }
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(lines(result.err).back(), "lockstep: rank 0 exited with status 1") << result.err;
  EXPECT_THAT(result.err, HasSubstr("[rank 2] lockstep: rank 0: "));
}

// A rank that never comes.
TEST(Launch, TrainHasTheTimeoutToo) {
  SmallData data;
  const ToolResult alone =
      run_tool(train_arguments(data, {"--timeout", "1"}),
               {.environment = {"PATH=/usr/bin:/bin", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                "MASTER_PORT=" + std::to_string(free_port())}});
  EXPECT_EQ(alone.status, 1) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("rendezvous: rank 1 of 2 did not join within 1 s\n"));
  const ToolResult wrong = run_tool(train_arguments(data, {"--timeout", "nan"}));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--timeout: nan is not in [0.001 - 1000000]"));
}

TEST(Launch, TooManyRanksAreRefusedBeforeTheyMeet) {
  const SmallData data;
  const ToolResult result = run_tool(
      train_arguments(data),
      {.environment = {"PATH=/usr/bin:/bin", "RANK=7", "WORLD_SIZE=201", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=9"}});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err, "lockstep: WORLD_SIZE says 201 ranks, expected at most 200\n");
}

TEST(Launch, TheStartLineShowsTheCoresOfEachRank) {
  const SmallData data;
  Arguments all = train_arguments(data);
  all.insert(all.begin(), {"launch", "--nproc-per-node", "2", "--", "lockstep"});
  const ToolResult result = run_tool(all);
  EXPECT_TRUE(std::regex_search(result.out, std::regex("running on: .* in each of 2 ranks, with \\d+ cores? each\n")))
      << result.out << result.err;
}

// Training alone would waste every rank but one without a word.
TEST(Launch, ARankWithoutNumbersDoesNotTrainAlone) {
  SmallData data;
  for (const std::string name : {"MASTER_ADDR", "LOCAL_RANK", "PMIX_RANK", "PALS_RANKID"}) {
    const ToolResult result = run_tool(train_arguments(data, {}), {.environment = {"PATH=/usr/bin:/bin", name + "=1"}});
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr(name + " is set but nothing says how many ranks there are"));
  }
  const ToolResult told =
      run_tool(train_arguments(data, {}), {.environment = {"PATH=/usr/bin:/bin", "PALS_RANKID=1", "WORLD_SIZE=1"}});
  EXPECT_EQ(told.status, 0) << told.err;
}

TEST(Launch, TheTimeoutReachesTheRanks) {
  EXPECT_EQ(launch({"--timeout", "2.5"}, "echo $LOCKSTEP_TIMEOUT").out, "[rank 0] 2.5\n");
}

class LaunchSignal : public ::testing::TestWithParam<int> {};

TEST_P(LaunchSignal, IsHandedOn) {
  const TemporaryFolder folder;
  const std::string script =
      "trap 'echo stopped; exit 130' INT TERM; : > " + folder.path().string() + "/$RANK; while :; do sleep 0.02; done";
  Tool tool({"launch", "--nproc-per-node", "2", "--", "/bin/sh", "-c", script});
  ASSERT_TRUE(wait_until([&] { return folder.entries() == 2; }));
  tool.send(GetParam());
  const ToolResult result = tool.wait();
  EXPECT_EQ(result.status, 130);
  EXPECT_THAT(lines(result.out), UnorderedElementsAre("[rank 0] stopped", "[rank 1] stopped"));
  const auto printed = lines(result.err);  // shells may have printed something before
  ASSERT_FALSE(printed.empty());
  EXPECT_TRUE(std::regex_match(printed.back(), std::regex("lockstep: rank [01] exited with status 130"))) << result.err;
}

INSTANTIATE_TEST_SUITE_P(Signals, LaunchSignal, ::testing::Values(SIGINT, SIGTERM),
                         [](const auto& info) { return info.param == SIGINT ? "SIGINT" : "SIGTERM"; });

TEST(Launch, UnusableArgumentsEndWithStatus2) {
  struct Unusable {
    Arguments arguments;
    std::string part;
  };
  const std::vector<Unusable> cases{
      {{}, "expected a command"},
      {{"--nproc-per-node", "2"}, "expected a command"},
      {{"--nproc-per-node", "2", "--"}, "expected a command"},
      {{"--nproc-per-node", "0", "--", "true"}, "--nproc-per-node"},
      {{"--nproc-per-node", "-1", "--", "true"}, "--nproc-per-node"},
      {{"--nproc-per-node", "two", "--", "true"}, "--nproc-per-node"},
      {{"--nproc-per-node", "99999999999", "--", "true"}, "--nproc-per-node"},
      {{"--nproc-per-node", "201", "--", "true"}, "1 nodes of 201 ranks, expected at most 200 ranks in all"},
      {{"--nproc-per-node", "51", "--nnodes", "4", "--master-port", "1", "--", "true"}, "4 nodes of 51 ranks"},
      {{"--nnodes", "0", "--", "true"}, "--nnodes"},
      {{"--nnodes", "2", "--", "true"}, "--master-port"},
      {{"--nnodes", "2", "--node-rank", "2", "--master-port", "1", "--", "true"}, "--node-rank: 2"},
      {{"--node-rank", "1", "--", "true"}, "--node-rank: 1"},
      {{"--master-port", "65536", "--", "true"}, "--master-port"},
      {{"--max-restarts", "-1", "--", "true"}, "--max-restarts"},
      {{"--restart-delay", "-1", "--", "true"}, "--restart-delay"},
      {{"--timeout", "0", "--", "true"}, "--timeout"},
      {{"--timeout", "nan", "--", "true"}, "--timeout"},
      {{"--timeout", "soon", "--", "true"}, "--timeout"},
      {{"--unknown", "--", "true"}, "unknown option --unknown"},
      {{"--nproc-per-node", "2", "lockstep", "train", "--model", "mlp"},
       "unknown option --model; the command and its options come after --"},
  };
  for (const Unusable& c : cases) {
    Arguments arguments{"launch"};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    const ToolResult result = run_tool(arguments);
    EXPECT_EQ(result.status, 2) << c.part << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.part));
    EXPECT_TRUE(result.err.starts_with("lockstep: ")) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }
}

TEST(Launch, ACommandThatCannotBeStartedIsNamed) {
  const ToolResult result = run_tool({"launch", "--nproc-per-node", "2", "--", "no-such-program"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "lockstep: cannot start no-such-program: No such file or directory\n");
}

}  // namespace
}  // namespace lockstep
