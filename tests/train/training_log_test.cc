#include "lockstep/train/training_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/checkpoint/weights.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

std::vector<nlohmann::json> read_events(const std::filesystem::path& path, const std::string& kind = "") {
  std::vector<nlohmann::json> all;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line);
    if (kind.empty() || event.at("event") == kind) all.push_back(event);
  }
  return all;
}

TEST(TrainingLog, HasTheRunWithItsLearningRates) {
  TemporaryFolder folder;
  TrainerOptions options{.epochs = 2, .schedule = {.kind = ScheduleKind::cosine}, .log_file = folder / "log"};
  SmallJob job(1, options);
  std::vector<double> rates;
  job.trainer->on_update = [&](std::int64_t) { rates.push_back(job.adam->learning_rate()); };
  EXPECT_TRUE(job.trainer->train().failures.empty());
  const auto all = read_events(folder / "log");
  ASSERT_EQ(all.size(), 1U + 2 * (5 + 1) + 1);
  EXPECT_EQ(all[0].at("event"), "start");
  EXPECT_EQ(all[0].at("recipe"), recipe_hash(job.trainer->recipe()));
  EXPECT_EQ(all[0].at("parameters"), job.net.parameter_count());
  const auto steps = read_events(folder / "log", "step");
  ASSERT_EQ(steps.size(), 10U);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("step"), i + 1);
    EXPECT_EQ(steps[i].at("loss").get<double>(), job.losses[i]);
    EXPECT_EQ(steps[i].at("lr").get<double>(), rates[i]);
    EXPECT_EQ(job.steps[i].learning_rate, rates[i]);
  }
  EXPECT_GT(rates[0], rates[9]);
  EXPECT_EQ(all.back().at("event"), "end");
  EXPECT_EQ(all.back().at("steps"), 10);
  EXPECT_EQ(all.back().at("weights_sha256"), weights_sha256(job.net));
}

TEST(TrainingLog, AResumedRunContinuesIt) {
  TemporaryFolder folder;
  const auto run = [&](std::int64_t epochs, bool resume) {
    SmallJob job(1, {.epochs = epochs, .save_folder = folder / "save", .log_file = folder / "log"});
    if (resume) job.trainer->resume(folder / "save");
    job.trainer->train();
  };
  run(1, false);
  run(2, true);
  EXPECT_EQ(read_events(folder / "log", "step").size(), 10U);
  EXPECT_EQ(read_events(folder / "log", "epoch").size(), 2U);
  std::filesystem::remove_all(folder / "save");
  run(1, false);  // another run begins anew
  EXPECT_EQ(read_events(folder / "log", "step").size(), 5U);
}

TEST(TrainingLog, AFullDiskEndsTheLogAndNotTheRun) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  SmallJob job(1, {.epochs = 1, .log_file = "/dev/full"});
  const TrainingResult result = job.trainer->train();
  EXPECT_EQ(result.steps, 5);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].str(), "the log is incomplete: log: cannot write /dev/full: No space left on device");
  SmallJob other(1, {.epochs = 1, .log_file = "/nonexistent/log"});
  EXPECT_ERROR(other.trainer->train(), "log: cannot write /nonexistent/log: No such file or directory");
}

}  // namespace
}  // namespace lockstep
