// A watched metric ends a run and chooses the best checkpoint; a moving average is measured and saved.
#include "lockstep/train/watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/weights.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

std::vector<EpochReport> epochs(const std::vector<double>& values) {
  std::vector<EpochReport> all;
  for (double v : values) {
    all.push_back({.epoch = std::ssize(all) + 1, .train_loss = -v, .metrics = {{.name = "score", .value = v}}});
  }
  return all;
}

TEST(Watch, TheBestEpochIsTheFirstThatNoneBetters) {
  EXPECT_EQ(best_epoch(epochs({1, 3, 2, 3}), {.metric = "score"}), 2);
  EXPECT_EQ(best_epoch(epochs({1, 3, 2, 3}), {.metric = "score", .smallest = true}), 1);
  EXPECT_EQ(best_epoch(epochs({1, 3, 2, 3}), {.metric = "train_loss", .smallest = true}), 2);
  EXPECT_EQ(best_epoch(epochs({1, 1.25, 1.5, 2}), {.metric = "score", .min_delta = 0.5}), 4);
  EXPECT_EQ(best_epoch(epochs({NAN, 1, NAN}), {.metric = "score"}), 2);
  EXPECT_EQ(best_epoch(epochs({NAN}), {.metric = "score"}), 0);
  EXPECT_EQ(best_epoch(std::vector<EpochReport>{{.epoch = 1, .test = {1, 2}}, {.epoch = 2, .test = {2, 2}}},
                       {.metric = "accuracy"}),
            2);
  EXPECT_ERROR(best_epoch(epochs({1}), {.metric = "speed"}),
               "watch.metric is speed, but epoch 1 has [train_loss, score]");
}

TEST(Watch, PatienceIsANumberOfEpochs) {
  const WatchOptions two{.metric = "score", .patience = 2};
  EXPECT_FALSE(stops_early({}, two));
  EXPECT_FALSE(stops_early(epochs({3, 2}), two));
  EXPECT_TRUE(stops_early(epochs({3, 2, 2}), two));
  EXPECT_FALSE(stops_early(epochs({3, 2, 4}), two));
  EXPECT_TRUE(stops_early(epochs({NAN, NAN}), two));
  EXPECT_FALSE(stops_early(epochs({3, 2, 2, 2}), {.metric = "score"}));
}

// A score that is best after the second epoch, whatever the net does: it counts the measurements.
TrainerOptions scored(std::shared_ptr<int> measured, const std::filesystem::path& folder) {
  TrainerOptions options;
  options.epochs = 10;
  options.metrics = {metrics::perplexity(),
                     {.name = "score",
                      .values = [](const Tensor& outputs, const Tensor&) { return outputs; },
                      .result =
                          [measured](double) {
                            const int epoch = ++*measured;
                            return epoch == 2 ? 5.0 : 1.0;
                          }}};
  options.save_folder = folder;
  options.watch = {.metric = "score", .patience = 3, .save_best = true};
  return options;
}

TEST(Watch, ARunEndsEarlyAndKeepsTheBestCheckpoint) {
  TemporaryFolder folder;
  TrainerOptions options = scored(std::make_shared<int>(0), folder.path());
  options.keep_checkpoints = 3;
  SmallJob job(2, options);
  std::string best;
  job.trainer->on_update = [&](std::int64_t step) {
    if (step == 10) best = weights_sha256(job.net);
  };
  const TrainingResult result = job.trainer->train();
  EXPECT_TRUE(result.stopped_early);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.steps, 5 * 5);
  EXPECT_EQ(find_latest_checkpoint(folder / "best").checkpoint->step, 2 * 5);
  SmallJob other(1);
  load_weights(folder / "best" / "step-00000010" / "weights.safetensors", other.net);
  EXPECT_EQ(weights_sha256(other.net), best);
  for (int step : {15, 20, 25}) {
    EXPECT_TRUE(std::filesystem::exists(folder / fmt::format("step-{:08}", step))) << step;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "step-00000010"));

  // The epochs of the checkpoint count: there is nothing left to do.
  options = scored(std::make_shared<int>(7), folder / "more");
  SmallJob resumed(1, options);
  resumed.trainer->resume(folder.path());
  EXPECT_EQ(resumed.trainer->train().steps, 25);
}

TEST(Watch, AMetricSaysWhetherTheSmallestValueIsTheBest) {
  for (const Metric& metric : {metrics::perplexity(), metrics::mean_absolute_error(), metrics::mean_squared_error()}) {
    EXPECT_TRUE(metric.smaller_is_better) << metric.name;
  }
  EXPECT_FALSE(metrics::accuracy().smaller_is_better);
  EXPECT_EQ(best_epoch(epochs({1, 3, 2, 3}), {.metric = "train_loss"}), 2);  // the negative of these values
  // 5 in the second epoch and 1 in all others: the best value and then the worst.
  const auto steps = [](bool smaller_is_better, std::optional<bool> smallest) {
    TrainerOptions options = scored(std::make_shared<int>(0), {});
    options.metrics[1].smaller_is_better = smaller_is_better;
    options.watch = {.metric = "score", .smallest = smallest, .patience = 2};
    return SmallJob(1, options).trainer->train().steps;
  };
  EXPECT_EQ(steps(false, {}), 4 * 5);
  EXPECT_EQ(steps(true, {}), 3 * 5);
  EXPECT_EQ(steps(true, false), 4 * 5);
  EXPECT_EQ(steps(false, true), 3 * 5);
}

