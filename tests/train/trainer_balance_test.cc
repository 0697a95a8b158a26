// Shares of devices and ranks: they decide which device computes which shards, and nothing else.
#include <gtest/gtest.h>

#include <thread>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/optim/sgd.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

using Shares = std::vector<int>;

struct BalancedRun {
  std::vector<double> losses;
  std::vector<Shares> shares;  // of each step
  std::string weights;
  std::vector<std::int64_t> correct;
  std::string why_not_recorded;
};

// Six epochs are 30 steps.
BalancedRun train(int devices, TrainerOptions options, std::shared_ptr<ProcessGroup> group = nullptr,
                  const std::filesystem::path& resume = {}) {
  SmallJob job(devices, std::move(options), nullptr, std::move(group), 1);
  if (!resume.empty()) job.trainer->resume(resume);
  BalancedRun run;
  for (const EpochReport& epoch : job.trainer->train().epochs) run.correct.push_back(epoch.test.correct);
  run.losses = job.losses;
  for (const StepReport& step : job.steps) run.shares.push_back(step.shares);
  run.weights = weights_sha256(job.net);
  run.why_not_recorded = job.trainer->why_not_recorded();
  return run;
}

// `seconds`: of all devices, rank 0's first.
std::vector<BalancedRun> train_ranks(int ranks, int devices, const TrainerOptions& options,
                                     const std::vector<double>& seconds = {}) {
  auto groups = make_local_groups(ranks);
  std::vector<BalancedRun> runs(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r] {
      TrainerOptions mine = options;
      if (!seconds.empty()) {
        const auto first = seconds.begin() + static_cast<std::ptrdiff_t>(r) * devices;
        mine.balancer.seconds_per_shard = [own = std::vector<double>(first, first + devices)] { return own; };
      }
      try {
        runs[r] = train(devices, mine, groups[r]);
      } catch (const std::exception& error) {
        groups[r]->abort(error.what());
        ADD_FAILURE() << "rank " << r << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return runs;
}

void expect_same_bits(const BalancedRun& a, const BalancedRun& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.correct, b.correct);
}

// So many steps with the one, and the rest of 30 with the other shares.
std::vector<Shares> thirty_steps(std::size_t before, const Shares& first, const Shares& second) {
  std::vector<Shares> all(30, second);
  std::fill_n(all.begin(), before, first);
  return all;
}

TEST(TrainerBalance, WeightsGiveSharesAndKeepTheBits) {
  const TrainerOptions equal{.split = {.shards = 7}, .epochs = 2};
  const BalancedRun one = train(1, equal);
  EXPECT_EQ(one.shares, std::vector<Shares>(10, {7}));
  TrainerOptions options = equal;
  options.split.balance = Balance::parse("5,1,1");
  const BalancedRun three = train(3, options);
  EXPECT_EQ(three.shares, std::vector<Shares>(10, {5, 1, 1}));
  expect_same_bits(three, one);
  for (const BalancedRun& rank : train_ranks(3, 1, options)) {
    EXPECT_EQ(rank.shares, three.shares);
    expect_same_bits(rank, one);
  }
  options.split.balance = Balance::parse("1,2,1,3");
  for (const BalancedRun& rank : train_ranks(2, 2, options)) {
    EXPECT_EQ(rank.shares, std::vector<Shares>(10, {1, 2, 1, 3}));
    expect_same_bits(rank, one);
  }
}

TEST(TrainerBalance, SharesFollowTheSpeedAndTheBitsStay) {
  const TrainerOptions equal{.split = {.shards = 8}, .epochs = 6};
  const BalancedRun one = train(1, equal);
  TrainerOptions automatic = equal;
  automatic.split.balance.automatic = true;
  for (const BalancedRun& rank : train_ranks(2, 1, automatic, {0.01, 0.03})) {
    EXPECT_EQ(rank.shares, thirty_steps(20, {4, 4}, {6, 2}));
    expect_same_bits(rank, one);
  }
  for (const BalancedRun& rank : train_ranks(2, 2, automatic, {0.05, 0.01, 0.01, 0.05})) {
    EXPECT_EQ(rank.shares, thirty_steps(20, {2, 2, 2, 2}, {1, 3, 3, 1}));
    expect_same_bits(rank, one);
  }
  automatic.balancer.seconds_per_shard = [] { return std::vector<double>{0.05, 0.01, 0.01}; };
  const BalancedRun three = train(3, automatic);
  EXPECT_EQ(three.shares, thirty_steps(20, {3, 3, 2}, {1, 4, 3}));
  expect_same_bits(three, one);
}

// Steps of two micro-batches end within an epoch and with it, and shares change at both.
TEST(TrainerBalance, SharesChangeBetweenStepsOfMicroBatches) {
  const TrainerOptions equal{.split = {.shards = 4}, .accumulate = 2, .epochs = 6};
  const BalancedRun one = train(1, equal);
  for (const int every : {4, 5}) {
    TrainerOptions automatic = equal;
    automatic.split.balance.automatic = true;
    automatic.balancer.every = every;
    for (const BalancedRun& rank : train_ranks(2, 1, automatic, {0.03, 0.01})) {
      for (std::size_t step = 0; step < 30; ++step) {
        EXPECT_EQ(rank.shares.at(step), step < static_cast<std::size_t>(every) ? Shares({2, 2}) : Shares({1, 3}))
            << step;
      }
      expect_same_bits(rank, one);
    }
  }
}

// Forth and back at every second step, over epochs and evaluations.
TEST(TrainerBalance, SharesMayChangeOften) {
  const TrainerOptions equal{.split = {.shards = 5}, .epochs = 6, .clip_norm = 0.5};
  const BalancedRun one = train(1, equal);
  auto groups = make_local_groups(2);
  std::vector<BalancedRun> runs(2);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      TrainerOptions options = equal;
      options.split.balance.automatic = true;
      options.balancer = {.every = 2, .seconds_per_shard = [n = 0, r]() mutable {
                            return std::vector<double>{++n % 2 == static_cast<int>(r) ? 0.01 : 0.04};
                          }};
      runs[r] = train(1, options, groups[r]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const BalancedRun& rank : runs) {
    EXPECT_EQ(rank.shares[2], Shares({1, 4}));
    EXPECT_EQ(rank.shares[4], Shares({4, 1}));
    EXPECT_EQ(rank.shares[26], Shares({1, 4}));
    expect_same_bits(rank, one);
  }
}

// Counts how often it is described.
struct Counting : Module {
  Tensor forward(const Tensor& x) override {
    ++calls;
    return x;
  }
  int calls = 0;
};

TEST(TrainerBalance, RecordedStepsAreRecordedAnew) {
  const auto run = [](bool record, bool automatic, int* described) {
    Runtime runtime({.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1});
    Sequential net;
    const auto counting = std::make_shared<Counting>();
    net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5}).append(counting);
    net.initialize(Xavier{}, runtime.devices());
    Sgd sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
    const std::function<std::vector<double>()> seconds = [] { return std::vector<double>{0.01, 0.03}; };
    Trainer trainer(net, sgd, random_pictures(64, 1), nullptr,
                    {.devices = runtime.devices(),
                     .split = {.shards = 8, .balance = {.automatic = automatic}},
                     .balancer = {.seconds_per_shard = automatic ? seconds : nullptr},
                     .batch_size = 16,
                     .record_steps = record,
                     .epochs = 10});
    Shares last;
    trainer.on_step = [&](const StepReport& report) { last = report.shares; };
    trainer.train();
    EXPECT_EQ(trainer.why_not_recorded(), "");
    EXPECT_EQ(last, automatic ? Shares({6, 2}) : Shares({4, 4}));
    *described = counting->calls;
    return weights_sha256(net);
  };
  int all = 0, some = 0, moved = 0;
  const std::string weights = run(false, false, &all);
  EXPECT_EQ(run(true, false, &some), weights);
  EXPECT_EQ(run(true, true, &moved), weights);
  EXPECT_EQ(all, 40);
  // Until the first recording, and once more until the second one.
  EXPECT_EQ(moved, 2 * some);
}

