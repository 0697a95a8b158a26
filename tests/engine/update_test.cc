// Data that a skipped task was to update keeps its value, and the failure is reported once.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "lockstep/engine/engine.h"

namespace lockstep {
namespace {

class Update : public ::testing::TestWithParam<bool> {
 protected:
  Update() : engine_({.serial = GetParam()}) {
    lane_ = engine_.add_lane({.name = "a"});
    other_lane_ = engine_.add_lane({.name = "b"});
    engine_.push({.name = "initialize", .lane = lane_, .writes = {weight_}, .run = [](const TaskContext&) {}});
  }

  void fail_batch(const Resource& batch, const std::string& why = "no such label") {
    engine_.push(
        {.name = "batch", .lane = lane_, .writes = {batch}, .run = [why](const TaskContext&) { throw Error(why); }});
  }
  void update(const Resource& batch) {
    engine_.push({.name = "update",
                  .lane = lane_,
                  .reads = {weight_, batch},
                  .writes = {weight_, result_},
                  .updates = true,
                  .run = [this](const TaskContext&) { ++updates_; }});
  }
  void read(const Resource& from, const Resource& to) {
    engine_.push(
        {.name = "read", .lane = other_lane_, .reads = {from}, .writes = {to}, .run = [](const TaskContext&) {}});
  }
  std::string error_of(const Resource& data) {
    try {
      engine_.wait_readable(data);
    } catch (const TaskError& error) {
      return error.task();
    }
    return "";
  }

  Engine engine_;
  LaneId lane_, other_lane_;
  Resource weight_ = engine_.make_resource(), result_ = engine_.make_resource(), batch_ = engine_.make_resource();
  Resource copy_ = engine_.make_resource();
  int updates_ = 0;
};

TEST_P(Update, LeavesGoodDataAsItWas) {
  fail_batch(batch_);
  update(batch_);
  EXPECT_EQ(error_of(batch_), "batch");
  EXPECT_EQ(error_of(weight_), "");
  const Resource next = engine_.make_resource();
  update(next);
  EXPECT_EQ(error_of(weight_), "");
  EXPECT_EQ(updates_, 1);
  engine_.wait_all();
}

TEST_P(Update, FailsWhatTheTaskWasToCompute) {
  fail_batch(batch_);
  update(batch_);
  EXPECT_EQ(error_of(result_), "batch");
}

TEST_P(Update, OfDataThatIsNotReadFailsIt) {
  fail_batch(batch_);
  engine_.push({.name = "overwrite",
                .lane = lane_,
                .reads = {batch_},
                .writes = {weight_},
                .updates = true,
                .run = [](const TaskContext&) {}});
  EXPECT_EQ(error_of(weight_), "batch");
}

TEST_P(Update, OfTornDataLeavesItTorn) {
  engine_.push({.name = "tear",
                .lane = lane_,
                .reads = {weight_},
                .writes = {weight_},
                .updates = true,
                .run = [](const TaskContext&) { throw Error("midway"); }});
  fail_batch(batch_);
  update(batch_);
  EXPECT_EQ(error_of(weight_), "tear");
  EXPECT_FALSE(engine_.forgive(weight_));
}

TEST_P(Update, ThatIsCancelledFailsItsData) {
  if (GetParam()) return;  // the serial engine has nothing to cancel
  const Resource gate = engine_.make_resource();
  std::atomic<bool> open{false};
  engine_.push({.name = "gate", .lane = other_lane_, .writes = {gate}, .run = [&](const TaskContext&) {
                  while (!open) std::this_thread::yield();
                }});
  update(gate);
  engine_.cancel_pending("enough");
  open = true;
  EXPECT_THROW(engine_.wait_readable(weight_), CancelledError);
}

// Nobody reads the batch: whoever reads the weights first learns that an update is missing.
TEST_P(Update, ThatIsLeftOutIsReportedOnceWhereTheDataIsRead) {
  fail_batch(batch_);
  update(batch_);
  EXPECT_EQ(error_of(weight_), "batch");
  EXPECT_EQ(error_of(weight_), "");
  engine_.wait_all();
}

TEST_P(Update, ThatIsLeftOutIsReportedOnceWhereAResultOfTheDataIsRead) {
  fail_batch(batch_);
  update(batch_);
  update(engine_.make_resource());
  read(weight_, copy_);
  EXPECT_EQ(error_of(copy_), "batch");
  EXPECT_EQ(error_of(copy_), "");
  EXPECT_EQ(error_of(weight_), "");
}

TEST_P(Update, ThatIsLeftOutDoesNotConcernDataWrittenAnew) {
  fail_batch(batch_);
  update(batch_);
  engine_.push({.name = "initialize", .lane = lane_, .writes = {weight_}, .run = [](const TaskContext&) {}});
  EXPECT_EQ(error_of(weight_), "");
  EXPECT_THROW(engine_.wait_all(), TaskError);
}

TEST_P(Update, OfSeveralFailuresReportsTheFirst) {
  const Resource second = engine_.make_resource(), sum = engine_.make_resource();
  fail_batch(batch_, "the first");
  fail_batch(second, "the second");
  engine_.push(
      {.name = "sum", .lane = lane_, .reads = {second, batch_}, .writes = {sum}, .run = [](const TaskContext&) {}});
  update(sum);
  try {
    engine_.wait_readable(sum);
    FAIL() << "expected an error";
  } catch (const TaskError& error) {
    EXPECT_NE(std::string(error.what()).find("the first"), std::string::npos) << error.what();
  }
  EXPECT_EQ(error_of(weight_), "");
  engine_.wait_all();
}

TEST_P(Update, CountsReports) {
  fail_batch(batch_);
  update(batch_);
  EXPECT_EQ(engine_.reports(), 0U);
  error_of(batch_);
  EXPECT_EQ(engine_.reports(), 1U);
  error_of(weight_);
  EXPECT_EQ(engine_.reports(), 1U);
}

TEST_P(Update, TellsATaskOnRequestThatItIsSkipped) {
  fail_batch(batch_);
  std::string reason;
  engine_.push({.name = "exchange",
                .lane = lane_,
                .reads = {batch_},
                .writes = {copy_},
                .told_if_skipped = true,
                .run = [&](const TaskContext& context) { reason = context.skipped ? context.skipped->task : "ran"; }});
  EXPECT_EQ(error_of(copy_), "batch");
  EXPECT_EQ(reason, "batch");
}

// A loss, and a gradient that fails apart from it.
class FailuresOfAGroup : public Update {
 protected:
  void fail_in(const std::shared_ptr<FailureGroup>& group, const Resource& data, const std::string& name) {
    engine_.push({.name = name, .lane = lane_, .writes = {data}, .group = group, .run = [name](const TaskContext&) {
                    throw Error(name);
                  }});
  }
  std::string error_of_all() {
    try {
      engine_.wait_all();
    } catch (const TaskError& error) {
      return error.task();
    }
    return "";
  }

