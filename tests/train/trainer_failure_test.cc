// Runs that end with an error: its message, and the files it leaves.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
