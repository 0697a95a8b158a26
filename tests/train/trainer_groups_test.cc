// A run with parameter groups: it has one hash on all devices and ranks and after resuming, and another recipe than a
// run without groups.
#include <gtest/gtest.h>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/weights.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/layouts.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

const TrainerOptions kGroupedRun{
    .epochs = 3, .seed = 5, .clip_norm = 0.5, .schedule = {.kind = ScheduleKind::cosine, .warmup = 3}};

// Biases and norms neither decay nor learn as fast as matrices.
ParameterGroups two_groups(const Module& net) {
  std::vector<Parameter> matrices, others;
  for (const Parameter& p : net.parameters()) (p.shape().dim() > 1 ? matrices : others).push_back(p);
  return {{.parameters = matrices, .weight_decay = 0.1}, {.parameters = others, .lr = 1e-3}};
}

std::string train_groups(JobLayout layout, const TrainerOptions& options, const std::filesystem::path& resume = {},
                         const SmallJob::MakeGroups& make_groups = two_groups) {
  return run_layout(layout, [&](int devices, const std::shared_ptr<ProcessGroup>& group) {
    SmallJob job(devices, options, nullptr, group, 0, make_groups);
    if (!resume.empty()) job.trainer->resume(resume);
    job.trainer->train();
    return weights_sha256(job.net);
  });
}

TEST(TrainerGroups, OneHashOnAllLayouts) {
  const std::string expected = train_groups({1, 1}, kGroupedRun);
  EXPECT_EQ(expected.size(), 64U) << expected;
  EXPECT_NE(train_groups({1, 1}, kGroupedRun, {}, nullptr), expected);
  for (const JobLayout layout : {JobLayout{1, 2}, {1, 3}, {2, 1}, {2, 2}}) {
    EXPECT_EQ(train_groups(layout, kGroupedRun), expected) << ::testing::PrintToString(layout);
  }
  TrainerOptions recorded = kGroupedRun;
  recorded.record_steps = true;
  EXPECT_EQ(train_groups({1, 2}, recorded), expected);
}

TEST(TrainerGroups, GoOnWhereTheyStopped) {
  const std::string expected = train_groups({1, 2}, kGroupedRun);
  TemporaryFolder folder;
  TrainerOptions first = kGroupedRun;
  first.save_folder = folder.path();
  first.save_every = 7;
  // The schedule is that of the whole run.
  SmallJob stopped(2, first, nullptr, nullptr, 0, two_groups);
  stopped.trainer->on_update = [&](std::int64_t step) {
    if (step == 7) stopped.trainer->request_stop();
  };
  stopped.trainer->train();
  EXPECT_EQ(find_latest_checkpoint(folder.path()).checkpoint->step, 7);
  EXPECT_EQ(train_groups({1, 1}, kGroupedRun, folder.path()), expected);
  EXPECT_EQ(train_groups({2, 2}, kGroupedRun, folder.path()), expected);
}

TEST(TrainerGroups, AreInTheRecipe) {
  TemporaryFolder folder;
  TrainerOptions first = kGroupedRun;
  first.save_folder = folder.path();
  first.epochs = 1;
  SmallJob job(1, first, nullptr, nullptr, 0, two_groups);
  EXPECT_EQ(
      job.trainer->recipe().at("parameter_groups"),
      "lr 0.01, weight_decay 0.1: 0.weight, 6.weight; lr 0.001, weight_decay 0: 0.bias, 1.weight, 1.bias, 6.bias");
  job.trainer->train();
  first.save_folder.clear();
  SmallJob plain(1, first);
  EXPECT_FALSE(plain.trainer->recipe().contains("parameter_groups"));
  EXPECT_ERROR(plain.trainer->resume(folder.path()), "this run has no parameter_groups");
  SmallJob other(1, first, nullptr, nullptr, 0,
                 [](const Module& net) { return ParameterGroups{{.parameters = net.parameters(), .lr = 1e-3}}; });
  EXPECT_ERROR(other.trainer->resume(folder.path()), "this run has parameter_groups \"lr 0.001, weight_decay 0: 0.w");
}

}  // namespace
}  // namespace lockstep