TEST(TrainerBalance, SharesAreNoPartOfACheckpoint) {
  const TrainerOptions equal{.split = {.shards = 8}, .epochs = 6};
  const BalancedRun whole = train(1, equal);
  TemporaryFolder folder;
  TrainerOptions automatic = equal;
  automatic.save_folder = folder.path();
  automatic.max_steps = 23;
  automatic.split.balance.automatic = true;
  automatic.balancer.seconds_per_shard = [] { return std::vector<double>{0.01, 0.03}; };
  EXPECT_EQ(train(2, automatic).shares.back(), Shares({6, 2}));
  EXPECT_EQ(train(1, equal, nullptr, folder.path()).weights, whole.weights);
  automatic.save_folder.clear();
  automatic.max_steps = 0;
  const BalancedRun resumed = train(2, automatic, nullptr, folder.path());
  EXPECT_EQ(resumed.shares, std::vector<Shares>(7, {4, 4}));
  EXPECT_EQ(resumed.weights, whole.weights);
}

TEST(TrainerBalance, WithAShardForEachDeviceNothingMoves) {
  TrainerOptions options{.split = {.shards = 2, .balance = {.automatic = true}}, .epochs = 6};
  options.balancer.seconds_per_shard = [] { return std::vector<double>{0.01, 0.03}; };
  EXPECT_EQ(train(2, options).shares, std::vector<Shares>(30, {1, 1}));
}

TEST(TrainerBalance, NeedsAWeightForEachDevice) {
  TrainerOptions options{.split = {.shards = 4, .balance = Balance::parse("2,1")}};
  EXPECT_ERROR(SmallJob(3, options), "balance 2,1: 2 weights for 3 devices, expected one for each");
}

}  // namespace
}  // namespace lockstep
