#include "lockstep/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "lockstep/autograd/losses.h"
#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/transforms/augmentation.h"
#include "lockstep/data/transforms/mixup.h"
#include "lockstep/data/transforms/normalize.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/train/data_wait.h"
#include "tests/expect_error.h"
#include "tests/train/layouts.h"
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
    EXPECT_GE(epochs[e].data_seconds, 0);
    EXPECT_LE(epochs[e].data_seconds, epochs[e].seconds);
  }
  EXPECT_EQ(epochs[1].test.correct, job.trainer->evaluate().correct);
}

// The default loss takes the probabilities. Tests see labels.
TEST(Trainer, MixedBatchesHaveTheSameBitsOnAnyDevices) {
  const auto train = [](int devices, BatchTransform transform) {
    Runtime runtime({.cpu_devices = devices, .cores_per_device = 1});
    Sequential net;
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    Sgd sgd(net.parameters(), {.lr = 0.1});
    Trainer trainer(net, sgd, random_pictures(64, 1), random_pictures(10, 2),
                    {.devices = runtime.devices(),
                     .split = {.shards = 2},
                     .batch_size = 32,
                     .epochs = 2,
                     .batch_transform = std::move(transform)});
    trainer.train();
    EXPECT_EQ(trainer.evaluate().total, 10);
    return std::pair(trainer.recipe(), weights_sha256(net));
  };
  const auto plain = train(1, {}), mixed = train(1, MixUp({.classes = 5}));
  EXPECT_NE(mixed.second, plain.second);
  EXPECT_TRUE(mixed.first.contains("batch_transform"));
  EXPECT_FALSE(plain.first.contains("batch_transform"));
  EXPECT_EQ(train(2, MixUp({.classes = 5})), mixed);
}

TEST(Trainer, AnyNumberOfWorkersMakesTheSameWeights) {
  std::vector<std::uint8_t> pixels;
  for (std::size_t i = 0; i < std::size_t{48} * 3 * 12 * 12; ++i)
    pixels.push_back(static_cast<std::uint8_t>(i * i / 7));
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 48; ++i) labels.push_back(i % 5);
  const auto pictures = std::make_shared<TensorDataset>(
      std::vector<Tensor>{Tensor::from(pixels, {48, 3, 12, 12}), Tensor::from(labels, {48})});
  const auto train = [&](int workers, std::int64_t accumulate) {
    Runtime runtime({.cpu_devices = 2, .cores_per_device = 1});
    Sequential net;
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    Sgd sgd(net.parameters(), {.lr = 0.1});
    Trainer trainer(net, sgd, pictures | augmentation(Augment::standard, {8, 8}) | Normalize({0.5}, {0.25}), nullptr,
                    {.devices = runtime.devices(),
                     .split = {.shards = 2},
                     .batch_size = 8,
                     .accumulate = accumulate,
                     .epochs = 3,
                     .workers = workers});
    trainer.train();
    return weights_sha256(net);
  };
  const std::string expected = train(1, 1);
  EXPECT_EQ(train(8, 1), expected);
  EXPECT_EQ(train(0, 1), expected);
  EXPECT_EQ(train(8, 2), train(1, 2));
  EXPECT_ERROR(train(-1, 1), "-1 workers");
}