  Resource gradient_ = engine_.make_resource(), other_gradient_ = engine_.make_resource();
  std::shared_ptr<FailureGroup> group_ = std::make_shared<FailureGroup>(std::vector{batch_});
};

TEST_P(FailuresOfAGroup, AreReportedWithTheRoots) {
  fail_batch(batch_);
  fail_in(group_, gradient_, "gradient");
  EXPECT_EQ(error_of(batch_), "batch");
  // Its task runs after the report.
  fail_in(group_, other_gradient_, "other gradient");
  EXPECT_EQ(error_of_all(), "");
  EXPECT_TRUE(engine_.reported(*group_));
}

TEST_P(FailuresOfAGroup, ReportThatOfTheRoots) {
  fail_batch(batch_);
  fail_in(group_, gradient_, "gradient");
  EXPECT_EQ(error_of(gradient_), "gradient");
  EXPECT_EQ(error_of_all(), "");
}

TEST_P(FailuresOfAGroup, AreReportedWithOneAnother) {
  engine_.push({.name = "loss", .lane = lane_, .writes = {batch_}, .run = [](const TaskContext&) {}});
  fail_in(group_, gradient_, "gradient");
  fail_in(group_, other_gradient_, "other gradient");
  EXPECT_EQ(error_of(other_gradient_), "other gradient");
  EXPECT_EQ(error_of_all(), "");
}

TEST_P(FailuresOfAGroup, ThatNobodyHasReadAreReported) {
  fail_batch(batch_);
  fail_in(group_, gradient_, "gradient");
  EXPECT_EQ(error_of_all(), "batch");
  EXPECT_EQ(error_of_all(), "");
}

// Two batches that a backward pass adds up are still two.
TEST_P(FailuresOfAGroup, AreNotReportedWithThoseOfAnotherGroup) {
  const auto other = std::make_shared<FailureGroup>(std::vector<Resource>());
  fail_in(group_, gradient_, "gradient");
  fail_in(other, other_gradient_, "other gradient");
  engine_.push({.name = "sum",
                .lane = lane_,
                .reads = {gradient_, other_gradient_},
                .writes = {copy_},
                .group = other,
                .run = [](const TaskContext&) {}});
  EXPECT_EQ(error_of(copy_), "gradient");
  EXPECT_TRUE(engine_.reported(*group_));
  EXPECT_FALSE(engine_.reported(*other));
  EXPECT_EQ(error_of_all(), "other gradient");
}

TEST_P(FailuresOfAGroup, BelongToTheScopeOfTheThread) {
  {
    const FailureScope scope(group_);
    fail_in(nullptr, gradient_, "gradient");
  }
  EXPECT_EQ(error_of(gradient_), "gradient");
  EXPECT_TRUE(engine_.reported(*group_));
}

TEST_P(FailuresOfAGroup, CanBeReportedAgain) {
  fail_batch(batch_);
  EXPECT_EQ(error_of(batch_), "batch");
  engine_.report_again(engine_.failure(batch_));
  update(batch_);
  EXPECT_EQ(error_of(weight_), "batch");
  EXPECT_EQ(error_of(weight_), "");
}

INSTANTIATE_TEST_SUITE_P(Engines, FailuresOfAGroup, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "serial" : "threaded"); });
INSTANTIATE_TEST_SUITE_P(Engines, Update, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "serial" : "threaded"); });

}  // namespace
}  // namespace lockstep
