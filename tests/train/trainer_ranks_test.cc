// The trainer over several ranks, which are threads here, each with its own runtime. It computes and reports the same
// as one process, and ranks stop and fail together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <thread>

#include "lockstep/checkpoint/weights.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

struct RankResult {
  std::string error;
  TrainingResult result;
  std::vector<double> losses;
  std::string weights;
};

struct RanksOptions {
  TrainerOptions trainer{};
  int devices = 1;
  // A folder for each rank, or one for all.
  std::vector<std::filesystem::path> resume{};
  // Called with each rank's job before it trains.
  std::function<void(int rank, SmallJob&)> prepare{};
  std::function<std::shared_ptr<const Dataset>(int rank)> data{};
};

RankResult train(const RanksOptions& options, std::shared_ptr<ProcessGroup> group) {
  RankResult r;
  int rank = group ? group->rank() : 0;
  try {
    SmallJob job(options.devices, options.trainer, options.data ? options.data(rank) : nullptr, group);
    if (!options.resume.empty()) {
      job.trainer->resume(options.resume[static_cast<std::size_t>(rank) % options.resume.size()]);
    }
    if (options.prepare) options.prepare(rank, job);
    r.result = job.trainer->train();
    r.losses = job.losses;
    r.weights = weights_sha256(job.net);
  } catch (const std::exception& error) {
    r.error = error.what();
    if (group) group->abort(r.error);
  }
  return r;
}

std::vector<RankResult> train_ranks(int world, const RanksOptions& options) {
  auto groups = make_local_groups(world);
  std::vector<RankResult> results(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r] { results[r] = train(options, groups[r]); });
  }
  for (std::thread& t : threads) t.join();
  return results;
}

void expect_same(const RankResult& a, const RankResult& b) {
  EXPECT_EQ(a.error, "");
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.result.steps, b.result.steps);
  ASSERT_EQ(a.result.epochs.size(), b.result.epochs.size());
  for (std::size_t e = 0; e < a.result.epochs.size(); ++e) {
    EXPECT_EQ(a.result.epochs[e].train_loss, b.result.epochs[e].train_loss);
    // Every test image counted exactly once.
    EXPECT_EQ(a.result.epochs[e].test.total, SmallJob::kTest);
    EXPECT_EQ(a.result.epochs[e].test.correct, b.result.epochs[e].test.correct);
  }
}

TEST(TrainerRanks, DoWhatOneProcessDoes) {
  for (std::int64_t accumulate : {1, 2}) {
    const RanksOptions options{.trainer = {.accumulate = accumulate, .epochs = 2, .clip_norm = 0.5}};
    const RankResult one = train(options, nullptr);
    EXPECT_EQ(one.error, "");
    for (int world : {2, 3, 4}) {
      SCOPED_TRACE(world);
      for (const RankResult& rank : train_ranks(world, options)) expect_same(rank, one);
    }
    RanksOptions two = options;
    two.devices = 2;
    for (const RankResult& rank : train_ranks(2, two)) expect_same(rank, one);
  }
}

TEST(TrainerRanks, StopAtOneStepWhenAnyIsAsked) {
  TemporaryFolder folder;
  RanksOptions options{.trainer = {.epochs = 1000, .save_folder = folder.path()}};
  options.prepare = [](int rank, SmallJob& job) {
    if (rank != 1) return;
    job.trainer->on_step = [trainer = job.trainer.get()](const StepReport& report) {
      if (report.step == 7) trainer->request_stop();
    };
  };
  const auto results = train_ranks(3, options);
  for (const RankResult& r : results) {
    EXPECT_EQ(r.error, "");
    EXPECT_TRUE(r.result.stopped);
    EXPECT_EQ(r.result.steps, results[0].result.steps);
    EXPECT_EQ(r.weights, results[0].weights);
  }
  EXPECT_GE(results[0].result.steps, 7);
  EXPECT_LT(results[0].result.steps, 20);
}

TEST(TrainerRanks, ResumeOnAnotherNumberOfRanks) {
  const RanksOptions whole{.trainer = {.epochs = 3}};
  const RankResult expected = train(whole, nullptr);
  for (auto [before, after] : {std::pair{2, 3}, {3, 1}, {1, 4}}) {
    TemporaryFolder folder;
    RanksOptions first = whole, second = whole;
    first.trainer.save_folder = second.trainer.save_folder = folder.path();
    first.trainer.save_every = 3;
    second.resume = {folder.path()};
    second.trainer.save_every = 3;
    first.prepare = [](int rank, SmallJob& job) {
      if (rank == 0) job.trainer->request_stop();
    };
    // Asked before it begins, it still has done the steps that were under way, and no more than a few.
    for (const RankResult& r : train_ranks(before, first)) {
      EXPECT_EQ(r.error, "");
      EXPECT_TRUE(r.result.stopped);
    }
    if (before == 1) {
      EXPECT_EQ(train(second, nullptr).weights, expected.weights);
    }
    for (const RankResult& r : train_ranks(after, second)) EXPECT_EQ(r.weights, expected.weights) << r.error;
  }
}

struct Broken : Dataset {
  std::int64_t size() const override { return SmallJob::kTrain; }
  using Dataset::get;
  Example get(std::int64_t) const override { fail("a broken disk"); }
};