TEST(Watch, RanksEndTogetherAndKeepTheBestCheckpoint) {
  TemporaryFolder alone, together;
  SmallJob one(1, scored(std::make_shared<int>(0), alone.path()));
  const TrainingResult expected = one.trainer->train();
  auto groups = make_local_groups(2);
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      SmallJob rank(1, scored(std::make_shared<int>(0), together.path()), nullptr, groups[r]);
      const TrainingResult result = rank.trainer->train();
      EXPECT_TRUE(result.stopped_early);
      EXPECT_EQ(result.steps, 5 * 5);
      ASSERT_EQ(result.epochs.size(), expected.epochs.size());
      for (std::size_t e = 0; e < result.epochs.size(); ++e) {
        EXPECT_EQ(metric_named(result.epochs[e].metrics, "perplexity").value,
                  metric_named(expected.epochs[e].metrics, "perplexity").value);
      }
      EXPECT_EQ(weights_sha256(rank.net), weights_sha256(one.net));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(find_latest_checkpoint(together / "best").checkpoint->step, 2 * 5);
  const auto best_weights = [&](const TemporaryFolder& folder) {
    SmallJob job(1);
    load_weights(folder / "best" / "step-00000010" / "weights.safetensors", job.net);
    return weights_sha256(job.net);
  };
  EXPECT_EQ(best_weights(together), best_weights(alone));
}

TEST(Watch, OptionsAreChecked) {
  TrainerOptions options;
  options.watch = {.metric = "accuracy", .save_best = true};
  EXPECT_ERROR(SmallJob(1, options), "expected watch.metric and save_folder to be set");
  options.watch = {.metric = "accuracy", .patience = -1};
  EXPECT_ERROR(SmallJob(1, options), "patience -1");
  options.watch = {.metric = "acc", .patience = 1};
  EXPECT_ERROR(SmallJob(1, options), "watches acc, but each epoch has only train_loss, accuracy");
  options.watch = {.patience = 3};
  EXPECT_ERROR(SmallJob(1, options), "watch.patience is 3 without watch.metric, expected that, too, or 0");
  options.watch = {.min_delta = 0.5};
  EXPECT_ERROR(SmallJob(1, options), "watch.min_delta is 0.5 without watch.metric");
  options.watch = {.smallest = true};
  EXPECT_ERROR(SmallJob(1, options), "watch.smallest is set without watch.metric");
  // The options of a Trainer are those of another one.
  EXPECT_FALSE(SmallJob(1).trainer->options().watch.smallest.has_value());
  options.watch = {.patience = 1};
  options.metrics = {metrics::top_k_accuracy(2)};
  options.watch.metric = "accuracy";
  EXPECT_ERROR(SmallJob(1, options), "watches accuracy, but each epoch has only train_loss, top2_accuracy");
}

struct Averaged {
  std::string weights, average;
  std::vector<double> accuracies;
};

Averaged run(SmallJob& job) {
  Averaged a;
  for (const EpochReport& epoch : job.trainer->train().epochs) a.accuracies.push_back(epoch.test.value());
  a.weights = weights_sha256(job.net);
  AveragedWeights averaged(*job.trainer->average());
  a.average = weights_sha256(job.net);
  return a;
}

TEST(TrainerAverage, IsTestedAndSavedAndTheSameEverywhere) {
  TrainerOptions options;
  options.epochs = 2;
  options.average_decay = 0.9;
  SmallJob one(1, options);
  const Averaged expected = run(one);
  EXPECT_NE(expected.average, expected.weights);
  {
    AveragedWeights averaged(*one.trainer->average());
    DataLoader loader(random_pictures(SmallJob::kTest, 2), {.batch_size = 10});
    EXPECT_EQ(evaluate(one.net, loader, {.devices = one.runtime.devices(), .split = {.shards = 4}}).value(),
              expected.accuracies.back());
  }
  SmallJob two(2, options);
  EXPECT_EQ(run(two).average, expected.average);
  EXPECT_EQ(weights_sha256(two.net), expected.weights);

  auto groups = make_local_groups(2);
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      SmallJob rank(1, options, nullptr, groups[r], 1);
      EXPECT_EQ(run(rank).average, expected.average);
    });
  }
  for (std::thread& rank : ranks) rank.join();

  // Stopped inside an epoch, and resumed elsewhere.
  TemporaryFolder folder;
  options.save_folder = folder.path();
  SmallJob stopped(1, options);
  stopped.trainer->on_update = [&](std::int64_t step) {
    if (step == 7) stopped.trainer->request_stop();
  };
  stopped.trainer->train();
  SmallJob resumed(3, options);
  resumed.trainer->resume(folder.path());
  const Averaged end = run(resumed);
  EXPECT_EQ(end.weights, expected.weights);
  EXPECT_EQ(end.average, expected.average);

  // The average is part of the recipe.
  options.average_decay = 0;
  SmallJob without(1, options);
  EXPECT_ERROR(without.trainer->resume(folder.path()), "average_decay");
}

}  // namespace
}  // namespace lockstep
