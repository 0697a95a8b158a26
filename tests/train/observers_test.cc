// What watches a training, when it is called, and what becomes of the training if it fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/train/step_observer.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using AfterFailure = TrainingObserver::AfterFailure;

// Writes down what it is told, and throws where it is asked to.
struct Notes : TrainingObserver {
  explicit Notes(std::string called, AfterFailure then = AfterFailure::ends)
      : called_(std::move(called)), then_(then) {}

  std::string label() const override { return called_; }
  AfterFailure after_failure() const override { return then_; }
  void start(const TrainingStart& start) override { note("start {}", start.position.step); }
  void update(std::int64_t step) override { note("update {}", step); }
  void step(const StepReport& report) override { note("step {}", report.step); }
  void epoch(const EpochReport& report) override { note("epoch {}", report.epoch); }
  void checkpoint(const std::filesystem::path&) override { note("checkpoint"); }
  void end(const TrainingResult& result) override { note("end {}", result.steps); }
  void abort(const std::string& why) override { note("abort {}", why); }
  void failed(const ObserverFailure& failure) override { note("failed {}: {}", failure.observer, failure.error); }

  std::vector<std::string> notes;
  std::vector<std::string> throws_at;
  std::function<void()> after{};

 private:
  template <typename... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    notes.push_back(fmt::format(format, std::forward<Args>(args)...));
    if (after) after();
    if (std::ranges::find(throws_at, notes.back()) != throws_at.end()) throw Error(called_ + " at " + notes.back());
  }

  std::string called_;
  AfterFailure then_;
};

std::shared_ptr<Notes> watch(SmallJob& job, const std::string& name, AfterFailure then = AfterFailure::ends) {
  auto notes = std::make_shared<Notes>(name, then);
  job.trainer->observe(notes);
  return notes;
}

TEST(Observers, AreToldEverythingInOrder) {
  const TemporaryFolder folder;
  SmallJob job(1, {.epochs = 2, .max_steps = 7, .save_folder = folder / "save"});
  const auto notes = watch(job, "a");
  job.trainer->on_step = [&](const StepReport& r) { notes->notes.push_back(fmt::format("on_step {}", r.step)); };
  job.trainer->on_update = [&](std::int64_t step) { notes->notes.push_back(fmt::format("on_update {}", step)); };
  job.trainer->on_epoch = [&](const EpochReport& r) { notes->notes.push_back(fmt::format("on_epoch {}", r.epoch)); };
  job.trainer->train();
  EXPECT_THAT(notes->notes,
              ElementsAre("start 0", "update 1", "on_update 1", "update 2", "on_update 2", "update 3", "on_update 3",
                          "step 1", "on_step 1", "update 4", "on_update 4", "step 2", "on_step 2", "update 5",
                          "on_update 5", "step 3", "on_step 3", "step 4", "on_step 4", "step 5", "on_step 5", "epoch 1",
                          "on_epoch 1", "checkpoint", "update 6", "on_update 6", "update 7", "on_update 7", "step 6",
                          "on_step 6", "step 7", "on_step 7", "epoch 2", "on_epoch 2", "checkpoint", "end 7"));
  // Again: there is nothing left to do, and the weights are tested.
  notes->notes.clear();
  const TrainingResult result = job.trainer->train();
  EXPECT_THAT(notes->notes, ElementsAre("start 7", "end 7"));
  EXPECT_TRUE(result.epochs.empty());
  EXPECT_EQ(result.last.test.total, SmallJob::kTest);
}

TEST(Observers, AFailureEndsTheObserverAndNotTheTraining) {
  SmallJob plain(1, {.epochs = 1}), job(1, {.epochs = 1});
  plain.trainer->train();
  const auto before = watch(job, "before"), bad = watch(job, "the bad one"), after = watch(job, "after");
  bad->throws_at = {"step 2"};
  const TrainingResult result = job.trainer->train();
  EXPECT_EQ(result.steps, 5);
  EXPECT_EQ(weights_sha256(job.net), weights_sha256(plain.net));
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].str(), "the bad one is incomplete: the bad one at step 2");
  EXPECT_EQ(bad->notes.back(), "step 2");
  for (const auto& other : {before, after}) {
    EXPECT_EQ(std::ranges::count(other->notes, "failed the bad one: the bad one at step 2"), 1);
    EXPECT_EQ(other->notes.back(), "end 5");
  }
  // It may try again in another call.
  bad->notes.clear();
  EXPECT_TRUE(job.trainer->train().failures.empty());
  EXPECT_EQ(bad->notes.back(), "end 5");
}