TEST(TrainerRanks, FailTogetherAndNameTheCulprit) {
  RanksOptions options{.trainer = {.epochs = 2}};
  options.data = [](int rank) { return rank == 1 ? std::make_shared<Broken>() : std::shared_ptr<const Dataset>(); };
  const auto results = train_ranks(3, options);
  EXPECT_THAT(results[1].error, HasSubstr("a broken disk"));
  for (int r : {0, 2}) {
    EXPECT_THAT(results[static_cast<std::size_t>(r)].error, HasSubstr("rank 1"));
    EXPECT_THAT(results[static_cast<std::size_t>(r)].error, HasSubstr("a broken disk"));
  }
}

TEST(TrainerRanks, ACheckpointThatCannotBeWrittenIsEveryonesError) {
  TemporaryFolder folder;
  std::filesystem::path file = folder.path() / "file";
  { std::ofstream(file) << "in the way"; }
  RanksOptions options{.trainer = {.epochs = 1, .save_folder = file / "checkpoints"}};
  for (const RankResult& r : train_ranks(2, options)) EXPECT_THAT(r.error, HasSubstr("file")) << r.error;
}

// Ranks on hosts of their own see other disks, or none.
TEST(TrainerRanks, ResumeFromWhatRankZeroReads) {
  TemporaryFolder folder;
  const auto save = [&](const char* name, TrainerOptions options) {
    options.epochs = 1;
    options.save_folder = folder / name;
    EXPECT_EQ(train({.trainer = options}, nullptr).error, "");
    return options.save_folder.string();
  };
  const std::string three = save("three", {.max_steps = 3}), four = save("four", {.max_steps = 4});
  const std::string seven = save("seven", {.max_steps = 4, .seed = 7}), none = (folder / "none").string();
  const RankResult whole = train({.trainer = {.epochs = 1}}, nullptr);
  for (const RankResult& r : train_ranks(3, {.trainer = {.epochs = 1}, .resume = {three, none, four}})) {
    EXPECT_EQ(r.error, "");
    EXPECT_EQ(r.weights, whole.weights);
    EXPECT_EQ(r.losses.size(), 2U);
  }
  const auto expect_error = [&](const std::vector<std::filesystem::path>& folders, const std::string& error) {
    for (const RankResult& r : train_ranks(3, {.trainer = {.epochs = 1}, .resume = folders})) EXPECT_EQ(r.error, error);
  };
  expect_error({none, three, three}, "rank 0: " + none + ": there is no valid checkpoint to resume from");
  expect_error({seven, four, four}, "rank 0: " + seven +
                                        "/step-00000004/state.json: the checkpoint was made with seed 7; "
                                        "this run has seed 0");
}

TEST(TrainerRanks, ResumeOrStartTogether) {
  TemporaryFolder folder;
  const RankResult whole = train({.trainer = {.epochs = 1}}, nullptr);
  RanksOptions options{.trainer = {.epochs = 1, .max_steps = 3, .save_folder = folder / "save"}};
  for (const bool resumes : {false, true}) {
    options.prepare = [&](int, SmallJob& job) {
      const auto run = job.trainer->resume_or_start();
      EXPECT_EQ(run.has_value(), resumes);
      if (run) {
        EXPECT_EQ(run->position.step, 3);
      }
    };
    for (const RankResult& r : train_ranks(2, options)) {
      EXPECT_EQ(r.error, "");
      if (resumes) {
        EXPECT_EQ(r.weights, whole.weights);
      }
    }
    options.trainer.max_steps = 0;
  }
}

TEST(TrainerRanks, GoOnAfterAStop) {
  RanksOptions options{.trainer = {.epochs = 4}};
  const RankResult whole = train(options, nullptr);
  options.prepare = [](int rank, SmallJob& job) {
    if (rank == 1) {
      job.trainer->on_update = [trainer = job.trainer.get()](std::int64_t step) {
        if (step == 7) trainer->request_stop();
      };
    }
    EXPECT_TRUE(job.trainer->train().stopped);
  };
  for (const RankResult& r : train_ranks(3, options)) {
    EXPECT_EQ(r.error, "");
    EXPECT_FALSE(r.result.stopped);
    EXPECT_EQ(r.weights, whole.weights);
    EXPECT_EQ(r.losses, whole.losses);
  }
}

TEST(TrainerRanks, WeightsThatAreNotFiniteAreEveryonesError) {
  TemporaryFolder folder;
  RanksOptions options{.trainer = {.epochs = 1, .save_folder = folder.path(), .save_every = 2}};
  options.prepare = [](int, SmallJob& job) {
    // As an update would whose gradients overflowed.
    job.trainer->on_update = [&job](std::int64_t step) {
      Parameter bias = job.net.parameters().back();
      if (step == 4) bias.set_data(Tensor::from(std::vector<float>(5, -INFINITY), {5}));
    };
  };
  for (const RankResult& r : train_ranks(3, options)) {
    EXPECT_EQ(r.error,
              "rank 0: checkpoint: step 4: 6.bias holds -inf at element 0; the last good checkpoint is that of step 2");
  }
}

}  // namespace
}  // namespace lockstep
