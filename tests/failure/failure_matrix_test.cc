// If any fault hits a rank at any time, the others end in time and report which rank was lost and during which
// operation.
//
// Each cell of the matrix runs once with two ranks. LOCKSTEP_FAILURE_RUNS=200 draws that many cells from the whole
// matrix, at random moments, with the seed LOCKSTEP_FAILURE_SEED (or a random one, which is printed).
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <iostream>
#include <map>
#include <random>
#include <regex>

#include "lockstep/base/environment.h"
#include "tests/failure/job.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kTimeout = 5s;
// Time for a busy machine to start, find, and end processes.
constexpr auto kSlack = 20s;

struct Cell {
  std::string kind, phase;
  int ranks = 2, culprit = 1;
  bool tcp = false;
  int skip = 0;
  int delay = 0;  // microseconds
};

std::ostream& operator<<(std::ostream& out, const Cell& c) {
  return out << c.kind << " of rank " << c.culprit << " of " << c.ranks << " in " << c.phase << (c.tcp ? ", TCP" : "")
             << ", --skip " << c.skip << " --delay " << c.delay;
}

// If the fault closes no connection to the others, only the timeout reveals it.
bool needs_timeout(const Cell& c) { return c.kind == "stop" || c.phase == "rendezvous" || c.delay > 0; }

// How often to pass the phase first, for example to strike in the third step.
int first_skip(const std::string& phase) {
  const std::map<std::string, int> skips{{"backward", 4}, {"reduce", 2}, {"evaluation", 2}};
  return skips.contains(phase) ? skips.at(phase) : 0;
}

std::string waited_for(const Cell& c) {
  // Shared memory of one host still delivers data, so a later operation finds the cut.
  if (c.kind == "cut" && !c.tcp && c.phase != "rendezvous") return " during ";
  return std::map<std::string, std::string>{{"rendezvous", "rendezvous: "},
                                            // The root's part of a broadcast may end before the others' part begins, so
                                            // it may find the loss in any later broadcast.
                                            {"broadcast", " during broadcast of "},
                                            {"backward", " during all-"},
                                            // The exchange of losses or the sum of the bucket, whichever is read first.
                                            {"reduce", " during all-"},
                                            {"evaluation", " during all-gather of correct examples of the evaluation"},
                                            {"checkpoint", " during all-gather of checkpoint"}}
      .at(c.phase);
}

JobEnd run_cell(const Cell& c) {
  return run_job({.ranks = c.ranks,
                  .tcp = c.tcp,
                  .timeout = kTimeout,
                  // Only the launcher ends a stopped process.
                  .grace = c.kind == "stop" ? 1s : 10s,
                  .arguments = {"--fault", c.kind, "--phase", c.phase, "--culprit", std::to_string(c.culprit), "--skip",
                                std::to_string(c.skip), "--delay", std::to_string(c.delay)}});
}

void expect_bounded(const Cell& c, const JobEnd& end) {
  EXPECT_TRUE(end.fault_came);
  const std::regex names(
      fmt::format("rank {0} lost|rank {0} gave up|rank {0} of {1} did not join|"
                  "but rank {0} did not confirm it",
                  c.culprit, c.ranks));
  for (int r = 0; r < c.ranks; ++r) {
    const RankEnd& rank = end.ranks[static_cast<std::size_t>(r)];
    if (r == c.culprit) {
      if (c.kind != "stop") {
        EXPECT_EQ(rank.status, c.kind == "kill" ? 128 + SIGKILL : 1);
      }
      continue;
    }
    EXPECT_EQ(rank.status, 1) << "rank " << r;
    EXPECT_LE(rank.took, (needs_timeout(c) ? kTimeout : 0s) + kSlack) << "rank " << r;
    ASSERT_EQ(rank.errors.size(), 1u) << "rank " << r;
    EXPECT_THAT(rank.errors[0], StartsWith("lockstep: "));
    EXPECT_TRUE(std::regex_search(rank.errors[0], names)) << rank.errors[0];
    const bool is_told = c.kind == "throw" && c.phase != "rendezvous";
    EXPECT_THAT(rank.errors[0], HasSubstr(is_told ? "out of luck" : ""));
    if (c.delay == 0) {
      EXPECT_THAT(rank.errors[0], HasSubstr(waited_for(c)));
    } else {
      EXPECT_THAT(rank.errors[0], ContainsRegex(" during |^lockstep: rendezvous: "));
    }
  }
  // If two ranks lose each other, either may be named.
  if (c.kind != "cut" || c.ranks > 2) {
    EXPECT_THAT(end.result.message, HasSubstr(fmt::format("rank {} ", c.culprit)));
  }
  EXPECT_THAT(end.left_behind, ::testing::IsEmpty());
}

class FailureMatrix : public ::testing::TestWithParam<Cell> {};

TEST_P(FailureMatrix, OthersEndInTimeAndNameTheLostRank) {
  const Cell& cell = GetParam();
  const JobEnd end = run_cell(cell);
  expect_bounded(cell, end);
  if (HasFailure()) std::cout << end.output;
}

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const char* kind : {"kill", "stop", "throw", "cut"}) {
    for (const char* phase : {"rendezvous", "broadcast", "backward", "reduce", "evaluation", "checkpoint"}) {
      // Rank 0 writes the checkpoint.
      const int culprit = phase == std::string("checkpoint") ? 0 : 1;
      all.push_back({.kind = kind, .phase = phase, .culprit = culprit, .skip = first_skip(phase)});
    }
    all.push_back({.kind = kind, .phase = "reduce", .culprit = 0, .tcp = true, .skip = first_skip("reduce")});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cells, FailureMatrix, ::testing::ValuesIn(cells()), [](const auto& info) {
  return info.param.kind + "_" + info.param.phase + (info.param.tcp ? "_tcp" : "");
});