TEST(Observers, AFileThatIsReplacedIsMadeUpFor) {
  SmallJob job(1, {.epochs = 1});
  const auto good = watch(job, "the page", AfterFailure::goes_on), bad = watch(job, "the plot", AfterFailure::goes_on);
  const auto other = watch(job, "other");
  good->throws_at = {"step 1", "step 2"};
  bad->throws_at = {"step 3", "end 5"};
  const TrainingResult result = job.trainer->train();
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].str(), "the plot is not up to date: the plot at end 5");
  EXPECT_EQ(good->notes.back(), "end 5");
  // Others hear of the first failure alone.
  EXPECT_EQ(std::ranges::count_if(other->notes, [](const std::string& n) { return n.starts_with("failed"); }), 2);
}

TEST(Observers, FailuresOfThoseThatHearOfFailures) {
  SmallJob job(1, {.epochs = 1});
  const auto a = watch(job, "a"), b = watch(job, "b"), c = watch(job, "c");
  a->throws_at = {"step 1"};
  b->throws_at = {"failed a: a at step 1"};
  const TrainingResult result = job.trainer->train();
  EXPECT_EQ(result.failures.size(), 2u);
  EXPECT_THAT(c->notes, ::testing::IsSupersetOf({"failed a: a at step 1", "failed b: b at failed a: a at step 1"}));
  EXPECT_EQ(c->notes.back(), "end 5");
}

TEST(Observers, TheTrainingEndsWithWhatItNeeds) {
  SmallJob needs(1, {.epochs = 1});
  const auto needed = watch(needs, "needed", AfterFailure::ends_training), other = watch(needs, "other");
  needed->throws_at = {"update 3"};
  EXPECT_ERROR(needs.trainer->train(), "needed at update 3");
  EXPECT_EQ(other->notes.back(), "abort needed at update 3");
  EXPECT_EQ(needed->notes.back(), "abort needed at update 3");

  SmallJob starts(1, {.epochs = 1});
  watch(starts, "a")->throws_at = {"start 0"};
  EXPECT_ERROR(starts.trainer->train(), "a at start 0");

  // What a callback throws is the program's.
  SmallJob calls(1, {.epochs = 1});
  const auto notes = watch(calls, "notes");
  notes->throws_at = {"abort stop here"};
  calls.trainer->on_update = [](std::int64_t step) { check(step < 2, "stop here"); };
  EXPECT_ERROR(calls.trainer->train(), "stop here");
  EXPECT_EQ(notes->notes.back(), "abort stop here");
}

// Looks into step 3, and fails there, between the gradients and the update.
struct FailsInStepThree : StepObserver {
  std::string label() const override { return "the watch"; }
  bool observes(std::int64_t step) const override { return step == 3; }
  void begin(std::int64_t step) override { step_ = step; }
  void backward(const std::function<double()>&) override { check(step_ != 3, "no room"); }

 private:
  std::int64_t step_ = 0;
};

TEST(Observers, AStepWhoseObserverFailsIsUpdated) {
  SmallJob plain(1, {.epochs = 1}), job(1, {.record_steps = true, .epochs = 1});
  plain.trainer->train();
  job.trainer->observe(std::make_shared<FailsInStepThree>());
  const TrainingResult result = job.trainer->train();
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(job.trainer->why_not_recorded(), "");
  EXPECT_EQ(weights_sha256(job.net), weights_sha256(plain.net));
}

struct Forgets : StepObserver {
  std::string label() const override { return "the watch"; }
  void begin(std::int64_t) override { inside = true; }
  void updated(std::span<const Tensor>) override { inside = false; }
  void abandon() override { inside = false; }
  bool inside = false;
};

TEST(Observers, AbandonAStepThatAnExceptionEnds) {
  SmallJob job(1, {.epochs = 1});
  const auto watch = std::make_shared<Forgets>();
  job.trainer->observe(watch);
  job.trainer->on_update = [&](std::int64_t) {
    EXPECT_TRUE(watch->inside);
    fail("stop here");
  };
  EXPECT_ERROR(job.trainer->train(), "stop here");
  EXPECT_FALSE(watch->inside);
}

// An error of the training that an observer meets first is not the observer's.
TEST(Observers, DoNotHideAFailedBatch) {
  auto data =
      std::make_shared<TensorDataset>(std::vector<Tensor>{zeros({10, 1, 6, 6}), full({10}, 7, {.dtype = DType::i64})});
  SmallJob job(1, {.epochs = 1, .loss = [](const Tensor& y, const Tensor& labels) { return cross_entropy(y, labels); }},
               data);
  const auto notes = watch(job, "notes");
  notes->after = [&] {
    if (notes->notes.back() == "update 1") job.net.parameters()[0].host_data().to_vector<float>();
  };
  EXPECT_ERROR(job.trainer->train(), "label 7");
  EXPECT_THAT(notes->notes.back(), HasSubstr("label 7"));
}

}  // namespace
}  // namespace lockstep
