// The folder "best" of a run that is killed at any moment, resumed, or goes on elsewhere.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The number of renames of checkpoint folders until this process is killed, just before one; -1: never.
int renames_until_kill = -1;

bool is_checkpoint_folder(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("step-") || name.starts_with(".tmp-step-");
}

}  // namespace
}  // namespace lockstep

// Replaces the C library's. Checkpoints appear and disappear by renames alone.
extern "C" int rename(const char* from, const char* to) noexcept {
  using namespace lockstep;
  if (renames_until_kill >= 0 && is_checkpoint_folder(from) && renames_until_kill-- == 0) ::kill(::getpid(), SIGKILL);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace lockstep {
namespace {

// The third epoch is the best, and each before it was better than the one before.
constexpr double kScores[] = {1, 2, 5, 3};
constexpr std::int64_t kEpochs = 4, kStepsOfEpoch = 5, kBest = 3 * kStepsOfEpoch;

struct BestJob {
  explicit BestJob(const fs::path& folder, TrainerOptions options = {}) {
    options.epochs = kEpochs;
    options.save_folder = folder;
    options.watch = {.metric = "score", .save_best = true};
    options.metrics = {
        {.name = "score",
         .values = [](const Tensor& outputs, const Tensor&) { return outputs; },
         .result = [step = step](double) { return kScores[static_cast<std::size_t>(*step / kStepsOfEpoch - 1)]; }}};
    job = std::make_unique<SmallJob>(1, options);
    job->trainer->on_update = [step = step](std::int64_t s) { *step = s; };
  }
  Trainer& trainer() { return *job->trainer; }

  std::shared_ptr<std::int64_t> step = std::make_shared<std::int64_t>(0);
  std::unique_ptr<SmallJob> job;
};

std::int64_t newest_in(const fs::path& folder) {
  const auto latest = find_latest_checkpoint(folder);
  EXPECT_TRUE(latest.damaged.empty()) << latest.damaged.front();
  return latest.checkpoint ? latest.checkpoint->step : 0;
}

std::string weights_in_best(const fs::path& folder) {
  const CheckpointContents best = read_checkpoint(folder / "best");
  EXPECT_EQ(best.step, kBest);
  return best.file("weights.safetensors");
}

std::string undisturbed_weights() {
  static const std::string weights = [] {
    TemporaryFolder folder;
    BestJob(folder.path()).trainer().train();
    EXPECT_EQ(newest_in(folder.path()), kEpochs * kStepsOfEpoch);
    return weights_in_best(folder.path());
  }();
  return weights;
}

// Returns whether it was killed.
bool run_until(int renames, const fs::path& folder, const TrainerOptions& options) {
  const pid_t process = ::fork();
  if (process == 0) {
    int status = 1;
    try {
      renames_until_kill = renames;
      BestJob job(folder, options);
      job.trainer().resume_or_start();
      job.trainer().train();
      status = 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(status);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  EXPECT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
  return killed;
}

class BestCheckpoint : public ::testing::TestWithParam<int> {};

TEST_P(BestCheckpoint, IsThatOfTheUndisturbedRunWheneverTheRunIsKilled) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "this sanitizer forbids threads after a fork";
#endif
  const TrainerOptions options{.save_every = GetParam()};
  const std::string expected = undisturbed_weights();
  int kills = 0;
  for (bool killed = true; killed; ++kills) {
    SCOPED_TRACE(kills);
    TemporaryFolder folder;
    killed = run_until(kills, folder.path(), options);
    // A run resumes from the save folder, so "best" must not be ahead of it.
    EXPECT_LE(newest_in(folder / "best"), newest_in(folder.path()));
    if (killed) {
      EXPECT_FALSE(run_until(-1, folder.path(), options));
    }
    EXPECT_EQ(newest_in(folder.path()), kEpochs * kStepsOfEpoch);
    EXPECT_EQ(weights_in_best(folder.path()), expected);
    if (HasFailure()) return;
  }
  EXPECT_GE(kills, 10);
}

// After each epoch, inside epochs, and less often than epochs end.
INSTANTIATE_TEST_SUITE_P(SaveEvery, BestCheckpoint, ::testing::Values(0, 3, 12));

// As an older version left it, or as it is when the newest checkpoints of the save folder are damaged.
TEST(BestCheckpointOnResume, AheadOfTheRunIsReplaced) {
  for (const std::int64_t left : {5, 0}) {
    TemporaryFolder folder;
    TrainerOptions options{.keep_checkpoints = 10};
    BestJob(folder.path(), options).trainer().train();
    for (const std::int64_t step : {5, 10, 15, 20}) {
      if (step > left) fs::remove_all(folder / fmt::format("step-{:08}", step));
    }
    BestJob again(folder.path(), options);
    EXPECT_EQ(again.trainer().resume_or_start().has_value(), left > 0);
    again.trainer().train();
    EXPECT_EQ(weights_in_best(folder.path()), undisturbed_weights());
  }
}

TEST(BestCheckpointOnResume, TheResultNamesIt) {
  const TemporaryFolder folder;
  BestJob job(folder.path(), {.keep_checkpoints = 10});
  const BestEpoch best = job.trainer().train().best;
  EXPECT_GT(best.epoch, 0);
  EXPECT_EQ(best.path.parent_path(), folder / "best");
  EXPECT_TRUE(fs::is_directory(best.path)) << best.path;
}

TEST(BestCheckpointOnResume, DamagedIsTakenFromTheSaveFolderOrReported) {
  TemporaryFolder folder;
  const fs::path best = folder.path() / "best" / fmt::format("step-{:08}", kBest);
  BestJob(folder.path(), {.keep_checkpoints = 2}).trainer().train();
  fs::resize_file(best / "weights.safetensors", 10);
  const auto go_on = [&] {
    BestJob job(folder.path(), {.keep_checkpoints = 2});
    job.trainer().resume_or_start();
    return job.trainer().train().lost_best;
  };
  EXPECT_EQ(go_on(), 0);
  EXPECT_EQ(weights_in_best(folder.path()), undisturbed_weights());
  fs::resize_file(best / "weights.safetensors", 10);
  fs::remove_all(folder.path() / fmt::format("step-{:08}", kBest));
  EXPECT_EQ(go_on(), kBest / kStepsOfEpoch);
}

TEST(BestCheckpointOnResume, OfAnotherRunIsRefused) {
  TemporaryFolder folder;
  BestJob(folder / "one").trainer().train();
  fs::create_directories(folder / "two");
  fs::rename(folder / "one" / "best", folder / "two" / "best");
  BestJob other(folder / "two", {.seed = 3});
  EXPECT_ERROR(other.trainer().train(), "best: holds the best checkpoint of another run: use another folder (");
  EXPECT_TRUE(other.job->losses.empty());
}

// The best epoch was before the run went on in another folder.
TEST(BestCheckpointOnResume, GoesAlongToAnotherFolder) {
  TemporaryFolder folder;
  BestJob first(folder / "first");
  first.job->trainer->on_update = [&](std::int64_t step) {
    *first.step = step;
    if (step == kBest + 2) first.trainer().request_stop();
  };
  first.trainer().train();
  BestJob second(folder / "second");
  EXPECT_EQ(second.trainer().resume(folder / "first").position.step, kBest + 2);
  second.trainer().train();
  EXPECT_EQ(weights_in_best(folder / "second"), undisturbed_weights());
  // It cannot be had: the best of the epochs that follow is kept.
  fs::remove_all(folder / "first" / "best");
  fs::remove_all(folder / "first" / fmt::format("step-{:08}", kBest));
  BestJob third(folder / "third");
  third.trainer().resume(folder / "first");
  EXPECT_EQ(third.trainer().train().lost_best, kBest / kStepsOfEpoch);
  EXPECT_EQ(newest_in(folder / "third" / "best"), kEpochs * kStepsOfEpoch);
}

}  // namespace
}  // namespace lockstep
