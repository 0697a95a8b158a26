#include "lockstep/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/checkpoint/weights.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

TEST(Trainer, ReportsEveryStepAndEpoch) {
  SmallJob job(2, {.epochs = 2});
  std::vector<EpochReport> epochs;
  job.trainer->on_epoch = [&](const EpochReport& report) {
    // All losses of the epoch come before its end.
    EXPECT_EQ(job.steps.size(), static_cast<std::size_t>(5 * report.epoch));
    epochs.push_back(report);
  };
  const TrainingResult result = job.trainer->train();
  EXPECT_EQ(result.steps, 10);
  EXPECT_FALSE(result.stopped);
  ASSERT_EQ(result.epochs.size(), 2u);
  ASSERT_EQ(epochs.size(), 2u);
  for (std::size_t i = 0; i < job.steps.size(); ++i) {
    const StepReport& step = job.steps[i];
    EXPECT_EQ(step.step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(step.epoch, static_cast<std::int64_t>(i / 5) + 1);
    EXPECT_EQ(step.batch, static_cast<std::int64_t>(i % 5) + 1);
    EXPECT_EQ(step.batches, 5);
    EXPECT_EQ(step.samples, i % 5 == 4 ? 6 : 10);
    EXPECT_GT(step.images_per_second, 0);
  }
  for (std::size_t e = 0; e < 2; ++e) {
    // The mean over samples, not over batches.
    double sum = 0;
    for (std::size_t i = 5 * e; i < 5 * e + 5; ++i)
      sum += job.losses[i] * static_cast<double>(job.steps[i].samples);
    EXPECT_EQ(epochs[e].train_loss, sum / SmallJob::kTrain);
    EXPECT_EQ(epochs[e].test.total, SmallJob::kTest);
  }
  EXPECT_EQ(epochs[1].test.correct, job.trainer->evaluate().correct);
}

// A model without batch norm and dropout computes the same function of a batch in one piece or in several.
TEST(Trainer, MicroBatchesAddUpToTheBatch) {
  auto train = [](std::int64_t accumulate) {
    Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1});
    Sequential net;
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    Sgd sgd(net.parameters(), {.lr = 0.1});
    Trainer trainer(net, sgd, random_pictures(26, 1), random_pictures(5, 2),
                    {.devices = runtime.devices(), .batch_size = 12, .accumulate = accumulate, .epochs = 2});
    std::vector<double> losses;
    trainer.on_step = [&](const StepReport& report) {
      losses.push_back(report.loss);
      EXPECT_EQ(report.samples, report.batch == 3 ? 2 : 12);
      EXPECT_EQ(report.batches, 3);
    };
    EXPECT_EQ(trainer.train().steps, 6);
    return losses;
  };
  const std::vector<double> whole = train(1), micro = train(4);
  ASSERT_EQ(whole.size(), micro.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], micro[i], 1e-6 * whole[0]);
  EXPECT_ERROR(train(5), "a batch of 12 in 5 micro-batches, expected a number that divides it");
}

// Over two epochs, each with a batch that is shorter, and an evaluation between them.
TEST(Trainer, RecordedStepsAreThoseThatAreDescribed) {
  auto train = [](bool record, std::int64_t accumulate, std::string* why_not) {
    Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1});
    Sequential net;
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    Sgd sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
    Trainer trainer(net, sgd, random_pictures(66, 1), random_pictures(5, 2),
                    {.devices = runtime.devices(), .shards = 3, .batch_size = 12, .accumulate = accumulate,
                     .record_steps = record, .epochs = 2, .clip_norm = 0.5,
                     .schedule = {.kind = ScheduleKind::cosine, .warmup = 3}});
    std::vector<double> losses;
    trainer.on_step = [&](const StepReport& report) { losses.push_back(report.loss); };
    trainer.train();
    *why_not = trainer.why_not_recorded();
    for (const Tensor& t : {net.parameters()[0].host_data(), net.parameters()[1].host_data()}) {
      const auto values = t.to_vector<float>();
      losses.insert(losses.end(), values.begin(), values.end());
    }
    return losses;
  };
  std::string why_not;
  EXPECT_EQ(train(true, 1, &why_not), train(false, 1, &why_not));
  train(true, 1, &why_not);
  EXPECT_EQ(why_not, "");
  EXPECT_EQ(train(true, 2, &why_not), train(false, 2, &why_not));
  train(true, 2, &why_not);
  EXPECT_EQ(why_not, "it has several micro-batches");
}

