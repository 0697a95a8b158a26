// Receipts of small runs, and what an audit finds in them.
#include "lockstep/train/audit.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/parallel/communicator.h"
#include "lockstep/receipt/leaf_files.h"
#include "tests/expect_error.h"
#include "tests/processes.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

class Audit : public ::testing::Test {
 protected:
  std::filesystem::path file() const { return folder_ / "run/receipt.json"; }
  TrainerOptions options() const {
    return {.epochs = 2,
            .save_folder = folder_ / "run",
            .save_every = 3,
            .keep_checkpoints = 2,
            .receipt = {.file = file(), .every = 2}};
  }
  Receipt receipt() const { return read_receipt(file()).receipt; }
  // Of a run with these options, in a layout of its own.
  AuditResult audited(int devices, AuditOptions o, const Receipt& receipt, TrainerOptions options,
                      std::shared_ptr<const Dataset> data = random_pictures(SmallJob::kTrain, 1)) const {
    SmallJob job(devices, options, data);
    options.devices = job.runtime.devices();
    options.batch_size = SmallJob::kBatch;
    options.split.shards = 4;
    o.receipt_file = file();
    job.trainer = nullptr;
    return audit(job.net, *job.adam, data, random_pictures(SmallJob::kTest, 2), options, receipt, o);
  }
  AuditResult audited(int devices, const AuditOptions& o) const { return audited(devices, o, receipt(), options()); }

  TemporaryFolder folder_;
};

TEST_F(Audit, AnyLayoutFindsAllStepsEqual) {
  SmallJob(2, options()).trainer->train();
  const Receipt made = receipt();
  std::vector<std::int64_t> steps;
  for (const ReceiptLink& link : made.links()) steps.push_back(link.step);
  // Every two steps, every three steps, and at the end, which has checkpoints.
  EXPECT_EQ(steps, (std::vector<std::int64_t>{2, 3, 4, 6, 8, 9, 10}));
  AuditResult result = audited(1, {.range = {{1, 10}}});
  EXPECT_EQ(result.steps, 10);
  EXPECT_EQ(result.trained, 10);
  result = audited(3, {.run = folder_ / "run", .range = {{10, 10}}});
  EXPECT_EQ(result.checkpoints, 2);
  EXPECT_EQ(result.trained, 1);  // from the checkpoint of step 9
  EXPECT_EQ(audited(1, {.run = folder_ / "run", .random_steps = 4}).steps, 4);
}

TEST_F(Audit, AResumedRunHasTheReceiptOfAWholeOne) {
  SmallJob(1, options()).trainer->train();
  const Digest whole = receipt().links().back().hash;
  TrainerOptions part = options();
  part.save_folder = folder_ / "part";
  part.receipt.file = folder_ / "part/receipt.json";
  {
    SmallJob job(1, part);
    job.trainer->on_update = [&](std::int64_t step) {
      if (step == 5) throw Error("killed");  // after the checkpoint of step 3, and the link of step 4
    };
    EXPECT_ERROR(job.trainer->train(), "killed");
  }
  part.resume = true;
  SmallJob(2, part).trainer->train();
  EXPECT_EQ(read_receipt(part.receipt.file).receipt.links().back().hash, whole);
  EXPECT_EQ(read_receipt(part.receipt.file).receipt.links().size(), 7u);
}

// A run may go on for more epochs than its options say.
TEST_F(Audit, TheLimitsOfTheOptionsDoNotEndIt) {
  SmallJob(1, options()).trainer->train();
  TrainerOptions fewer = options();
  fewer.epochs = 1;
  EXPECT_EQ(audited(1, {.range = {{1, 10}}}, receipt(), fewer).steps, 10);
}

TEST_F(Audit, AReceiptOfOtherTestDataKeepsItsLeaves) {
  SmallJob(1, options()).trainer->train();
  const auto test = receipt().head().test;
  TrainerOptions more = options();
  more.epochs = 3;
  SmallJob job(1, more);
  job.trainer = nullptr;
  more.devices = job.runtime.devices();
  more.batch_size = SmallJob::kBatch;
  more.split.shards = 4;
  more.resume = true;
  Trainer other(job.net, *job.adam, random_pictures(SmallJob::kTrain, 1), random_pictures(5, 3), more);
  EXPECT_ERROR(other.train(), "the receipt has other test data");
  EXPECT_TRUE(read_leaves(folder_ / "run/receipt.test.leaves", test->examples, test->root).has_value());
}

