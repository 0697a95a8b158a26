// What sizes tell is an error before the first step: batch norm that a last batch would stop, tests of another shape.
// `drop_last` leaves out the last batch.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "lockstep/autograd/losses.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/sampler.h"
#include "lockstep/optim/sgd.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

TensorDataset labeled_rows(std::int64_t n, std::int64_t features = 3) {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < n; ++i) labels.push_back(i % 2);
  return TensorDataset({testing::Random(1).floats({n, features}), Tensor::from(labels, {n})});
}

// Linear, batch norm, Linear; the batch size is 8.
struct NormJob {
  explicit NormJob(std::int64_t examples, TrainerOptions options = {}, BatchNorm1dOptions norm = {},
                   std::int64_t test_features = 3, std::int64_t tests = 5,
                   const std::shared_ptr<ProcessGroup>& group = nullptr)
      : runtime({.cpu_devices = 1, .threads_per_shard = 1}), net(Linear(3, 4), BatchNorm1d(4, norm), Linear(4, 2)) {
    net.to(runtime.devices());
    sgd = std::make_unique<Sgd>(net.parameters(), SgdOptions{.lr = 0.1});
    options.devices = runtime.devices();
    if (group) options.communicator = std::make_shared<Communicator>(runtime, group);
    options.batch_size = 8;
    if (options.epochs == 10) options.epochs = 2;
    trainer = std::make_unique<Trainer>(net, *sgd, labeled_rows(examples), labeled_rows(tests, test_features), options);
    trainer->on_step = [this](const StepReport&) { ++steps; };
  }
  std::int64_t train() { return trainer->train().steps; }

  Runtime runtime;
  Sequential net;
  std::unique_ptr<Sgd> sgd;
  std::unique_ptr<Trainer> trainer;
  int steps = 0;
};

TEST(TrainerSizes, ALastBatchThatBatchNormRefusesIsAnErrorAtTheStart) {
  NormJob job(17);
  EXPECT_ERROR(job.train(),
               "the last batch of an epoch has 1 sample, so batch norm 1 would have 1 value per channel, "
               "expected more than 1: set drop_last, another batch_size");
  EXPECT_EQ(job.steps, 0);
  // Shards of the last batch: 3 samples are 2 and 1.
  NormJob cut(19, {.split = {.shards = 2}});
  EXPECT_ERROR(cut.train(),
               "3 samples in shards of 2, 1, so batch norm 1 would have 1 value per channel, expected more "
               "than 1: set drop_last, another batch_size or number of shards, or "
               "convert_sync_batchnorm()");
  EXPECT_EQ(cut.steps, 0);
  // Micro-batches of 4: the last one has 1 sample.
  NormJob groups(21, {.accumulate = 2});
  EXPECT_ERROR(groups.train(), "the last micro-batch of an epoch has 1 sample");
  EXPECT_EQ(groups.steps, 0);
  // Statistics of the whole batch need two samples.
  NormJob synchronized(17, {.split = {.shards = 2}}, {.synchronized = true});
  EXPECT_ERROR(synchronized.train(), "the last batch of an epoch has 1 sample");
  EXPECT_EQ(NormJob(19, {.split = {.shards = 2}}, {.synchronized = true}).train(), 6);
}

// Also where one rank alone would meet the sample, and the others none: no rank waits for a rank that has given up.
TEST(TrainerSizes, RanksAreAllToldBeforeTheFirstStep) {
  struct Case {
    int ranks;
    std::int64_t examples, tests;
    BatchNorm1dOptions norm;
    std::string error;
  };
  const std::string last = "the last batch of an epoch has ";
  for (const Case& c : {Case{2, 17, 5, {}, last + "1 sample, so batch norm 1 would have 1 value per channel"},
                        Case{3, 17, 5, {}, last + "1 sample, so batch norm 1"},
                        Case{2, 19, 5, {}, last + "3 samples in shards of 2, 1"},
                        Case{2, 17, 5, {.synchronized = true}, last + "1 sample, so batch norm 1"},
                        Case{2, 16, 9, {.track_running_stats = false}, "the last batch of tests has 1 sample"},
                        Case{2, 16, 12, {.track_running_stats = false}, ""}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} examples", c.ranks, c.examples));
    auto groups = make_local_groups(c.ranks);
    std::vector<std::string> errors(groups.size());
    std::vector<int> steps(groups.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < groups.size(); ++r) {
      threads.emplace_back([&, r] {
        NormJob job(c.examples, {.split = {.shards = c.ranks}}, c.norm, 3, c.tests, groups[r]);
        try {
          job.train();
        } catch (const std::exception& error) {
          errors[r] = error.what();
        }
        steps[r] = job.steps;
      });
    }
    for (std::thread& t : threads) t.join();
    for (std::size_t r = 0; r < groups.size(); ++r) {
      if (c.error.empty()) {
        EXPECT_EQ(errors[r], "");
        EXPECT_EQ(steps[r], 4);
        continue;
      }
      EXPECT_NE(errors[r].find(c.error), std::string::npos) << "rank " << r << ": " << errors[r];
      EXPECT_EQ(steps[r], 0);
    }
  }
}