TEST(Trainer, Learns) {
  SmallJob job(2, {.epochs = 30});
  const TrainingResult result = job.trainer->train();
  EXPECT_LT(result.epochs.back().train_loss, 0.9 * result.epochs.front().train_loss);
}

TEST(Trainer, EndsAtTheFirstLimit) {
  EXPECT_EQ(SmallJob(1, {.epochs = 1, .max_steps = 99}).trainer->train().steps, 5);
  EXPECT_EQ(SmallJob(1, {.epochs = 99, .max_steps = 5}).trainer->train().steps, 5);
  SmallJob job(1, {.epochs = 99, .max_steps = 7});
  const TrainingResult result = job.trainer->train();
  EXPECT_EQ(result.steps, 7);
  EXPECT_FALSE(result.stopped);
  ASSERT_EQ(result.epochs.size(), 2u);  // the one that was cut short is reported, too
  EXPECT_EQ(result.epochs[1].train_loss, (job.losses[5] + job.losses[6]) / 2);
  EXPECT_EQ(SmallJob(1, {.epochs = 0}).trainer->train().steps, 0);
}

// Where the run stops and with how many devices it goes on.
class Resume : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Resume, GoesOnToTheBit) {
  const auto [stop, devices] = GetParam();
  const TrainerOptions options{
      .epochs = 3, .seed = 5, .label_smoothing = 0.1, .clip_norm = 0.5, .schedule = {.warmup = 4}};
  SmallJob whole(2, options);
  const TrainingResult expected = whole.trainer->train();

  TemporaryFolder folder;
  TrainerOptions first = options;
  first.max_steps = stop;
  first.save_folder = folder.path();
  SmallJob stopped(2, first);
  stopped.trainer->train();
  EXPECT_EQ(find_latest_checkpoint(folder.path()).checkpoint->step, stop);

  SmallJob resumed(devices, options);
  EXPECT_EQ(resumed.trainer->resume(folder.path()).position.step, stop);
  EXPECT_EQ(weights_sha256(resumed.net), weights_sha256(stopped.net));
  const TrainingResult result = resumed.trainer->train();
  EXPECT_EQ(result.steps, 15);
  EXPECT_EQ(weights_sha256(resumed.net), weights_sha256(whole.net));

  std::vector<double> losses = stopped.losses;
  losses.insert(losses.end(), resumed.losses.begin(), resumed.losses.end());
  EXPECT_EQ(losses, whole.losses);
  EXPECT_EQ(result.epochs.back().test.correct, expected.epochs.back().test.correct);
  EXPECT_EQ(result.epochs.back().train_loss, expected.epochs.back().train_loss);
}

INSTANTIATE_TEST_SUITE_P(Stops, Resume,
                         ::testing::Values(std::pair(1, 1), std::pair(7, 1), std::pair(7, 3), std::pair(9, 8),
                                           std::pair(10, 3), std::pair(14, 2)),
                         [](const auto& info) {
                           return fmt::format("After{}On{}Devices", info.param.first, info.param.second);
                         });

TEST(TrainerCheckpoints, AreWrittenEverySoManySteps) {
  TemporaryFolder folder;
  SmallJob job(2, {.epochs = 2, .save_folder = folder.path(), .save_every = 3});
  std::vector<std::int64_t> saved;
  auto watch = job.trainer->on_step;
  job.trainer->on_step = [&](const StepReport& report) {
    watch(report);
    const auto latest = find_latest_checkpoint(folder.path()).checkpoint;
    if (latest && (saved.empty() || saved.back() != latest->step)) saved.push_back(latest->step);
  };
  job.trainer->train();
  EXPECT_EQ(saved, (std::vector<std::int64_t>{3, 6, 9}));
  EXPECT_EQ(find_latest_checkpoint(folder.path()).checkpoint->step, 10);
  // Those in the middle of an epoch go on, too.
  SmallJob again(3, {.epochs = 2});
  again.trainer->resume(folder / "step-00000009");
  again.trainer->train();
  EXPECT_EQ(weights_sha256(again.net), weights_sha256(job.net));
}

TEST(TrainerCheckpoints, AreWrittenAfterEachEpochByDefault) {
  TemporaryFolder folder;
  SmallJob job(1, {.epochs = 2, .save_folder = folder.path()});
  job.trainer->train();
  EXPECT_TRUE(std::filesystem::exists(folder / "step-00000005"));
  EXPECT_TRUE(std::filesystem::exists(folder / "step-00000010"));
  EXPECT_EQ(folder.entries(), 3);  // and the lock
}

