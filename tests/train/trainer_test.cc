#include "lockstep/train/trainer.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "lockstep/autograd/gradient_tree.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
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
    for (std::size_t i = 5 * e; i < 5 * e + 5; ++i) sum += job.losses[i] * static_cast<double>(job.steps[i].samples);
    EXPECT_EQ(epochs[e].train_loss, sum / SmallJob::kTrain);
    EXPECT_EQ(epochs[e].test.total, SmallJob::kTest);
  }
  EXPECT_EQ(epochs[1].test.correct, job.trainer->evaluate().correct);
}

// By default the bits depend on the batch, not on the devices.
TEST(Trainer, CutsABatchIntoShardsByItsSizeAlone) {
  auto train = [](int devices, TrainerOptions options) {
    Runtime runtime({.cpu_devices = devices, .cores_per_device = 1});
    Sequential net;
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    Sgd sgd(net.parameters(), {.lr = 0.1});
    options.devices = runtime.devices();
    options.epochs = 1;
    Trainer trainer(net, sgd, random_pictures(300, 1), nullptr, options);
    trainer.train();
    return std::pair(trainer.recipe(), weights_sha256(net));
  };
  const auto one = train(1, {.batch_size = 128});
  EXPECT_EQ(one.first.at("shards"), 4);
  EXPECT_FALSE(one.first.contains("threads_per_shard"));
  EXPECT_EQ(train(2, {.batch_size = 128}), one);
  EXPECT_EQ(train(4, {.batch_size = 128}), one);
  EXPECT_EQ(train(1, {.batch_size = 128, .accumulate = 2}).first.at("shards"), 2);
  EXPECT_ERROR(
      train(3, {.batch_size = 64}),
      "trainer: 2 shards of a batch of 64 for 3 devices, expected at least one for each: set TrainerOptions::shards");
  EXPECT_ERROR(train(3, {.shards = 1, .batch_size = 64}), "trainer: 1 shards of a batch of 64 for 3 devices");
}

// A model without batch norm and dropout computes the same function of a batch in one piece or in several.
TEST(Trainer, MicroBatchesAddUpToTheBatch) {
  auto train = [](std::int64_t accumulate) {
    Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1});
    Sequential net;
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    Sgd sgd(net.parameters(), {.lr = 0.1});
    Trainer trainer(
        net, sgd, random_pictures(26, 1), random_pictures(5, 2),
        {.devices = runtime.devices(), .shards = 2, .batch_size = 12, .accumulate = accumulate, .epochs = 2});
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

// Memory has no room for more than a micro-batch.
TEST(Trainer, EvaluatesInMicroBatches) {
  struct Observer : Sequential {
    std::mutex mutex;
    std::int64_t most = 0, seen = 0;
    Tensor forward(const Tensor& x) override {
      if (!training()) {
        const std::scoped_lock lock(mutex);
        most = std::max(most, x.size(0));
        seen += x.size(0);
      }
      return Sequential::forward(x);
    }
  };
  const auto evaluate = [](std::int64_t accumulate, std::int64_t most) {
    Runtime runtime({.threads_per_shard = 1});
    Observer net;
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    Sgd sgd(net.parameters(), {.lr = 0.1});
    Trainer trainer(net, sgd, random_pictures(26, 1), random_pictures(31, 2),
                    {.devices = runtime.devices(), .batch_size = 12, .accumulate = accumulate});
    const Accuracy accuracy = trainer.evaluate();
    EXPECT_EQ(net.most, most);
    EXPECT_EQ(net.seen, 31);
    EXPECT_EQ(accuracy.total, 31);
    return accuracy.correct;
  };
  EXPECT_EQ(evaluate(4, 3), evaluate(1, 12));
}

