
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <set>
#include <thread>
#include <type_traits>

#include "lockstep/autograd/creation.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/thread_limit.h"

namespace lockstep {
namespace {

// A copy would take batches from the same loop.
static_assert(!std::is_copy_constructible_v<DataLoader::Iterator> && !std::is_copy_assignable_v<DataLoader::Iterator> &&
              std::is_move_constructible_v<DataLoader::Iterator>);

using Indices = std::vector<std::int64_t>;

// Example i is {i, key of its random transform}, and loading takes longer for some than for others.
class Numbers : public Dataset {
 public:
  explicit Numbers(std::int64_t size, std::int64_t bad = -1) : size_(size), bad_(bad) {}
  std::int64_t size() const override { return size_; }
  Example get(std::int64_t index) const override { return get(index, {}); }
  Example get(std::int64_t index, RandomKey key) const override {
    ++loaded;
    if (index == bad_) fail("example {} is bad", index);
    if (index % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    return {Tensor::from(Indices{index}, {}),
            Tensor::from(Indices{static_cast<std::int64_t>(key.seed ^ key.stream)}, {})};
  }
  mutable std::atomic<int> loaded{0};

 private:
  std::int64_t size_, bad_;
};

// The results of a loop over the loader: the batches' first parts, or other parts.
std::vector<Indices> batches(DataLoader& loader, std::size_t part = 0) {
  std::vector<Indices> all;
  for (Example& batch : loader) all.push_back(batch[part].to_vector<std::int64_t>());
  return all;
}

Indices joined(const std::vector<Indices>& batches) {
  Indices all;
  for (const Indices& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

class Loader : public ::testing::TestWithParam<int> {
 protected:
  DataLoaderOptions options(DataLoaderOptions o) const {
    o.workers = GetParam();
    return o;
  }
};

TEST_P(Loader, BatchesInOrderWithAShortOneAtTheEnd) {
  DataLoader loader(std::make_shared<Numbers>(10), options({.batch_size = 4}));
  EXPECT_EQ(loader.size(), 3);
  EXPECT_EQ(batches(loader), (std::vector<Indices>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}));
}

TEST_P(Loader, TakesADataSetByValue) {
  DataLoader loader(TensorDataset({Tensor::from(Indices{5, 6, 7}, {3})}), options({.batch_size = 2}));
  EXPECT_EQ(batches(loader), (std::vector<Indices>{{5, 6}, {7}}));
}

TEST_P(Loader, DropsTheShortBatchWhenTold) {
  DataLoader loader(std::make_shared<Numbers>(10), options({.batch_size = 4, .drop_last = true}));
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(batches(loader), (std::vector<Indices>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  DataLoader none(std::make_shared<Numbers>(3), options({.batch_size = 4, .drop_last = true}));
  EXPECT_EQ(none.size(), 0);
  EXPECT_TRUE(batches(none).empty());
}

TEST_P(Loader, GivesTheSameWhateverTheNumberOfWorkers) {
  const DataLoaderOptions o{.batch_size = 8, .shuffle = true, .seed = 3};
  for (const std::size_t part : {0u, 1u}) {
    DataLoader mine(std::make_shared<Numbers>(200), options(o)), other(std::make_shared<Numbers>(200), o);
    for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(batches(mine, part), batches(other, part));
  }
}

TEST_P(Loader, ShufflesAnewInEveryLoop) {
  DataLoader loader(std::make_shared<Numbers>(50), options({.batch_size = 8, .shuffle = true}));
  const Indices first = joined(batches(loader));
  EXPECT_EQ(loader.epoch(), 1);
  const Indices second = joined(batches(loader));
  EXPECT_NE(first, second);
  for (Indices order : {first, second}) {
    std::ranges::sort(order);
    Indices all(50);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all);
  }
  loader.set_epoch(0);
  EXPECT_EQ(joined(batches(loader)), first);
  EXPECT_EQ(first, RandomSampler(50).order(0));
}

// The key of a transform belongs to (seed, epoch, index): the same wherever the example is in the order.
TEST_P(Loader, KeysTransformsBySeedEpochAndIndex) {
  auto keys = [&](std::uint64_t seed, std::int64_t epoch, bool shuffle) {
    DataLoader loader(std::make_shared<Numbers>(20), options({.batch_size = 6, .shuffle = shuffle, .seed = seed}));
    loader.set_epoch(epoch);
    std::map<std::int64_t, std::int64_t> all;
    for (Example& batch : loader) {
      const Indices index = batch[0].to_vector<std::int64_t>(), key = batch[1].to_vector<std::int64_t>();
      for (std::size_t i = 0; i < index.size(); ++i) all[index[i]] = key[i];
    }
    return all;
  };
  const auto base = keys(1, 0, true);
  EXPECT_EQ(keys(1, 0, false), base);
  EXPECT_NE(keys(1, 1, true), base);
  EXPECT_NE(keys(2, 0, true), base);
  EXPECT_NE(base.at(0), base.at(1));
}

TEST_P(Loader, SkipsBatchesOfTheNextLoopOnly) {
  DataLoader loader(std::make_shared<Numbers>(20), options({.batch_size = 6, .shuffle = true, .seed = 4}));
  const auto whole = batches(loader);
  loader.set_epoch(0);
  loader.skip_batches(2);
  EXPECT_EQ(batches(loader), (std::vector<Indices>{whole[2], whole[3]}));
  loader.set_epoch(0);
  EXPECT_EQ(batches(loader), whole);
  loader.set_epoch(0);
  loader.skip_batches(4);
  EXPECT_TRUE(batches(loader).empty());
  EXPECT_EQ(loader.epoch(), 1);
  EXPECT_ERROR(loader.skip_batches(-1), "-1 batches");
}

// As in PyTorch, where each loop shuffles anew.
TEST_P(Loader, ALoopLeftByBreakGoesOnToTheNextEpoch) {
  DataLoader loader(std::make_shared<Numbers>(20), options({.batch_size = 6, .shuffle = true, .seed = 4}));
  const auto first_batch = [&] {
    for (Example& batch : loader) return batch[0].to_vector<std::int64_t>();
    return Indices{};
  };
  const RandomSampler sampler(20, 4);
  const auto expected = [&](std::int64_t epoch) {
    Indices order = sampler.order(epoch);
    order.resize(6);
    return order;
  };
  EXPECT_EQ(first_batch(), expected(0));
  EXPECT_EQ(first_batch(), expected(1));
  EXPECT_EQ(loader.epoch(), 1);
  EXPECT_EQ(joined(batches(loader)), sampler.order(2));
  EXPECT_EQ(loader.epoch(), 3);
  EXPECT_EQ(first_batch(), expected(3));
  // What a run asks for counts.
  loader.set_epoch(3);
  EXPECT_EQ(first_batch(), expected(3));
  loader.skip_batches(1);
  Indices rest = sampler.order(3);
  rest.erase(rest.begin(), rest.begin() + 6);
  EXPECT_EQ(joined(batches(loader)), rest);
  EXPECT_EQ(loader.epoch(), 4);
}

TEST_P(Loader, LoopsInsideOneAnotherHaveEpochsOfTheirOwn) {
  DataLoader loader(std::make_shared<Numbers>(12), options({.batch_size = 6, .shuffle = true}));
  Indices outer;
  for (Example& batch : loader) {
    const Indices some = batch[0].to_vector<std::int64_t>();
    outer.insert(outer.end(), some.begin(), some.end());
    if (outer.size() == 6) {
      EXPECT_EQ(joined(batches(loader)), RandomSampler(12).order(1));
    }
  }
  EXPECT_EQ(outer, RandomSampler(12).order(0));
  EXPECT_EQ(joined(batches(loader)), RandomSampler(12).order(2));
}

TEST_P(Loader, AnExceptionComesOutInThePlaceOfItsBatch) {
  DataLoader loader(std::make_shared<Numbers>(20, 9), options({.batch_size = 4}));
  std::vector<Indices> before;
  EXPECT_ERROR(
      {
        for (Example& batch : loader) before.push_back(batch[0].to_vector<std::int64_t>());
      },
      "example 9 is bad");
  EXPECT_EQ(before, (std::vector<Indices>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  // In the first batch, too.
  DataLoader at_once(std::make_shared<Numbers>(20, 0), options({.batch_size = 4}));
  EXPECT_ERROR(at_once.begin(), "example 0 is bad");
}

TEST_P(Loader, StoppingEarlyEndsTheWorkers) {
  auto data = std::make_shared<Numbers>(100'000);
  DataLoader loader(data, options({.batch_size = 10, .prefetch = GetParam() > 0 ? 3 : 4}));
  for (Example& batch : loader) {
    if (batch[0].to_vector<std::int64_t>()[0] >= 20) break;
  }
  // Whoever made batches is gone, and the threads with it.
  EXPECT_EQ(data.use_count(), 2);
  // Three batches were used and no more than three made ahead.
  EXPECT_LE(data->loaded, 60);
  EXPECT_GE(data->loaded, 30);
  // A loop that was left does not count as an epoch.
  EXPECT_EQ(loader.epoch(), 0);
}

TEST_P(Loader, AnEmptyDataSetHasNoBatches) {
  DataLoader loader(std::make_shared<Numbers>(0), options({.batch_size = 4}));
  EXPECT_EQ(loader.size(), 0);
  EXPECT_TRUE(batches(loader).empty());
}

TEST_P(Loader, FollowsASampler) {
  auto sampler =
      std::make_shared<DistributedSampler>(10, DistributedSamplerOptions{.rank = 1, .world_size = 3, .shuffle = false});
  DataLoader loader(std::make_shared<Numbers>(10), options({.batch_size = 2, .sampler = sampler}));
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(batches(loader), (std::vector<Indices>{{1, 4}, {7}}));
}

// 2,049 and other numbers of examples that ranks cannot share evenly: all have as many batches, and each example once.
TEST_P(Loader, AllRanksOfASamplerHaveAsManyBatches) {
  const auto check = [&](std::int64_t examples, int world, std::int64_t batch_size, bool drop_last) {
    SCOPED_TRACE(fmt::format("{} examples, {} ranks, batch {}", examples, world, batch_size));
    Indices all;
    std::vector<std::size_t> counts;
    for (int rank = 0; rank < world; ++rank) {
      auto sampler =
          std::make_shared<DistributedSampler>(examples, DistributedSamplerOptions{.rank = rank, .world_size = world});
      DataLoader loader(std::make_shared<Numbers>(examples),
                        options({.batch_size = batch_size, .sampler = sampler, .drop_last = drop_last}));
      const auto mine = batches(loader);
      EXPECT_EQ(loader.size(), std::ssize(mine));
      counts.push_back(mine.size());
      for (const Indices& batch : mine) {
        EXPECT_LE(std::ssize(batch), batch_size);
        EXPECT_TRUE(!drop_last || std::ssize(batch) == batch_size);
        all.insert(all.end(), batch.begin(), batch.end());
      }
    }
    EXPECT_EQ(counts, std::vector<std::size_t>(counts.size(), counts[0]));
    std::ranges::sort(all);
    Indices expected(static_cast<std::size_t>(examples));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_TRUE(drop_last || all == expected);
  };
  check(2049, 2, 32, false);
  check(2047, 2, 32, true);
  for (std::int64_t examples = 1; examples <= 7; ++examples) check(examples, 3, 2, false);
  for (std::int64_t examples = 1; examples <= 7; ++examples) check(examples, 3, 2, true);
}

// A sampler of a program that asks another one.
struct Asking : Sampler {
  std::vector<std::int64_t> order(std::int64_t epoch) const override { return RandomSampler(8).order(epoch); }
};

// One seed for a program: that of its Runtime, unless the options name another.
TEST_P(Loader, FollowsTheSeedOfTheRuntime) {
  const auto order = [&](DataLoaderOptions options) {
    options.batch_size = 5;
    options.workers = GetParam();
    DataLoader loader(std::make_shared<Numbers>(8), options);
    std::vector<Indices> all;
    for (Example& batch : loader) {
      for (const Tensor& part : batch) all.push_back(part.to_vector<std::int64_t>());
    }
    return all;
  };
  const auto with = [&](std::optional<std::uint64_t> seed) { return order({.shuffle = true, .seed = seed}); };
  const auto zero = with(0), seven = with(7);
  EXPECT_NE(zero, seven);
  EXPECT_EQ(with({}), zero);
  const auto permutation = [](std::optional<std::uint64_t> seed) {
    return std::pair(RandomSampler(9, seed).order(1), DistributedSampler(9, {.world_size = 2, .seed = seed}).order(1));
  };
  EXPECT_EQ(permutation({}), permutation(0));
  // Made before the Runtime, used while it lives.
  const RandomSampler early(9);
  Runtime runtime({.seed = 7});
  EXPECT_EQ(with({}), seven);
  EXPECT_EQ(with(0), zero);
  EXPECT_EQ(order({.sampler = std::make_shared<RandomSampler>(8)}), seven);
  EXPECT_EQ(permutation({}), permutation(7));
  // The loader's seed is that of a sampler without one, also of one that another sampler asks.
  EXPECT_EQ(order({.sampler = std::make_shared<RandomSampler>(8), .seed = 0}), zero);
  EXPECT_EQ(order({.sampler = std::make_shared<Asking>(), .seed = 0}), zero);
  EXPECT_NE(order({.sampler = std::make_shared<RandomSampler>(8, 1), .seed = 0}), zero);
  const auto first_epoch = [](const std::shared_ptr<const Sampler>& sampler, std::uint64_t seed) {
    DataLoader loader(std::make_shared<Numbers>(9), {.batch_size = 9, .sampler = sampler, .seed = seed});
    return joined(batches(loader));
  };
  const std::vector<double> weights(9, 1);
  const auto half = [](std::optional<std::uint64_t> seed) {
    return std::make_shared<DistributedSampler>(9, DistributedSamplerOptions{.world_size = 2, .seed = seed});
  };
  EXPECT_EQ(first_epoch(std::make_shared<WeightedRandomSampler>(weights, 5), 3),
            WeightedRandomSampler(weights, 5, {.seed = 3}).order(0));
  EXPECT_EQ(first_epoch(half({}), 3), half({})->order(0)) << "loaders of ranks may have different seeds";
  EXPECT_EQ(first_epoch(half(5), 3), half(5)->order(0));
  EXPECT_EQ(early.order(1), permutation(7).first);
  {
    Runtime same({.seed = 7});
    EXPECT_EQ(with({}), seven);
    Runtime other({.seed = 8});
    EXPECT_ERROR(with({}), "data loader: this process has Runtimes with seed 7 and with seed 8, expected the seed in");
    EXPECT_ERROR(early.order(1), "sampler: this process has Runtimes with seed 7 and with seed 8");
    EXPECT_EQ(with(7), seven);
  }
  EXPECT_EQ(with({}), seven);
}

struct Noise : Dataset {
  explicit Noise(bool keyed) : keyed(keyed) {}
  std::int64_t size() const override { return 6; }
  Example get(std::int64_t) const override { return {}; }
  Example get(std::int64_t, RandomKey key) const override { return {keyed ? randn({2}, {.key = key}) : randn({2})}; }
  bool keyed;
};

TEST_P(Loader, RandomNumbersOfAnExampleNeedAKey) {
  const auto all = [&](bool keyed) {
    std::vector<float> found;
    for (const Example& batch : DataLoader(std::make_shared<Noise>(keyed), {.batch_size = 4, .workers = GetParam()})) {
      for (float z : batch[0].to_vector<float>()) found.push_back(z);
    }
    return found;
  };
  const std::vector<float> found = all(true);
  EXPECT_EQ(std::set<float>(found.begin(), found.end()).size(), 12U);
  EXPECT_EQ(all(true), found);
  EXPECT_ERROR(all(false),
               "randn: in Dataset::get, the order of draws depends on threads, expected a seed, or the key");
  EXPECT_EQ(randn({2}).numel(), 2);  // outside, numbers are drawn as ever
}

INSTANTIATE_TEST_SUITE_P(Workers, Loader, ::testing::Values(0, 1, 4));

[[noreturn]] void load_with_too_many_threads() {
  const auto data = std::make_shared<Numbers>(100);
  DataLoader loader(data, {.batch_size = 10, .workers = 9});
  allow_one_more_thread();
  std::string error;
  try {
    loader.begin();
  } catch (const Error& e) {
    error = e.what();
  }
  fmt::print(stderr, "{}; {}, {} users of the data\n", error, is_only_thread() ? "alone" : "others run",
             data.use_count());
  std::_Exit(0);
}

TEST(DataLoaderDeathTest, AThreadThatCannotBeMadeIsAnError) {
  if (!kThreadsCanBeLimited) GTEST_SKIP() << "under the thread sanitizer";
  EXPECT_EXIT(
      load_with_too_many_threads(), ::testing::ExitedWithCode(0),
      "^data loader: cannot make thread 2 of 9: Resource temporarily unavailable; alone, 2 users of the data\n$");
}

TEST(DataLoader, ChecksItsOptions) {
  auto data = std::make_shared<Numbers>(4);
  EXPECT_ERROR(DataLoader(nullptr, {}), "no data set");
  EXPECT_ERROR(DataLoader(data, {.batch_size = 0}), "batch size 0");
  EXPECT_ERROR(DataLoader(data, {.workers = -1}), "-1 workers");
  EXPECT_ERROR(DataLoader(data, {.prefetch = 0}), "0 batches ahead");
  EXPECT_ERROR(DataLoader(data, {.workers = 0, .prefetch = 3}), "prefetch is 3 without workers, expected at least one");
  EXPECT_ERROR(DataLoader(data, {}).set_epoch(-1), "data loader: epoch -1, expected at least 0");
  EXPECT_ERROR(DataLoader(data, {.shuffle = true, .sampler = std::make_shared<SequentialSampler>(4)}),
               "shuffle and sampler are both set, expected at most one");
}

}  // namespace
}  // namespace lockstep
