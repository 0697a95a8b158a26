// Checkpoints that Trainer writes, and runs that resume from them.
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/train/trainer.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

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
                         ::testing::Values(std::pair(1, 1), std::pair(7, 1), std::pair(7, 3), std::pair(9, 4),
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

TEST(TrainerCheckpoints, HoldTheReportsOfAllEpochsDone) {
  TemporaryFolder folder;
  TrainingResult results[3];
  for (std::size_t run = 0; run < 3; ++run) {
    // Steps 5, 10 and 15 end an epoch.
    const std::int64_t steps[] = {7, 12, 15};
    SmallJob job(1, {.epochs = 3, .max_steps = steps[run], .save_folder = folder.path()});
    const std::vector<EpochReport> before =
        run > 0 ? job.trainer->resume(folder.path()).position.epochs : std::vector<EpochReport>();
    ASSERT_EQ(before.size(), run);
    for (std::size_t e = 0; e < run; ++e) {
      // The first that its run reports: it was not cut short.
      const EpochReport& expected = results[e].epochs[0];
      EXPECT_EQ(before[e].epoch, static_cast<std::int64_t>(e) + 1);
      EXPECT_EQ(before[e].train_loss, expected.train_loss);
      EXPECT_EQ(before[e].seconds, expected.seconds);
      EXPECT_EQ(before[e].test.correct, expected.test.correct);
      EXPECT_EQ(before[e].test.total, SmallJob::kTest);
    }
    results[run] = job.trainer->train();
  }
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
  expect_difference([](TrainerOptions& o) { o.split.shards = 2; }, "was made with shards 4; this run has shards 2");
  // On processors that multiply bf16, threads per shard differ too.
  expect_difference([](TrainerOptions& o) { o.dtype = DType::bf16; }, "; this run has dtype \"bf16\"");
  expect_difference(
      [](TrainerOptions& o) { o.dtype = DType::f16; },
      "dtype \"f32\", no loss_scale, no loss_scale_interval; this run has dtype \"f16\", loss_scale 65536.0, "
      "loss_scale_interval 2000");
  expect_difference([](TrainerOptions& o) { o.shuffle = false; },
                    "was made with shuffle true; this run has shuffle false");
  expect_difference([](TrainerOptions& o) { o.clip_norm = 1; }, "clip_norm 0.0; this run has clip_norm 1.0");
  expect_difference([](TrainerOptions& o) { o.recipe.set("model", "large"); },
                    "model \"small\"; this run has model \"large\"");
  expect_difference([](TrainerOptions& o) { o.recipe.set("more", 1); }, "no more; this run has more 1");
  expect_difference([](TrainerOptions& o) { o.recipe = {}; }, "model \"small\"; this run has no model");
  // A schedule that ends elsewhere has other rates on the way.
  expect_difference([](TrainerOptions& o) { o.schedule.kind = ScheduleKind::cosine; }, "scheduled_steps");
}

TEST(TrainerCheckpoints, OtherFrozenParametersAreAnotherRecipe) {
  TemporaryFolder folder;
  SmallJob job(1, {.epochs = 1, .save_folder = folder.path()});
  job.net.parameters()[0].set_trainable(false);
  job.trainer->train();
  SmallJob other(1, {.epochs = 2});
  EXPECT_ERROR(other.trainer->resume(folder.path()), "was made with frozen \"0.weight\"; this run has no frozen");
  other.net.parameters()[0].set_trainable(false);
  EXPECT_EQ(other.trainer->resume(folder.path()).position.step, 5);
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

TEST(TrainerCheckpoints, APositionThatContradictsItsStepIsAnError) {
  SmallJob job(1, {.epochs = 4});
  job.trainer->train();
  // Five steps an epoch.
  const TrainingPosition sound{.step = 7, .epoch = 1, .batch = 2};
  const auto resume = [&](std::int64_t epoch, std::int64_t batch) {
    TemporaryFolder folder;
    TrainingPosition position = sound;
    position.epoch = epoch;
    position.batch = batch;
    save_checkpoint(folder.path(), job.net, *job.adam, position, job.trainer->recipe());
    SmallJob other(1, {.epochs = 4});
    return other.trainer->resume(folder.path()).position.step;
  };
  EXPECT_EQ(resume(1, 2), 7);
  EXPECT_ERROR(resume(1, 3), "step 7 does not follow from epoch 1 and batch 3 of 5");
  EXPECT_ERROR(resume(0, 7), "step 7 does not follow from epoch 0 and batch 7 of 5");
  EXPECT_ERROR(resume(1, std::int64_t{1} << 62), "step 7 does not follow from epoch 1 and batch 4611686018427387904");
  EXPECT_ERROR(resume(std::int64_t{1} << 62, 2), "step 7 does not follow from epoch 4611686018427387904");
}

// Dropout draws by the Runtime's seed, whatever the order of the examples follows.
TEST(TrainerCheckpoints, TheSeedOfRandomOperationsIsInTheRecipe) {
  TemporaryFolder folder;
  const TrainerOptions options{.epochs = 1, .seed = 5, .save_folder = folder.path()};
  SmallJob same(1, options);
  EXPECT_FALSE(same.trainer->recipe().contains("random_seed"));
  same.trainer->train();
  TrainerOptions again = options;
  again.save_folder.clear();
  SmallJob job(1, again);
  job.runtime.random().set_seed(7);
  const auto expect_seed = [&](TrainerOptions o, const std::string& difference) {
    o.devices = job.runtime.devices();
    o.split.shards = 4;
    o.batch_size = SmallJob::kBatch;
    Trainer trainer(job.net, *job.adam, random_pictures(SmallJob::kTrain, 1), nullptr, o);
    EXPECT_ERROR(trainer.resume(folder.path()), difference);
  };
  expect_seed(again, "was made with no random_seed; this run has random_seed 7");
  again.seed.reset();
  expect_seed(again, "was made with seed 5; this run has seed 7");
}

TEST(TrainerCheckpoints, RatesOfGroupsGoOn) {
  const auto two_groups = [](const Module& net) {
    std::vector<Parameter> all = net.parameters(), head{all.back()};
    all.pop_back();
    return ParameterGroups{{.parameters = all}, {.parameters = head}};
  };
  for (const ScheduleKind kind : {ScheduleKind::constant, ScheduleKind::cosine}) {
    const auto run = [&](TrainerOptions options, std::int64_t stop, const std::filesystem::path& resume) {
      options.epochs = 2;
      options.schedule.kind = kind;
      SmallJob job(1, options, nullptr, nullptr, 0, two_groups);
      if (!resume.empty()) job.trainer->resume(resume);
      job.trainer->on_update = [&](std::int64_t step) {
        if (step == 2) job.adam->set_learning_rate(1, 0.05);
        if (step == stop) job.trainer->request_stop();
      };
      job.trainer->train();
      return weights_sha256(job.net);
    };
    TemporaryFolder folder;
    const std::string whole = run({}, 0, {});
    EXPECT_NE(run({.save_folder = folder.path()}, 4, {}), whole);
    EXPECT_EQ(run({}, 0, folder.path()), whole);
  }
}

TEST(TrainerCheckpoints, OneProgramStartsAndGoesOn) {
  TemporaryFolder folder;
  TrainerOptions options{.epochs = 2, .max_steps = 4, .save_folder = folder / "save"};
  SmallJob first(1, options);
  EXPECT_FALSE(first.trainer->resume_or_start().has_value());
  first.trainer->train();
  options.max_steps = 0;
  SmallJob second(2, options), whole(1, {.epochs = 2}),
      other(1, {.epochs = 2, .seed = 3, .save_folder = folder / "save"});
  EXPECT_EQ(second.trainer->resume_or_start()->position.step, 4);
  second.trainer->train();
  whole.trainer->train();
  EXPECT_EQ(weights_sha256(second.net), weights_sha256(whole.net));
  EXPECT_ERROR(other.trainer->resume_or_start(), "was made with seed 0; this run has seed 3");
  EXPECT_ERROR(whole.trainer->resume_or_start(), "resume_or_start() without TrainerOptions::save_folder");
  // To start anew would delete what can perhaps be repaired.
  for (const char* step : {"step-00000005", "step-00000010"}) {
    folder.write(std::string("save/") + step + "/weights.safetensors", "rust");
  }
  EXPECT_ERROR(SmallJob(1, options).trainer->resume_or_start(), "there is no valid checkpoint to resume from");
}

TEST(TrainerCheckpoints, AnOptionStartsAndGoesOn) {
  TemporaryFolder folder;
  TrainerOptions options{.epochs = 2, .max_steps = 4, .save_folder = folder / "save", .resume = true};
  SmallJob first(1, options);
  EXPECT_FALSE(first.trainer->train().resumed.has_value());
  options.max_steps = 0;
  SmallJob second(2, options), whole(1, {.epochs = 2});
  const TrainingResult result = second.trainer->train();
  ASSERT_TRUE(result.resumed.has_value());
  EXPECT_EQ(result.resumed->position.step, 4);
  EXPECT_EQ(second.steps.size(), 6U);
  whole.trainer->train();
  EXPECT_EQ(weights_sha256(second.net), weights_sha256(whole.net));
  EXPECT_ERROR(SmallJob(1, {.resume = true}), "resume is set, expected save_folder");
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

TEST(TrainerStop, TheNextCallGoesOn) {
  SmallJob job(1, {.epochs = 3}), whole(1, {.epochs = 3});
  job.trainer->on_update = [&](std::int64_t step) {
    if (step == 7) job.trainer->request_stop();
  };
  EXPECT_TRUE(job.trainer->train().stopped);
  // A signal may come before train() is called.
  job.trainer->request_stop();
  EXPECT_TRUE(job.trainer->train().stopped);
  const TrainingResult rest = job.trainer->train();
  EXPECT_FALSE(rest.stopped);
  EXPECT_EQ(rest.steps, 15);
  whole.trainer->train();
  EXPECT_EQ(weights_sha256(job.net), weights_sha256(whole.net));
  EXPECT_EQ(job.losses, whole.losses);
}

TEST(TrainerStop, TrainUntilEndsAtThatStep) {
  SmallJob job(1, {.epochs = 3}), whole(1, {.epochs = 3});
  // An epoch has 5 steps. A step that is over already ends it at once.
  for (const auto& [step, epochs] : {std::pair{0, 0}, {3, 0}, {2, 0}, {5, 1}, {7, 0}}) {
    const TrainingResult result = job.trainer->train_until(step);
    EXPECT_EQ(result.steps, std::max(step, step == 2 ? 3 : 0));
    EXPECT_EQ(std::ssize(result.epochs), epochs) << step;
    EXPECT_EQ(result.last.test.total, epochs * SmallJob::kTest);
    EXPECT_FALSE(result.stopped || result.stopped_early);
  }
  // A stop is one.
  job.trainer->request_stop();
  EXPECT_TRUE(job.trainer->train_until(9).stopped);
  const TrainingResult rest = job.trainer->train_until(100);
  EXPECT_EQ(rest.steps, 15);
  EXPECT_EQ(rest.epochs.size(), 2U);
  whole.trainer->train();
  EXPECT_EQ(weights_sha256(job.net), weights_sha256(whole.net));
  EXPECT_EQ(job.losses, whole.losses);
  EXPECT_EQ(job.trainer->train_until(100).last.test.total, SmallJob::kTest);
}

// Throws in the second micro-batch of a step, after the gradients of the first.
TEST(TrainerStop, TheCallAfterAnExceptionRepeatsTheWholeStep) {
  for (const std::int64_t accumulate : {1, 2}) {
    for (const bool record : {false, true}) {
      int calls = 0, bad = -1;
      // Without batch norm, whose running statistics follow every forward pass.
      const TrainerOptions options{
          .accumulate = accumulate, .record_steps = record, .epochs = 2, .forward = {}, .clip_norm = 0.5};
      const auto with_loss = [&](TrainerOptions o) {
        o.loss = [&](const Tensor& outputs, const Tensor& labels) {
          check(++calls != bad, "a broken loss");
          return cross_entropy(outputs, labels);
        };
        return o;
      };
      SmallJob whole(1, with_loss(options));
      whole.trainer->train();
      calls = 0;
      bad = accumulate == 1 ? 2 : 4;
      SmallJob job(1, with_loss(options));
      EXPECT_ERROR(job.trainer->train(), "a broken loss");
      EXPECT_EQ(job.trainer->train().steps, whole.steps.back().step);
      EXPECT_EQ(job.losses, whole.losses);
      const auto parameters = [](const SmallJob& j) {
        std::vector<std::vector<float>> all;
        for (const Parameter& p : j.net.parameters()) all.push_back(p.host_data().to_vector<float>());
        return all;
      };
      EXPECT_EQ(parameters(job), parameters(whole));
    }
  }
}

}  // namespace
}  // namespace lockstep