// The trainer's optimizer has the head alone: nothing is computed for the body, which is trainable again in the end.
TEST(Trainer, WhatItsOptimizerLeavesOutHasNoGradient) {
  const auto train = [](bool freeze) {
    Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1});
    Sequential net;
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 8}).append<ReLU>();
    net.append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    const std::vector<Parameter> all = net.parameters();
    if (freeze) {
      for (std::size_t i : {0, 1}) all[i].set_trainable(false);
    }
    Sgd sgd({all[2], all[3]}, {.lr = 0.1});
    Trainer trainer(net, sgd, random_pictures(26, 1), nullptr,
                    {.devices = runtime.devices(), .shards = 2, .batch_size = 12, .record_steps = true, .epochs = 2});
    trainer.on_update = [&](std::int64_t) {
      for (std::size_t i : {0, 1}) {
        EXPECT_FALSE(all[i].trainable());
        EXPECT_FALSE(all[i].gradient_tree().present());
      }
    };
    trainer.train();
    EXPECT_EQ(trainer.why_not_recorded(), "");
    EXPECT_EQ(all[0].trainable(), !freeze);
    return weights_sha256(net);
  };
  EXPECT_EQ(train(false), train(true));
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
                    {.devices = runtime.devices(),
                     .shards = 3,
                     .batch_size = 12,
                     .accumulate = accumulate,
                     .record_steps = record,
                     .epochs = 2,
                     .clip_norm = 0.5,
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

TEST(Trainer, AFrozenParameterStaysAsItIsInRecordedSteps) {
  Runtime runtime({.cpu_devices = 2});
  Sequential net;
  net.append<Flatten>()
      .append<Linear>(LinearOptions{.out_features = 7})
      .append<Linear>(LinearOptions{.out_features = 5});
  net.initialize(Xavier{}, runtime.devices());
  Sgd sgd(net.parameters(), {.lr = 0.1, .weight_decay = 0.1});
  Trainer trainer(net, sgd, random_pictures(48, 1), random_pictures(5, 2),
                  {.devices = runtime.devices(), .shards = 2, .batch_size = 8, .record_steps = true, .epochs = 4});
  const Parameter weight = net.parameters()[0];
  std::vector<std::vector<float>> values;
  trainer.on_epoch = [&](const EpochReport& report) {
    values.push_back(weight.host_data().to_vector<float>());
    if (report.epoch == 2) weight.set_trainable(false);
    if (report.epoch == 3) weight.set_trainable(true);
  };
  trainer.train();
  EXPECT_EQ(trainer.why_not_recorded(), "");
  EXPECT_NE(values.at(1), values.at(0));
  EXPECT_EQ(values.at(2), values.at(1));
  EXPECT_NE(values.at(3), values.at(2));
}

// Tensor norm of a frozen part keeps its statistics, evaluation or not.
TEST(Trainer, PartsInEvaluationModeStayThere) {
  SmallJob job(1, {.epochs = 2});
  Module* norm = nullptr;
  for (const auto& [name, module] : job.net.named_modules()) {
    if (dynamic_cast<BatchNorm2d*>(module)) norm = module;
  }
  ASSERT_NE(norm, nullptr);
  norm->eval();
  job.trainer->train();
  EXPECT_FALSE(norm->training());
  EXPECT_TRUE(job.net.training());
}

// One recipe, one hash: dropout's masks do not depend on what the Runtime did before.
TEST(Trainer, ASecondRunInOneRuntimeHasTheBitsOfTheFirst) {
  Runtime runtime;
  auto train = [&] {
    Sequential net;
    net.append<Flatten>().append<Dropout>(0.5).append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    Sgd sgd(net.parameters(), {.lr = 0.1});
    Trainer(net, sgd, random_pictures(40, 1), nullptr, {.devices = runtime.devices(), .batch_size = 8, .epochs = 1})
        .train();
    return weights_sha256(net);
  };
  const std::string first = train();
  EXPECT_EQ(train(), first);
}

TEST(Trainer, TheRecipeHasTheSchedule) {
  auto recipe = [](ScheduleOptions schedule) {
    return recipe_hash(SmallJob(1, {.schedule = schedule}).trainer->recipe());
  };
  EXPECT_NE(recipe({.kind = ScheduleKind::step}), recipe({.kind = ScheduleKind::cosine}));
  EXPECT_NE(recipe({.kind = ScheduleKind::step}), recipe({.kind = ScheduleKind::step, .gamma = 0.5}));
}

// Settings that a plain run lacks leave its hash as it was.
TEST(Trainer, TheRecipeHasWhatElseDecidesTheBits) {
  std::vector<std::string> names;
  const SmallJob plain(1);
  for (const auto& [name, value] : plain.trainer->recipe()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"seed", "shards", "batch_size", "accumulate", "examples", "shuffle",
                                             "dtype", "learning_rate", "schedule", "warmup", "clip_norm",
                                             "label_smoothing", "optimizer", "weight_decay"}));
  const auto train = [](RuntimeOptions options, bool all, bool freeze) {
    Runtime runtime(std::move(options));
    Sequential net;
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 4}).append<Dropout>(0.5);
    net.append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    std::vector<Parameter> parameters = net.parameters();
    if (!all) parameters.erase(parameters.begin());
    Sgd sgd(parameters, {.lr = 0.1});
    Trainer trainer(net, sgd, random_pictures(26, 1), nullptr,
                    {.devices = runtime.devices(), .batch_size = 12, .epochs = 1});
    // As train() finds it, not as the constructor did.
    if (freeze) net.parameters()[3].set_trainable(false), net.named_modules()[3].second->eval();
    trainer.train();
    return trainer.recipe();
  };
  EXPECT_FALSE(train({}, true, false).contains("frozen"));
  EXPECT_EQ(train({}, false, false).at("frozen"), "1.weight");
  EXPECT_EQ(train({}, false, true).at("frozen"), "1.weight,3.bias");
  EXPECT_FALSE(train({}, false, false).contains("evaluation_mode"));
  EXPECT_EQ(train({}, true, true).at("evaluation_mode"), "2");
  EXPECT_FALSE(train({.tf32 = true, .cuda_algorithms = "choices"}, true, false).contains("kernels"));
  EXPECT_FALSE(train({}, true, false).contains("direct_conv"));
  EXPECT_TRUE(train({.direct_conv = true}, true, false).contains("direct_conv"));
  EXPECT_EQ(train({.reference_backend = true}, true, false).at("kernels"), "reference");
}