TEST(FailureMatrix, AnyCellAtAnyMoment) {
  const std::int64_t runs = environment_integer("LOCKSTEP_FAILURE_RUNS", 0, 1'000'000).value_or(0);
  if (runs == 0) GTEST_SKIP() << "LOCKSTEP_FAILURE_RUNS=200 draws so many";
  const auto seed = static_cast<unsigned>(
      environment_integer("LOCKSTEP_FAILURE_SEED", 0, 1'000'000'000).value_or(std::random_device()() % 1'000'000'000));
  std::cout << "LOCKSTEP_FAILURE_SEED=" << seed << std::endl;
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<std::string> kinds{"kill", "stop", "throw", "cut"};
  // The least number of times that each phase is reached before the last epoch.
  const std::vector<std::pair<std::string, int>> phases{{"rendezvous", 7}, {"broadcast", 2},  {"backward", 8},
                                                        {"reduce", 8},     {"evaluation", 4}, {"checkpoint", 2}};
  std::map<std::string, std::chrono::milliseconds> longest;
  for (std::int64_t i = 0; i < runs; ++i) {
    const auto& [phase, times] = phases[static_cast<std::size_t>(below(6))];
    Cell cell{.kind = kinds[static_cast<std::size_t>(below(4))], .phase = phase, .ranks = 2 + below(3)};
    cell.culprit = below(cell.ranks);
    cell.tcp = below(3) == 0;
    cell.skip = below(times) + (phase == "evaluation");
    cell.delay = 1 + below(5'000);
    if (phase == "checkpoint" && cell.culprit == 0) cell.skip = 0;
    SCOPED_TRACE(::testing::PrintToString(cell));
    const JobEnd end = run_cell(cell);
    expect_bounded(cell, end);
    for (int r = 0; r < cell.ranks; ++r) {
      const RankEnd& rank = end.ranks[static_cast<std::size_t>(r)];
      auto& most = longest[cell.kind + " in " + cell.phase];
      if (r != cell.culprit) most = std::max(most, rank.took);
    }
    if (HasFailure()) {
      std::cout << cell << "\n" << end.output;
      break;
    }
  }
  for (const auto& [cell, took] : longest) std::cout << cell << ": at most " << took.count() << " ms\n";
}

// Neither a checkpoint nor a callback that takes longer than the timeout is a failure.
TEST(Busy, RanksAreWaitedFor) {
  for (const bool tcp : {false, true}) {
    for (const char* phase : {"checkpoint", "evaluation"}) {
      const JobEnd end = run_job({.ranks = 2,
                                  .tcp = tcp,
                                  .timeout = 2s,
                                  .arguments = {"--fault", "busy", "--phase", phase, "--culprit", "0"}});
      EXPECT_TRUE(end.fault_came);
      EXPECT_EQ(end.result.status, 0) << end.output;
    }
  }
}

// The first rank to end is the one that noticed; the other would not end for longer than this test may take.
TEST(Launcher, NamesTheRankThatStandsStillAndEndsItSoon) {
  const JobEnd end = run_job({.ranks = 2,
                              .timeout = 3s,
                              .grace = 600s,
                              .arguments = {"--fault", "stop", "--phase", "reduce", "--culprit", "0", "--skip", "2"}});
  EXPECT_EQ(end.result.message, "rank 0 lost (no answer within 3 s)") << end.output;
  EXPECT_EQ(end.result.status, 1);
  EXPECT_EQ(end.ranks[1].status, 1);
  EXPECT_THAT(end.left_behind, ::testing::IsEmpty());
}

class Disagreement : public ::testing::Test {
 protected:
  // Expects that all ranks end with this text.
  void expect(const std::string& what, const std::string& text) {
    for (const bool tcp : {false, true}) {
      const JobEnd end = run_job({.ranks = 3, .tcp = tcp, .arguments = {"--disagree", what, "--culprit", "1"}});
      for (const RankEnd& rank : end.ranks) {
        EXPECT_EQ(rank.status, 1) << end.output;
        ASSERT_EQ(rank.errors.size(), 1u) << end.output;
        EXPECT_THAT(rank.errors[0], HasSubstr(text));
      }
      EXPECT_THAT(end.left_behind, ::testing::IsEmpty());
    }
  }
};

TEST_F(Disagreement, AboutTheModel) {
  expect("model",
         "rank 1: has 'parameter hidden.weight [1025, 300] f32' where rank 0 has "
         "'parameter hidden.weight [1024, 300] f32'");
}

TEST_F(Disagreement, AboutTheRecipe) {
  expect("recipe", "rank 1: has 'learning_rate 0.02' where rank 0 has 'learning_rate 0.01'");
}

TEST_F(Disagreement, AboutTheOrderOfCollectives) {
  expect("order", "ranks disagree: rank 0 called creation of a subgroup of 3 ranks, rank 1 barrier");
}

}  // namespace
}  // namespace lockstep::testing
