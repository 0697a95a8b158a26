// The learning rates of a Trainer's steps: from a schedule, from a function, and from callbacks.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/train/trainer.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

using Rates = std::vector<double>;

class TrainerSchedule : public ::testing::Test {
 protected:
  TrainerSchedule() {
    net_.append<Flatten>().append<Linear>(LinearOptions{.in_features = 36, .out_features = 5});
    net_.initialize(Xavier{}, runtime_.devices());
    sgd_ = std::make_unique<Sgd>(net_.parameters(), SgdOptions{.lr = 0.125});
  }

  // Four steps an epoch.
  std::unique_ptr<Trainer> make(TrainerOptions options) {
    options.devices = runtime_.devices();
    options.batch_size = 8;
    options.epochs = 1;
    return std::make_unique<Trainer>(net_, *sgd_, random_pictures(32, 1), nullptr, options);
  }
  // The rate of each step.
  Rates train(const TrainerOptions& options, const std::function<void(std::int64_t step)>& after_step = {}) {
    const std::unique_ptr<Trainer> trainer = make(options);
    Rates rates;
    trainer->on_update = [&](std::int64_t step) {
      rates.push_back(sgd_->learning_rate());
      if (after_step) after_step(step);
    };
    trainer->train();
    return rates;
  }

  Runtime runtime_{{.cpu_devices = 1, .threads_per_shard = 1}};
  Sequential net_;
  std::unique_ptr<Sgd> sgd_;
};

TEST_F(TrainerSchedule, BeginsWithItsBaseRate) {
  EXPECT_EQ(make({})->recipe().at("learning_rate"), 0.125);
  const TrainerOptions options{.schedule = {.base_lr = 0.5}};
  EXPECT_EQ(make(options)->recipe().at("learning_rate"), 0.5);
  EXPECT_EQ(train(options), Rates(4, 0.5));
  EXPECT_EQ(train({.schedule = {.base_lr = 0.25, .warmup = 2}}), (Rates{0.125, 0.25, 0.25, 0.25}));
  EXPECT_ERROR(make({.schedule = {.base_lr = -1}}), "learning rate -1, expected at least 0");
}

// So that the recipe says what is trained.
TEST_F(TrainerSchedule, OptionsOfTheFirstStepAreTheRecipes) {
  const auto trainer = make({.schedule = {.kind = ScheduleKind::cosine}, .recipe = {{"model", "linear"}}});
  sgd_->set_options(0, {{"lr", 0.5}, {"momentum", 0.75}});
  double first = 0;
  trainer->on_update = [&](std::int64_t step) { first = step == 1 ? sgd_->learning_rate() : first; };
  trainer->train();
  EXPECT_EQ(first, 0.5);
  EXPECT_EQ(trainer->recipe().at("learning_rate"), 0.5);
  EXPECT_EQ(trainer->recipe().at("momentum"), 0.75);
  EXPECT_EQ(trainer->recipe(),
            make({.schedule = {.kind = ScheduleKind::cosine}, .recipe = {{"model", "linear"}}})->recipe());
  const auto lower = [&](std::int64_t step) {
    if (step == 2) sgd_->set_options(0, {{"momentum", 0.5}});
  };
  EXPECT_ERROR(train({}, lower), "trainer: the optimizer's options have changed in the run");
  const double rate = sgd_->learning_rate();
  EXPECT_ERROR(make({.schedule = {.base_lr = 0.25, .warmup = -1}}), "warm");
  EXPECT_EQ(sgd_->learning_rate(), rate);
}

// The same rates as a schedule of the Trainer, also in recorded steps.
TEST_F(TrainerSchedule, MayBeTheOptimizers) {
  const Rates expected = train({.schedule = {.kind = ScheduleKind::cosine, .base_lr = 0.5, .warmup = 1}});
  for (const bool record : {false, true}) {
    sgd_ = std::make_unique<Sgd>(net_.parameters(), SgdOptions{.lr = cosine_lr(0.5, {.steps = 4, .warmup = 1})});
    EXPECT_EQ(train({.record_steps = record}), expected);
  }
  sgd_ = std::make_unique<Sgd>(net_.parameters(), SgdOptions{.lr = cosine_lr(0.5, {.steps = 4, .min_lr = 0.1})});
  const auto trainer = make({});
  const Recipe& recipe = trainer->recipe();
  EXPECT_EQ(recipe.at("schedule"), "cosine");
  EXPECT_EQ(recipe.at("learning_rate"), 0.5);
  EXPECT_EQ(recipe.at("scheduled_steps"), 4);
  EXPECT_EQ(recipe.at("min_lr"), 0.1);
  EXPECT_ERROR(make({.schedule = {.warmup = 2}}), "the optimizer's learning rate is a schedule, expected none");
}