TEST(TrainerSizes, OtherRunsAreNotRefused) {
  EXPECT_EQ(NormJob(17, {.max_steps = 2}).train(), 2);  // ends before the last batch
  EXPECT_EQ(NormJob(18).train(), 6);
  NormJob frozen(17);
  frozen.net.module("1").eval();
  EXPECT_EQ(frozen.train(), 6);
  // Several values of each sample.
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  Sequential images(Conv2d(1, 2, 3), BatchNorm2d(2), Flatten(), Linear(32, 5));
  Sgd sgd(images.parameters(), {.lr = 0.1});
  Trainer trainer(images, sgd, random_pictures(17, 1), nullptr,
                  {.devices = runtime.devices(), .batch_size = 8, .epochs = 1});
  EXPECT_EQ(trainer.train().steps, 3);
}

TEST(TrainerSizes, TheRehearsalChangesNothing) {
  const auto weights = [](std::int64_t examples, bool pass) {
    NormJob job(examples, {.max_steps = 2});
    if (pass) {
      NormJob whole(17, {.drop_last = true});
      whole.train();
    }
    job.train();
    return job.net["0.weight"].host_data().to_vector<float>();
  };
  EXPECT_EQ(weights(18, false), weights(18, true));
}

TEST(TrainerSizes, TestsWithoutRunningStatisticsNeedMoreThanOneSample) {
  NormJob job(16, {}, {.track_running_stats = false}, 3, 9);
  EXPECT_ERROR(job.train(), "the last batch of tests has 1 sample, so batch norm 1 would have 1 value per channel");
  EXPECT_EQ(job.steps, 0);
  EXPECT_EQ(NormJob(16, {}, {.track_running_stats = false}, 3, 10).train(), 4);
}

TEST(TrainerSizes, TestsOfAnotherShapeFailBeforeTheFirstUpdate) {
  NormJob job(16, {}, {}, 7);
  const auto before = job.net["0.weight"].host_data().to_vector<float>();
  EXPECT_ERROR(job.train(), "the first test example has the shape [7], [], those of training [3], []");
  EXPECT_EQ(job.net["0.weight"].host_data().to_vector<float>(), before);
}

TEST(TrainerSizes, LabelsThatAreNoClassFailBeforeTheFirstUpdate) {
  const auto with_label = [](std::int64_t last) {
    std::vector<std::int64_t> labels(20, 1);
    labels.back() = last;
    return TensorDataset({testing::Random(1).floats({20, 3}), Tensor::from(labels, {20})});
  };
  const auto train = [&](std::int64_t train_label, std::int64_t test_label) {
    Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
    Linear net(3, 2);
    Sgd sgd(net.parameters(), {.lr = 0.1});
    Trainer trainer(net, sgd, with_label(train_label), with_label(test_label),
                    {.devices = runtime.devices(), .batch_size = 4, .epochs = 1, .shuffle = false});
    return trainer.train().steps;
  };
  EXPECT_ERROR(train(2, 0),
               "trainer: training example 19 has the label 2, expected 0 to 1, as the model has 2 outputs");
  EXPECT_ERROR(train(0, -1), "trainer: test example 19 has the label -1");
  EXPECT_EQ(train(-100, -100), 5);  // ignored
}

TEST(TrainerSizes, DropLastLeavesOutTheLastBatch) {
  NormJob job(17, {.drop_last = true});
  EXPECT_EQ(job.train(), 4);
  EXPECT_EQ(job.trainer->recipe().find("drop_last")->json(), "true");
  EXPECT_EQ(NormJob(18).trainer->recipe().find("drop_last"), nullptr);
  // All micro-batches of the last batch.
  EXPECT_EQ(NormJob(22, {.accumulate = 2, .drop_last = true}).train(), 4);
  // The order is the same.
  const auto weights = [](TrainerOptions options) {
    NormJob one(17, options);
    one.train();
    return one.net["0.weight"].host_data().to_vector<float>();
  };
  EXPECT_EQ(weights({.max_steps = 2}), weights({.max_steps = 2, .drop_last = true}));
  EXPECT_EQ(weights({.max_steps = 2, .shuffle = false}),
            weights({.max_steps = 2, .sampler = std::make_shared<SequentialSampler>(17)}));
  EXPECT_ERROR(NormJob(7, {.drop_last = true}), "7 examples have no full batch of batch_size 8");
}

TEST(TrainerSizes, ARunWithoutLastBatchesResumes) {
  TemporaryFolder folder;
  const auto weights = [](NormJob& job) { return job.net["0.weight"].host_data().to_vector<float>(); };
  NormJob whole(29, {.epochs = 3, .drop_last = true});
  EXPECT_EQ(whole.train(), 9);
  NormJob first(29, {.epochs = 3, .max_steps = 5, .drop_last = true, .save_folder = folder.path()});
  EXPECT_EQ(first.train(), 5);
  NormJob second(29, {.epochs = 3, .drop_last = true});
  second.trainer->resume(folder.path());
  EXPECT_EQ(second.train(), 9);
  EXPECT_EQ(weights(second), weights(whole));
  NormJob other(29, {.epochs = 3});
  EXPECT_ERROR(other.trainer->resume(folder.path()), "drop_last");
}

}  // namespace
}  // namespace lockstep