TEST(DataWait, IsTheTimeOfAnIdleDevice) {
  Runtime runtime({.cpu_devices = 2, .cores_per_device = 1});
  runtime.synchronize();
  DataWait wait(runtime.devices());
  wait.measure([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  EXPECT_GT(wait.seconds(), 0);
  EXPECT_ERROR(wait.measure([] { fail("no data"); }), "no data");
  wait.reset();
  EXPECT_EQ(wait.seconds(), 0);
}

TEST(Trainer, MayOwnItsDataSets) {
  Runtime runtime({.devices = 1});
  Linear net({.in_features = 2, .out_features = 3});
  net.initialize(Xavier{}, runtime.devices());
  Sgd sgd(net.parameters(), {.lr = 0.1});
  const auto data = [](std::int64_t n) {
    return TensorDataset({randn({n, 2}), Tensor::from(std::vector<std::int64_t>(static_cast<std::size_t>(n)), {n})});
  };
  Trainer trainer(net, sgd, data(20), data(7), {.devices = runtime.devices(), .batch_size = 10, .epochs = 1});
  EXPECT_EQ(trainer.train().steps, 2);
  EXPECT_EQ(trainer.evaluate().total, 7);
}

TEST(Trainer, TakesADatasetByValueWithoutTestData) {
  Runtime runtime({.cpu_devices = 1, .cores_per_device = 1});
  Sequential net;
  net.append<Linear>(LinearOptions{.out_features = 2});
  net.initialize(Xavier{}, runtime.devices());
  Sgd sgd(net.parameters(), {.lr = 0.1});
  const TensorDataset data({ones({4, 3}), zeros({4}, {.dtype = DType::i64})});
  Trainer trainer(net, sgd, data, nullptr, {.devices = runtime.devices(), .batch_size = 2, .epochs = 1});
  EXPECT_EQ(trainer.train().steps, 2);
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
  EXPECT_EQ(one.first.at("shards"), 8);
  EXPECT_FALSE(one.first.contains("threads_per_shard"));
  EXPECT_EQ(train(2, {.batch_size = 128}), one);
  EXPECT_EQ(train(4, {.batch_size = 128}), one);
  EXPECT_EQ(train(1, {.batch_size = 128, .accumulate = 2}).first.at("shards"), 4);
  EXPECT_EQ(train(2, {.batch_size = 32}).first.at("shards"), 2);
  EXPECT_ERROR(train(3, {.batch_size = 32}),
               "trainer: 2 shards of a batch of 32 for 3 devices, expected at least one for each: set "
               "TrainerOptions::split.shards");
  EXPECT_ERROR(train(3, {.split = {.shards = 1}, .batch_size = 64}), "trainer: 1 shard of a batch of 64 for 3 devices");
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
                    {.devices = runtime.devices(),
                     .split = {.shards = 2},
                     .batch_size = 12,
                     .accumulate = accumulate,
                     .epochs = 2});
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
  EXPECT_ERROR(train(5), "a batch of 12 in 5 micro-batches, expected a number that divides the batch size");
}

// Labels of -1 do not count, and the others by their class. Half of the micro-batches have no label that counts.
struct WeightedLoss {
  static constexpr std::int64_t kIgnored = -1;
  static std::vector<float> weights() { return {1, 2, 0.5, 0.1F, 3}; }
  static std::shared_ptr<const Dataset> data(std::int64_t count) {
    testing::Random random(3);
    std::vector<std::int64_t> labels(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = i / 3 % 2 == 0 ? random.integer(0, 4) : kIgnored;
    labels[1] = kIgnored;
    return std::make_shared<TensorDataset>(
        std::vector<Tensor>{random.floats({count, 1, 6, 6}), Tensor::from(labels, {count})});
  }
  static Tensor loss(const Tensor& outputs, const Tensor& labels) {
    return cross_entropy(outputs, labels, {.weight = Tensor::from(weights(), {5}), .ignore_index = kIgnored});
  }
  static double weight_of(const Example& batch) {
    double sum = 0;
    for (const std::int64_t label : batch[1].to_vector<std::int64_t>()) {
      if (label != kIgnored) sum += weights()[static_cast<std::size_t>(label)];
    }
    return sum;
  }
};

TEST(Trainer, MicroBatchesCountByWhatTheirMeanDividesBy) {
  const auto train = [](TrainerOptions options, const std::shared_ptr<ProcessGroup>& group, int devices) {
    Runtime runtime({.cpu_devices = devices});
    Sequential net;
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    Sgd sgd(net.parameters(), {.lr = 0.5});
    options.devices = runtime.devices();
    options.split.shards = 2;
    options.batch_size = 12;
    options.epochs = 2;
    options.shuffle = false;
    options.loss = WeightedLoss::loss;
    if (group) options.communicator = std::make_shared<Communicator>(runtime, group);
    Trainer trainer(net, sgd, WeightedLoss::data(30), nullptr, options);
    std::vector<double> losses;
    trainer.on_step = [&](const StepReport& report) { losses.push_back(report.loss); };
    trainer.train();
    return std::pair(losses, weights_sha256(net));
  };
  const auto whole = train({}, nullptr, 1);
  ASSERT_EQ(whole.first.size(), 6U);
  for (const std::int64_t accumulate : {2, 4, 12}) {
    const auto micro = train({.accumulate = accumulate, .loss_weight = WeightedLoss::weight_of}, nullptr, 1);
    ASSERT_EQ(micro.first.size(), whole.first.size());
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(micro.first[i], whole.first[i], 1e-5) << accumulate << ", " << i;
    // The same bits on two devices and on two ranks.
    EXPECT_EQ(train({.accumulate = accumulate, .loss_weight = WeightedLoss::weight_of}, nullptr, 2), micro);
    const std::string ranks = run_layout({.ranks = 2}, [&](int devices, const std::shared_ptr<ProcessGroup>& group) {
      return train({.accumulate = accumulate, .loss_weight = WeightedLoss::weight_of}, group, devices).second;
    });
    EXPECT_EQ(ranks, micro.second);
  }
  EXPECT_ERROR(train({.accumulate = 2, .loss_weight = [](const Example&) { return -1.0; }}, nullptr, 1),
               "trainer: TrainerOptions::loss_weight returned -1, expected a finite number of at least 0");
}

// The default loss ignores labels of -100. Some micro-batches have no other label.
TEST(Trainer, IgnoresLabels) {
  testing::Random random(3);
  std::vector<std::int64_t> labels(30);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = i / 3 % 2 == 0 ? random.integer(0, 4) : -100;
  labels[1] = -100;
  const auto data =
      std::make_shared<TensorDataset>(std::vector<Tensor>{random.floats({30, 1, 6, 6}), Tensor::from(labels, {30})});
  const auto train = [&](std::int64_t accumulate, int devices, const std::shared_ptr<ProcessGroup>& group) {
    Runtime runtime({.cpu_devices = devices});
    Sequential net;
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    Sgd sgd(net.parameters(), {.lr = 0.5});
    TrainerOptions options{
        .devices = runtime.devices(), .split = {.shards = 2}, .batch_size = 12, .accumulate = accumulate, .epochs = 2};
    options.shuffle = false;
    if (group) options.communicator = std::make_shared<Communicator>(runtime, group);
    Trainer trainer(net, sgd, data, data, options);
    std::vector<double> losses;
    trainer.on_step = [&](const StepReport& report) { losses.push_back(report.loss); };
    trainer.train();
    EXPECT_EQ(trainer.evaluate().total, 30 - std::ranges::count(labels, -100));
    return std::pair(losses, weights_sha256(net));
  };
  const auto whole = train(1, 1, nullptr);
  ASSERT_EQ(whole.first.size(), 6U);
  for (const std::int64_t accumulate : {1, 2, 4}) {
    const auto micro = train(accumulate, 1, nullptr);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(micro.first[i], whole.first[i], 1e-5) << accumulate << ", " << i;
    // The same bits on two devices and on two ranks.
    EXPECT_EQ(train(accumulate, 2, nullptr), micro);
    const std::string ranks = run_layout({.ranks = 2}, [&](int devices, const std::shared_ptr<ProcessGroup>& group) {
      return train(accumulate, devices, group).second;
    });
    EXPECT_EQ(ranks, micro.second);
  }
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
    Trainer trainer(
        net, sgd, random_pictures(26, 1), nullptr,
        {.devices = runtime.devices(), .split = {.shards = 2}, .batch_size = 12, .record_steps = true, .epochs = 2});
    trainer.on_update = [&](std::int64_t) {
      for (std::size_t i : {0, 1}) {
        EXPECT_FALSE(all[i].trainable());
        EXPECT_FALSE(all[i].gradient_state().present());
      }
    };
    trainer.train();
    EXPECT_EQ(trainer.why_not_recorded(), "");
    EXPECT_EQ(all[0].trainable(), !freeze);
    return weights_sha256(net);
  };
  EXPECT_EQ(train(false), train(true));
}

TEST(Trainer, AnOptimizerOfAnotherModelIsAnError) {
  Runtime runtime({.devices = 1});
  Linear net({.in_features = 2, .out_features = 3}), other({.in_features = 2, .out_features = 3});
  net.initialize(Xavier{}, runtime.devices());
  const auto make = [&](const ParameterGroups& parameters) {
    Sgd sgd(parameters, {.lr = 0.1});
    Trainer trainer(net, sgd, random_pictures(20, 1), nullptr, {.devices = runtime.devices(), .batch_size = 10});
  };
  make({{.parameters = {net.parameters()[1]}}});
  EXPECT_ERROR(make(other.parameters()), "trainer: the optimizer has parameter 0, which is not a parameter of the");
  other.initialize(Xavier{}, runtime.devices());
  EXPECT_ERROR(
      make(other.parameters()),
      "trainer: the optimizer has another parameter weight, which is not a parameter of the model: expected an "
      "optimizer of the model's parameters()");
  // Beside the model's own, in a group of its own.
  EXPECT_ERROR(make({{.parameters = net.parameters()}, {.parameters = {other.parameters()[1]}}}),
               "the optimizer has another parameter bias");
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
                     .split = {.shards = 3},
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
  Trainer trainer(
      net, sgd, random_pictures(48, 1), random_pictures(5, 2),
      {.devices = runtime.devices(), .split = {.shards = 2}, .batch_size = 8, .record_steps = true, .epochs = 4});
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

TEST(TrainerOptions, AreChecked) {
  SmallJob job(1);
  auto make = [&](TrainerOptions options, std::shared_ptr<const Dataset> data) {
    Trainer(job.net, *job.adam, data, nullptr, options);
  };
  auto data = random_pictures(4, 1);
  EXPECT_ERROR(make({.devices = job.runtime.devices(), .epochs = -1}, data), "epochs -1");
  EXPECT_ERROR(make({.devices = job.runtime.devices(), .batch_size = 0}, data), "batch size 0");
  EXPECT_ERROR(make({.devices = job.runtime.devices()}, random_pictures(0, 1)), "the data set is empty");
}

// What the other options make idle is an error.
TEST(Trainer, NoOptionIsIgnored) {
  const auto expect_refused = [](const TrainerOptions& options, const char* why) {
    EXPECT_ERROR(SmallJob(1, options), why);
  };
  expect_refused({.save_every = 3}, "trainer: save_every is 3 without save_folder, expected that, too, or 0");
  expect_refused({.keep_checkpoints = 5},
                 "trainer: keep_checkpoints is 5 without save_folder, expected that, too, or 2");
  expect_refused({.tensorboard = {.histogram_every = 2}},
                 "tensorboard.histogram_every is 2 without tensorboard.folder, expected that, too, or 0");
  expect_refused({.receipt = {.every = 7}}, "receipt.every is 7 without receipt.file, expected that, too, or 100");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_refused({.dtype = dtype, .loss_scaling = {.initial_scale = 4}},
                   "loss_scaling.initial_scale is 4 without dtype f16, expected that, too, or 65536");
    expect_refused({.dtype = dtype, .loss_scaling = {.growth_interval = 5}},
                   "loss_scaling.growth_interval is 5 without dtype f16, expected that, too, or 2000");
  }
  expect_refused({.balancer = {.every = 5}}, "balancer.every is 5 without split.balance.automatic");
  expect_refused({.balancer = {.seconds_per_shard = [] { return std::vector<double>{1}; }}},
                 "balancer.seconds_per_shard is set without split.balance.automatic");
  TrainerOptions smooth{.label_smoothing = 0.1};
  EXPECT_EQ(SmallJob(1, smooth).trainer->recipe().at("label_smoothing"), 0.1);
  smooth.loss = [](const Tensor& outputs, const Tensor& labels) {
    return cross_entropy(outputs, labels, {.label_smoothing = 0.1});
  };
  expect_refused(smooth, "trainer: label_smoothing is 0.1 beside `loss`");
  smooth.label_smoothing = 0;
  smooth.recipe = {{"label_smoothing", 0.1}};
  EXPECT_EQ(SmallJob(1, smooth).trainer->recipe().at("label_smoothing"), 0.1);
}

}  // namespace
}  // namespace lockstep