// The rate where the schedule of a former run ended is not the base of the next.
TEST_F(TrainerSchedule, BeginsAnewInASecondRun) {
  const TrainerOptions cosine{.schedule = {.kind = ScheduleKind::cosine}};
  const Rates first = train(cosine);
  EXPECT_EQ(first[0], 0.125);
  EXPECT_LT(first[3], 0.02);
  EXPECT_EQ(train(cosine), first);
  EXPECT_EQ(train({}), Rates(4, 0.125));
}

TEST_F(TrainerSchedule, LetsACallbackChangeAConstantRate) {
  const auto lower = [&](std::int64_t step) {
    if (step == 2) sgd_->set_learning_rate(0.0625);
  };
  EXPECT_EQ(train({}, lower), (Rates{0.125, 0.125, 0.0625, 0.0625}));
  EXPECT_EQ(train({.record_steps = true},
                  [&](std::int64_t step) { sgd_->set_learning_rate(1.0 / static_cast<double>(step + 1)); }),
            (Rates{0.0625, 1.0 / 2, 1.0 / 3, 1.0 / 4}));
  // A schedule replaces it.
  sgd_->set_learning_rate(0.125);
  EXPECT_EQ(train({.schedule = {.warmup = 1}}, lower), Rates(4, 0.125));
}

TEST_F(TrainerSchedule, MayBeAFunction) {
  TrainerOptions options{.schedule = {.lr_lambda = [](std::int64_t step) { return std::pow(2, -step); }}};
  EXPECT_EQ(train(options), (Rates{0.125, 0.0625, 0.03125, 0.015625}));
  EXPECT_EQ(make(options)->recipe().at("schedule"), "lambda");
  options.recipe = {{"lr_lambda", "2^-step"}};
  EXPECT_EQ(make(options)->recipe().at("lr_lambda"), "2^-step");
  options.schedule.warmup = 2;
  EXPECT_ERROR(make(options), "lr_lambda is the whole schedule");
  options.schedule.warmup = 0;
  options.schedule.lr_lambda = [](std::int64_t step) { return step < 2 ? 1.0 : -1.0; };
  EXPECT_ERROR(train(options), "learning rate -0.125, expected at least 0");
}

// The resumed run does not call the callback of the first epoch again.
TEST(TrainerScheduleResume, GoesOnWithTheRateThatACallbackSet) {
  const auto train = [](SmallJob& job) {
    job.trainer->on_epoch = [&](const EpochReport& report) {
      if (report.epoch == 1) job.adam->set_learning_rate(3e-3);
    };
    job.trainer->train();
    return weights_sha256(job.net);
  };
  SmallJob whole(1, {.epochs = 2});
  const std::string expected = train(whole);
  TemporaryFolder folder;
  SmallJob stopped(1, {.epochs = 2, .max_steps = 7, .save_folder = folder.path()});
  train(stopped);
  SmallJob resumed(2, {.epochs = 2});
  EXPECT_EQ(resumed.trainer->resume(folder.path()).position.learning_rate, 3e-3);
  EXPECT_EQ(train(resumed), expected);
  EXPECT_EQ(resumed.adam->learning_rate(), 3e-3);
  // With a schedule, the rate follows from the step.
  TemporaryFolder scheduled;
  SmallJob warm(1, {.epochs = 1, .schedule = {.warmup = 2}, .save_folder = scheduled.path()});
  warm.trainer->train();
  SmallJob again(1, {.epochs = 1, .schedule = {.warmup = 2}});
  EXPECT_FALSE(again.trainer->resume(scheduled.path()).position.learning_rate.has_value());
}

}  // namespace
}  // namespace lockstep