TEST(TrainerCheckpoints, AnotherRecipeIsAnErrorThatNamesTheDifference) {
  TemporaryFolder folder;
  const TrainerOptions options{.epochs = 1, .save_folder = folder.path(), .recipe = {{"model", "small"}}};
  SmallJob(1, options).trainer->train();
  auto expect_difference = [&](auto change, const std::string& difference) {
    TrainerOptions other = options;
    other.save_folder.clear();
    change(other);
    SmallJob job(1, other);
    EXPECT_ERROR(job.trainer->resume(folder.path()), difference);
    // Nothing was changed: the run that was refused is as good as new.
    SmallJob fresh(1, other);
    job.trainer->train();
    fresh.trainer->train();
    EXPECT_EQ(weights_sha256(job.net), weights_sha256(fresh.net));
  };
  expect_difference([](TrainerOptions& o) { o.seed = 4; }, "was made with seed 0; this run has seed 4");
  expect_difference([](TrainerOptions& o) { o.shards = 2; }, "was made with shards 4; this run has shards 2");
  expect_difference([](TrainerOptions& o) { o.dtype = DType::bf16; },
                    "was made with dtype \"f32\"; this run has dtype \"bf16\"");
  expect_difference(
      [](TrainerOptions& o) { o.dtype = DType::f16; },
      "dtype \"f32\", no loss_scale, no loss_scale_interval; this run has dtype \"f16\", loss_scale 65536.0, "
      "loss_scale_interval 2000");
  expect_difference([](TrainerOptions& o) { o.shuffle = false; },
                    "was made with shuffle true; this run has shuffle false");
  expect_difference([](TrainerOptions& o) { o.clip_norm = 1; }, "clip_norm 0.0; this run has clip_norm 1.0");
  expect_difference([](TrainerOptions& o) { o.recipe["model"] = "large"; },
                    "model \"small\"; this run has model \"large\"");
  expect_difference([](TrainerOptions& o) { o.recipe["more"] = 1; }, "no more; this run has more 1");
  expect_difference([](TrainerOptions& o) { o.recipe = Recipe::object(); },
                    "model \"small\"; this run has no model");
  // A schedule that ends elsewhere has other rates on the way.
  expect_difference([](TrainerOptions& o) { o.schedule.kind = ScheduleKind::cosine; }, "scheduled_steps");
}

TEST(TrainerCheckpoints, AFolderOfAnotherRunIsRefusedBeforeTheFirstStep) {
  TemporaryFolder folder;
  SmallJob(1, {.epochs = 1, .save_folder = folder.path()}).trainer->train();
  SmallJob other(1, {.epochs = 1, .save_folder = folder.path()});
  EXPECT_ERROR(other.trainer->train(), "holds step 5, cannot add step 0: resume from there");
  EXPECT_TRUE(other.losses.empty());
  EXPECT_ERROR(SmallJob(1).trainer->resume(folder / "none"), "there is no valid checkpoint to resume from");
}

TEST(TrainerCheckpoints, AFolderIsThatOfOneRunAtATime) {
  TemporaryFolder folder;
  const TrainerOptions options{.epochs = 1, .save_folder = folder.path()};
  SmallJob first(1, options), second(1, options);
  auto watch = first.trainer->on_step;
  first.trainer->on_step = [&](const StepReport& report) {
    watch(report);
    if (report.step == 2) {
      EXPECT_ERROR(second.trainer->train(), "another run writes to " + folder.path().string());
    }
  };
  first.trainer->train();
  EXPECT_TRUE(second.losses.empty());
  // One after the other.
  SmallJob third(1, {.epochs = 2, .save_folder = folder.path()});
  third.trainer->resume(folder.path());
  EXPECT_EQ(third.trainer->train().steps, 10);
}

TEST(TrainerCheckpoints, AFolderThatCannotBeWrittenIsHeardOfBeforeTheFirstStep) {
  TemporaryFolder folder;
  SmallJob job(1, {.epochs = 1, .save_folder = folder.write("file", "") / "below"});
  EXPECT_ERROR(job.trainer->train(), "checkpoint: cannot make folder");
  EXPECT_TRUE(job.losses.empty());
}

TEST(TrainerCheckpoints, ADamagedOneIsSkippedAndTold) {
  TemporaryFolder folder;
  SmallJob(1, {.epochs = 2, .save_folder = folder.path()}).trainer->train();
  folder.write("step-00000010/weights.safetensors", "rust");
  SmallJob job(1, {.epochs = 2});
  const ResumedRun run = job.trainer->resume(folder.path());
  EXPECT_EQ(run.position.step, 5);
  ASSERT_EQ(run.damaged.size(), 1u);
  EXPECT_NE(run.damaged[0].find("weights.safetensors"), std::string::npos) << run.damaged[0];
}