TEST(Trainer, TheRecipeHasTheOptimizer) {
  Runtime runtime;
  Linear net({.in_features = 36, .out_features = 5});
  net.initialize(Xavier{}, runtime.devices());
  const auto recipe_of = [&](Optimizer&& optimizer, const Recipe& more = {}) {
    return Trainer(net, optimizer, random_pictures(8, 1), nullptr, {.devices = runtime.devices(), .recipe = more})
        .recipe();
  };
  const std::vector<Parameter> all = net.parameters();
  std::set<std::string> hashes;
  for (const Recipe& recipe :
       {recipe_of(Sgd(all, {.lr = 0.1})), recipe_of(Sgd(all, {.lr = 0.1, .momentum = 0.9})),
        recipe_of(Sgd(all, {.lr = 0.1, .momentum = 0.9, .nesterov = true})),
        recipe_of(Sgd(all, {.lr = 0.1, .weight_decay = 0.2})), recipe_of(Adam(all, {.lr = 0.1})),
        recipe_of(AdamW(all, {.lr = 0.1})), recipe_of(Adam(all, {.lr = 0.1, .beta1 = 0.8})),
        recipe_of(Adam(all, {.lr = 0.1, .beta2 = 0.99})), recipe_of(Adam(all, {.lr = 0.1, .eps = 1e-6}))}) {
    EXPECT_TRUE(hashes.insert(recipe_hash(recipe)).second) << recipe.json();
  }
  EXPECT_EQ(recipe_of(Sgd(all, {.lr = 0.1}), {{"optimizer", "mine"}}).at("optimizer"), "mine");
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
  // The mean over samples, in the order in which Trainer rounds: the mean of both losses may differ in the last digit.
  constexpr double kBatch = SmallJob::kBatch;
  EXPECT_EQ(result.epochs[1].train_loss, (job.losses[5] * kBatch + job.losses[6] * kBatch) / (2 * kBatch));
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
    const std::vector<EpochRecord> before =
        run > 0 ? job.trainer->resume(folder.path()).position.epochs : std::vector<EpochRecord>();
    ASSERT_EQ(before.size(), run);
    for (std::size_t e = 0; e < run; ++e) {
      // The first that its run reports: it was not cut short.
      const EpochReport& expected = results[e].epochs[0];
      EXPECT_EQ(before[e].epoch, static_cast<std::int64_t>(e) + 1);
      EXPECT_EQ(before[e].train_loss, expected.train_loss);
      EXPECT_EQ(before[e].seconds, expected.seconds);
      EXPECT_EQ(before[e].test_correct, expected.test.correct);
      EXPECT_EQ(before[e].test_total, SmallJob::kTest);
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
  expect_difference([](TrainerOptions& o) { o.shards = 2; }, "was made with shards 4; this run has shards 2");
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