TEST_F(Audit, WhatDiffersIsNamed) {
  SmallJob(2, options()).trainer->train();
  const AuditOptions all{.run = folder_ / "run", .range = {{1, 10}}};
  // One label.
  auto pictures = random_pictures(SmallJob::kTrain, 1);
  struct OtherLabel : Dataset {
    std::shared_ptr<const Dataset> inner;
    std::int64_t size() const override { return inner->size(); }
    Example get(std::int64_t i) const override {
      Example e = inner->get(i);
      return i == 17 ? Example{e[0], e[1] + 1} : e;
    }
  };
  const auto other = std::make_shared<OtherLabel>();
  other->inner = pictures;
  EXPECT_ERROR(audited(1, all, receipt(), options(), other), "train example 17 (counted from 0) is not that of the");
  // Leaves with the right root that are not the examples'.
  const std::filesystem::path leaves = folder_ / "run/receipt.train.leaves", kept = folder_ / "kept";
  std::filesystem::rename(leaves, kept);
  write_leaves(leaves, {{receipt().head().train.root}});
  EXPECT_ERROR(audited(1, all, receipt(), options(), other), "it is unknown which example differs");
  std::filesystem::rename(kept, leaves);
  // Another rate.
  TrainerOptions faster = options();
  faster.schedule.base_lr = 0.02;
  EXPECT_ERROR(audited(1, all, receipt(), faster), "learning_rate 0.01 in the receipt, 0.02 here");
  // Other initial weights, of a recipe that says the same.
  TrainerOptions seeded = options();
  seeded.seed = 1;
  seeded.recipe = {{"seed", 0}};
  EXPECT_ERROR(audited(1, all, receipt(), seeded), "start: parameter 0.weight is not that of the receipt");
  // A weight of a step, in a receipt whose chain follows.
  const Receipt made = receipt();
  Receipt forged(made.head());
  for (const ReceiptLink& link : made.links()) {
    Digest state = link.state;
    if (link.step == 4) state[0] ^= std::byte{1};
    forged.add_link(link.step, state, link.loss);
  }
  EXPECT_ERROR(audited(1, {.range = {{1, 10}}}, forged, options()), "step 4: the state");
  // Other final weights, in a receipt whose final hash follows: found in the checkpoint, and where the steps end.
  Receipt renamed = made;
  renamed.set_subject("weights", Digest{});
  EXPECT_ERROR(audited(1, all, renamed, options()), "step-00000010: weights are 0000");
  EXPECT_ERROR(audited(1, {.range = {{9, 10}}}, renamed, options()), "step 10: weights are 0000");
  renamed = made;
  renamed.set_subject("step-00000010/weights.safetensors", Digest{});
  EXPECT_ERROR(audited(1, all, renamed, options()), "step-00000010/weights.safetensors: is not the file");
  // Positions of a checkpoint that lead to other steps: another rate, other examples, other draws.
  for (const auto& [what, with, error] :
       {std::array{"\"learning_rate\": 0.01", "\"learning_rate\": 0.5", "than the receipt: optimizer/learning_rates"},
        {"\"epoch\": 1", "\"epoch\": 0", "step 9 does not follow from epoch 0 and batch 4"},
        {"\"random_step\": 9", "\"random_step\": 8", "the random numbers of another step"}}) {
    CheckpointContents contents = read_checkpoint(folder_ / "run/step-00000009");
    std::string& state = contents.files.at("state.json");
    const std::size_t at = state.find(what);
    ASSERT_NE(at, state.npos) << what << " in " << state;
    state.replace(at, std::strlen(what), with);
    copy_checkpoint(contents, folder_ / "changed");
    EXPECT_ERROR(audited(1, {.run = folder_ / "changed", .range = {{10, 10}}}, made, options()), error);
  }
  // One bit of a weight in a checkpoint.
  const std::filesystem::path weights = folder_ / "run/step-00000010/weights.safetensors";
  std::fstream stream(weights, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(-1, std::ios::end);
  stream.put('?');
  stream.close();
  EXPECT_ERROR(audited(1, all), "step-00000010/weights.safetensors: SHA-256 is");
}

TEST_F(Audit, AStepThatWasTrainedInAnotherWayIsFoundWithItsParameter) {
  SmallJob job(1, options());
  job.trainer->on_update = [&](std::int64_t step) {
    if (step == 5) job.adam->set_learning_rate(0.02);  // and of the later steps
  };
  job.trainer->train();
  EXPECT_EQ(audited(1, {.range = {{1, 4}}}).steps, 4);
  const AuditOptions later{.range = {{6, 6}}};
  EXPECT_ERROR(audited(2, later), "steps 5 to 6: parameter 0.bias differs");
}

}  // namespace
}  // namespace lockstep