// Pictures that are numbers up to `good`, and one that is none after it, in order.
std::shared_ptr<const Dataset> with_a_nan(std::int64_t at) {
  Tensor images = testing::Random(3).floats({SmallJob::kTrain, 1, 6, 6});
  images.view().as<float>()[at * 36] = std::numeric_limits<float>::quiet_NaN();
  return std::make_shared<TensorDataset>(
      std::vector<Tensor>{images, Tensor::host({SmallJob::kTrain}, DType::i64)});
}

TEST(TrainerFailure, ALossThatIsNotFiniteEndsTheRunAndKeepsTheLastGoodCheckpoint) {
  TemporaryFolder folder;
  // Sample 33 is in step 4.
  SmallJob job(2, {.epochs = 2, .shuffle = false, .save_folder = folder.path(), .save_every = 2},
               with_a_nan(33));
  EXPECT_ERROR(job.trainer->train(), "the loss is nan at step 4; the last good checkpoint is that of step 2");
  EXPECT_EQ(job.losses.size(), 3u);
  const auto latest = find_latest_checkpoint(folder.path()).checkpoint;
  ASSERT_TRUE(latest.has_value());
  EXPECT_EQ(latest->step, 2);
  // What it holds is sound.
  SmallJob good(1, {.epochs = 2, .max_steps = 3, .shuffle = false}, with_a_nan(33));
  good.trainer->resume(folder.path());
  good.trainer->train();
  EXPECT_EQ(good.losses, (std::vector<double>{job.losses[2]}));
}

TEST(TrainerFailure, WithoutCheckpointsTheStepAloneIsNamed) {
  SmallJob job(1, {.epochs = 1, .shuffle = false}, with_a_nan(45));
  EXPECT_ERROR(job.trainer->train(), "the loss is nan at step 5");
  TemporaryFolder folder;
  SmallJob saving(1, {.epochs = 1, .shuffle = false, .save_folder = folder.path()}, with_a_nan(45));
  EXPECT_ERROR(saving.trainer->train(), "the loss is nan at step 5; there is no checkpoint yet");
}

TEST(TrainerFailure, AnErrorOfTheDataComesOut) {
  auto bad =
      std::make_shared<MapDataset>(random_pictures(SmallJob::kTrain, 1), [](Example example, RandomKey) {
        if (example[1].item<std::int64_t>() == 3) fail("picture of class 3");
        return example;
      });
  SmallJob job(2, {.epochs = 1}, bad);
  EXPECT_ERROR(job.trainer->train(), "picture of class 3");
}

TEST(TrainerStop, EndsAfterTheStepInProgressWithACheckpoint) {
  TemporaryFolder folder;
  const TrainerOptions options{.epochs = 1000};
  TrainerOptions saving = options;
  saving.save_folder = folder.path();
  SmallJob job(2, saving);
  auto watch = job.trainer->on_step;
  job.trainer->on_step = [&](const StepReport& report) {
    watch(report);
    if (report.step == 7) job.trainer->request_stop();
  };
  const TrainingResult result = job.trainer->train();
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.epochs.size(), 1u);
  // Every step that was taken is reported and in the checkpoint.
  EXPECT_EQ(job.losses.size(), static_cast<std::size_t>(result.steps));
  EXPECT_LE(result.steps, 7 + 3);  // a few were in flight
  EXPECT_EQ(find_latest_checkpoint(folder.path()).checkpoint->step, result.steps);

  TrainerOptions on = options;
  on.max_steps = 14;
  SmallJob resumed(1, on), whole(3, on);
  resumed.trainer->resume(folder.path());
  resumed.trainer->train();
  whole.trainer->train();
  EXPECT_EQ(weights_sha256(resumed.net), weights_sha256(whole.net));
}

TEST(TrainerOptions, AreChecked) {
  SmallJob job(1);
  auto make = [&](TrainerOptions options, std::shared_ptr<const Dataset> data) {
    Trainer(job.net, *job.adam, data, nullptr, options);
  };
  auto data = random_pictures(4, 1);
  EXPECT_ERROR(make({}, data), "no devices");
  EXPECT_ERROR(make({.devices = job.runtime.devices(), .epochs = -1}, data), "epochs -1");
  EXPECT_ERROR(make({.devices = job.runtime.devices(), .batch_size = 0}, data), "batch size 0");
  EXPECT_ERROR(make({.devices = job.runtime.devices()}, random_pictures(0, 1)), "the data set is empty");
}

}  // namespace
}  // namespace lockstep
