// Runs that end with an error: its message, and the files it leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/autograd/losses.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/data/map_dataset.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

// Pictures that are numbers up to `good`, and one that is none after it, in order.
std::shared_ptr<const Dataset> with_a_nan(std::int64_t at) {
  Tensor images = testing::Random(3).floats({SmallJob::kTrain, 1, 6, 6});
  images.data_ptr<float>()[at * 36] = std::numeric_limits<float>::quiet_NaN();
  return std::make_shared<TensorDataset>(std::vector<Tensor>{images, Tensor::host({SmallJob::kTrain}, DType::i64)});
}

TEST(TrainerFailure, ALossThatIsNotFiniteEndsTheRunAndKeepsTheLastGoodCheckpoint) {
  TemporaryFolder folder;
  // Sample 33 is in step 4.
  SmallJob job(2, {.epochs = 2, .shuffle = false, .save_folder = folder.path(), .save_every = 2}, with_a_nan(33));
  EXPECT_ERROR(job.trainer->train(), "the loss is nan at step 4; the last good checkpoint is that of step 2");
  EXPECT_EQ(job.losses.size(), 3u);
  const auto latest = find_latest_checkpoint(folder.path()).checkpoint;
  ASSERT_TRUE(latest.has_value());
  EXPECT_EQ(latest->step, 2);
  // Its weights are sound.
  SmallJob good(1, {.epochs = 2, .max_steps = 3, .shuffle = false}, with_a_nan(33));
  good.trainer->resume(folder.path());
  good.trainer->train();
  EXPECT_EQ(good.losses, (std::vector<double>{job.losses[2]}));
}

// A picture of sample 33, in step 4, is so bright that its variance overflows. Tensor norm makes zeros of it, and a
// finite loss.
std::shared_ptr<const Dataset> with_a_bright_picture() {
  Tensor images = testing::Random(3).floats({SmallJob::kTrain, 1, 6, 6});
  for (int i = 0; i < 36; ++i) images.data_ptr<float>()[33 * 36 + i] *= 1e30f;
  return std::make_shared<TensorDataset>(std::vector<Tensor>{images, Tensor::host({SmallJob::kTrain}, DType::i64)});
}

TEST(TrainerFailure, WeightsThatTheirUpdateRuinedAreNoCheckpoint) {
  TemporaryFolder folder;
  SmallJob job(2, {.epochs = 1, .shuffle = false, .save_folder = folder.path(), .save_every = 2},
               with_a_bright_picture());
  EXPECT_ERROR(job.trainer->train(),
               "checkpoint: step 4: 1.running_var holds inf at element 0; the last good checkpoint is that of step 2");
  ASSERT_EQ(job.losses.size(), 4u);
  EXPECT_TRUE(std::isfinite(job.losses[3]));
  EXPECT_EQ(find_latest_checkpoint(folder.path()).checkpoint->step, 2);
  TemporaryFolder other;
  SmallJob late(1, {.epochs = 1, .shuffle = false, .save_folder = other.path()}, with_a_bright_picture());
  EXPECT_ERROR(late.trainer->train(), "checkpoint: step 5: ");
  EXPECT_FALSE(find_latest_checkpoint(other.path()).checkpoint.has_value());
}

TEST(TrainerFailure, WithoutCheckpointsTheStepAloneIsNamed) {
  SmallJob job(1, {.epochs = 1, .shuffle = false}, with_a_nan(45));
  EXPECT_ERROR(job.trainer->train(), "the loss is nan at step 5");
  TemporaryFolder folder;
  SmallJob saving(1, {.epochs = 1, .shuffle = false, .save_folder = folder.path()}, with_a_nan(45));
  EXPECT_ERROR(saving.trainer->train(), "the loss is nan at step 5; there is no checkpoint yet");
}

// The losses of the steps that were on their way count. The gradients of the others are finite.
TEST(TrainerFailure, ARunThatGoesOnLosesNoLoss) {
  const auto run = [](int devices, const std::vector<int>& bad, bool saves) {
    TemporaryFolder folder;
    TrainerOptions options{.epochs = 2, .shuffle = false};
    if (saves) options.save_folder = folder.path();
    options.loss = [bad, step = std::make_shared<int>(0)](const Tensor& outputs, const Tensor& labels) {
      const Tensor loss = cross_entropy(outputs, labels);
      return std::ranges::find(bad, ++*step) == bad.end() ? loss : loss + std::numeric_limits<double>::infinity();
    };
    SmallJob job(devices, options);
    for (const int step : bad) EXPECT_ERROR(job.trainer->train(), fmt::format("the loss is inf at step {}", step));
    const TrainingResult result = job.trainer->train();
    if (saves) {
      EXPECT_EQ(SmallJob(1, options).trainer->resume(folder.path()).position.epochs.size(), 2u);
    }
    return std::pair(job.steps, result.epochs);
  };
  const auto [all, expected] = run(2, {}, false);
  // In a row, at the end of an epoch, and at the end of the run.
  for (const std::vector<int>& bad : {std::vector<int>{2, 3, 4}, {4, 5}, {9, 10}, {2, 4, 6, 8}}) {
    const auto [steps, epochs] = run(2, bad, bad.size() == 2);
    std::vector<std::int64_t> numbers, finite;
    std::vector<double> sums(2), samples(2);
    for (const StepReport& step : all) {
      if (std::ranges::find(bad, step.step) != bad.end()) continue;
      finite.push_back(step.step);
      const std::size_t epoch = step.step > 5;
      sums[epoch] += step.loss * static_cast<double>(step.samples);
      samples[epoch] += static_cast<double>(step.samples);
    }
    for (const StepReport& step : steps) {
      numbers.push_back(step.step);
      EXPECT_EQ(step.loss, all[static_cast<std::size_t>(step.step - 1)].loss) << step.step;
      EXPECT_LT(step.images_per_second, 1e8) << step.step;
    }
    EXPECT_EQ(numbers, finite);
    EXPECT_EQ(epochs.back().train_loss, sums[1] / samples[1]);
  }
  const auto [none, lost] = run(1, {1, 2, 3, 4, 5}, true);
  EXPECT_EQ(none.size(), 5u);
  EXPECT_TRUE(std::isnan(lost[0].train_loss));
}

TEST(TrainerFailure, AnErrorOfTheDataComesOut) {
  auto bad = std::make_shared<MapDataset>(random_pictures(SmallJob::kTrain, 1), [](Example example, RandomKey) {
    if (example[1].item<std::int64_t>() == 3) fail("picture of class 3");
    return example;
  });
  SmallJob job(2, {.epochs = 1}, bad);
  EXPECT_ERROR(job.trainer->train(), "picture of class 3");
}

}  // namespace
}  // namespace lockstep
