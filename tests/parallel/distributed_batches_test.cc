// Loops over data that ranks share: for any number of examples, each counts once, and the bits are those of one
// process.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/split.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

// Inputs of 4 features, of which the first is the example's number, and 2 targets.
std::shared_ptr<const Dataset> numbered_examples(std::int64_t count) {
  testing::Random random(11);
  Tensor x = random.floats({count, 4}), y = random.floats({count, 2});
  for (std::int64_t i = 0; i < count; ++i) x.data_ptr<float>()[i * 4] = static_cast<float>(i) / 4096;
  return std::make_shared<TensorDataset>(std::vector<Tensor>{x, y});
}

std::vector<int> numbers_of(const Tensor& x) {
  std::vector<int> all;
  for (const Array& shard : x->parts) {
    const std::vector<float> values = shard.to_vector<float>();
    for (std::size_t i = 0; i < values.size(); i += 4) all.push_back(static_cast<int>(values[i] * 4096));
  }
  return all;
}

// A rank's weights, and the examples that it has seen.
struct Learned {
  std::string weights;
  std::vector<int> seen;
};

Learned train_two_epochs(Module& net,
                         const std::function<void(const std::function<void(Tensor, Tensor)>& step)>& epoch) {
  Sgd sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  Learned learned;
  for (int i = 0; i < 2; ++i) {
    epoch([&](const Tensor& x, const Tensor& y) {
      const std::vector<int> seen = numbers_of(x);
      learned.seen.insert(learned.seen.end(), seen.begin(), seen.end());
      mse_loss(net(x), y).backward();
      sgd.step();
    });
  }
  learned.weights = weights_sha256(net);
  return learned;
}

struct LoopSizes {
  int world;
  std::int64_t batch_size;  // of all ranks together
  std::vector<std::int64_t> examples;
  int devices = 1;  // of each rank
  int shards = 0;   // 0: one for each device
  int all_shards() const { return shards > 0 ? shards : world * devices; }
};

class DistributedBatchesBits : public ::testing::TestWithParam<LoopSizes> {
 protected:
  using Step = std::function<void(Tensor, Tensor)>;
  using OneProcess = std::function<void(Runtime&, std::int64_t examples, const Step& step)>;
  using OneRank = std::function<void(DistributedModel&, std::int64_t examples, const Step& step)>;

  // Two epochs of `rank` on all ranks have the bits of `one`, and every example in each of them once.
  static void compare(const OneProcess& one, const OneRank& rank) {
    const LoopSizes& sizes = GetParam();
    std::vector<std::vector<Learned>> learned(sizes.examples.size(),
                                              std::vector<Learned>(static_cast<std::size_t>(sizes.world)));
    expect_fine(run_ranks(
        sizes.world,
        [&](Rank& r) {
          for (std::size_t i = 0; i < learned.size(); ++i) {
            auto net = two_layers();
            net->initialize(Xavier{}, r.runtime.devices());
            DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator, {.split = {.shards = sizes.shards}});
            learned[i][static_cast<std::size_t>(r.rank())] =
                train_two_epochs(*net, [&](const Step& step) { rank(ddp, sizes.examples[i], step); });
          }
        },
        sizes.devices));
    Runtime alone({.cpu_devices = 1, .threads_per_shard = 1});
    for (std::size_t i = 0; i < learned.size(); ++i) {
      SCOPED_TRACE(fmt::format("{} examples", sizes.examples[i]));
      auto net = two_layers();
      net->initialize(Xavier{}, alone.devices());
      const std::string weights =
          train_two_epochs(*net, [&](const Step& step) { one(alone, sizes.examples[i], step); }).weights;
      for (const Learned& rank : learned[i]) EXPECT_EQ(rank.weights, weights);
      std::vector<int> times(static_cast<std::size_t>(sizes.examples[i]));
      for (const Learned& rank : learned[i]) {
        for (int number : rank.seen) ++times.at(static_cast<std::size_t>(number));
      }
      EXPECT_EQ(times, std::vector<int>(times.size(), 2));
    }
  }
};

TEST_P(DistributedBatchesBits, OverBatchesHasTheBitsOfOneProcess) {
  const auto loader_of = [](std::int64_t examples) {
    return DataLoader(numbered_examples(examples), {.batch_size = GetParam().batch_size, .shuffle = true});
  };
  compare(
      [&](Runtime& alone, std::int64_t examples, const Step& step) {
        DataLoader loader = loader_of(examples);
        const SplitOptions options{.shards = GetParam().all_shards()};
        for (Example& batch : loader) {
          step(split_and_load(batch[0], alone.devices(), options), split_and_load(batch[1], alone.devices(), options));
        }
      },
      [&](DistributedModel& ddp, std::int64_t examples, const Step& step) {
        DataLoader loader = loader_of(examples);
        for (auto [x, y] : ddp.batches(loader)) step(x, y);
        EXPECT_EQ(loader.epoch(), 1);
      });
}

// The loop of PyTorch's tutorials: each rank has a loader of its own part, which need not be as long as another rank's.
class DistributedSamplerBits : public DistributedBatchesBits {};

TEST_P(DistributedSamplerBits, OverPartsOfASamplerHasTheBitsOfOneProcess) {
  const LoopSizes& sizes = GetParam();
  const auto loader_of = [&](std::int64_t examples, int rank) {
    auto sampler = std::make_shared<DistributedSampler>(
        examples, DistributedSamplerOptions{.rank = rank, .world_size = sizes.world});
    return DataLoader(numbered_examples(examples), {.batch_size = sizes.batch_size / sizes.world, .sampler = sampler});
  };
  compare(
      // Makes a shard of each rank's rows.
      [&](Runtime& alone, std::int64_t examples, const Step& step) {
        struct Rows {
          std::vector<std::int64_t> counts;
          std::array<std::vector<Tensor>, 2> parts;
        };
        std::vector<Rows> batches;
        for (int rank = 0; rank < sizes.world; ++rank) {
          DataLoader loader = loader_of(examples, rank);
          std::size_t number = 0;
          for (Example& rows : loader) {
            batches.resize(std::max(batches.size(), number + 1));
            Rows& batch = batches[number++];
            batch.counts.resize(static_cast<std::size_t>(sizes.world));
            batch.counts[static_cast<std::size_t>(rank)] = rows[0].size(0);
            for (std::size_t part = 0; part < 2 && rows[part].size(0) > 0; ++part) {
              batch.parts[part].push_back(rows[part].to(alone.devices()[0]));
            }
          }
        }
        for (const Rows& batch : batches) {
          std::vector<Slot> slots;
          for (int s = 0; s < sizes.world; ++s) {
            if (batch.counts[static_cast<std::size_t>(s)] > 0) slots.push_back({s, alone.devices()[0]});
          }
          const auto at = std::make_shared<Placement>(batch.counts, slots);
          step(scatter(concatenate(batch.parts[0]), at), scatter(concatenate(batch.parts[1]), at));
        }
      },
      [&](DistributedModel& ddp, std::int64_t examples, const Step& step) {
        DataLoader loader = loader_of(examples, ddp.communicator().rank());
        for (Example& batch : loader) {
          auto [x, y] = ddp.split<2>(batch);
          step(x, y);
        }
      });
}

std::string name_of_sizes(const ::testing::TestParamInfo<LoopSizes>& info) {
  const LoopSizes& sizes = info.param;
  return fmt::format("{}RanksOf{}Devices{}ShardsInBatchesOf{}", sizes.world, sizes.devices, sizes.all_shards(),
                     sizes.batch_size);
}

const auto kOneShardEach = ::testing::Values(LoopSizes{2, 64, {2049, 0}}, LoopSizes{3, 96, {1, 2, 3, 4, 5, 6, 7}},
                                             LoopSizes{3, 3, {1, 2, 3, 4, 5, 6, 7}});
INSTANTIATE_TEST_SUITE_P(OneShardEach, DistributedBatchesBits, kOneShardEach, name_of_sizes);
INSTANTIATE_TEST_SUITE_P(OneShardEach, DistributedSamplerBits, kOneShardEach, name_of_sizes);
INSTANTIATE_TEST_SUITE_P(SeveralShards, DistributedBatchesBits,
                         ::testing::Values(LoopSizes{2, 32, {97, 3}, 2, 8}, LoopSizes{4, 32, {97, 3}, 1, 8},
                                           LoopSizes{4, 32, {97, 3}, 2}),
                         name_of_sizes);

// Two inputs, two outputs.
struct Mixed : Module {
  Linear left{{.in_features = 3, .out_features = 4}}, right{{.in_features = 2, .out_features = 4}};
  Linear out{{.in_features = 4, .out_features = 2}};
  Mixed() { add("left", left), add("right", right), add("out", out); }
  std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& mask) {
    const Tensor h = tanh(left(x)) * sigmoid(right(mask));
    return {out(h), mean(square(h))};
  }
};

TEST(DistributedBatches, OfThreePartsFeedAModelOfTwoInputs) {
  const auto data = [] {
    testing::Random random(12);
    return std::make_shared<TensorDataset>(
        std::vector<Tensor>{random.floats({45, 3}), random.floats({45, 2}), random.floats({45, 2})});
  };
  // The batches as three tensors, and the model that takes two of them.
  const auto train = [](Mixed& net, auto&& model, auto&& batches) {
    Sgd sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int epoch = 0; epoch < 2; ++epoch) {
      batches([&](const Tensor& x, const Tensor& mask, const Tensor& y) {
        const auto [output, penalty] = model(x, mask);
        (mse_loss(output, y) + penalty * 0.1).backward();
        sgd.step();
      });
    }
    return weights_sha256(net);
  };
  const DataLoaderOptions options{.batch_size = 16, .shuffle = true};
  const auto alone = [&](int devices) {
    Runtime runtime({.cpu_devices = devices, .cores_per_device = 1, .threads_per_shard = 1});
    Mixed net;
    net.initialize(Xavier{}, runtime.devices());
    DataLoader loader(data(), options);
    const auto model = [&](const Tensor& x, const Tensor& mask) { return net.forward(x, mask); };
    return train(net, model, [&](auto step) {
      for (Example& batch : loader) {
        std::vector<Tensor> parts;
        for (const Tensor& t : batch) parts.push_back(split_and_load(t, runtime.devices(), {.shards = 4}));
        step(parts[0], parts[1], parts[2]);
      }
    });
  };
  const std::string expected = alone(1);
  EXPECT_EQ(alone(2), expected);
  for (const auto& [world, devices] : {std::pair{2, 1}, {4, 1}, {2, 2}}) {
    expect_fine(run_ranks(
        world,
        [&](Rank& r) {
          Mixed net;
          net.initialize(Xavier{}, r.runtime.devices());
          DistributedDataParallel ddp(net, r.runtime.devices(), r.communicator, {.split = {.shards = 4}});
          DataLoader loader(data(), options);
          const auto weights = train(net, ddp, [&](auto step) {
            for (auto [x, mask, y] : ddp.batches<3>(loader)) step(x, mask, y);
          });
          EXPECT_EQ(weights, expected) << world << " ranks";
        },
        devices));
  }
}

TEST(DistributedBatches, ThatDifferAreToldApart) {
  const auto expect_refused = [](const std::function<DataLoaderOptions(int rank)>& options) {
    for (const std::string& error : run_ranks(2, [&](Rank& r) {
           auto net = two_layers();
           net->initialize(Xavier{}, r.runtime.devices());
           DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
           DataLoader loader(numbered_examples(64), options(r.rank()));
           for (auto [x, y] : ddp.batches(loader)) FAIL() << "a batch of " << x.size(0);
         })) {
      EXPECT_EQ(
          error.find("batches: rank 1 has different batches from rank 0, expected a loader of the whole data set"), 0u)
          << error;
    }
  };
  expect_refused([](int rank) {
    return DataLoaderOptions{
        .batch_size = 8,
        .sampler = std::make_shared<DistributedSampler>(64, DistributedSamplerOptions{.rank = rank, .world_size = 2})};
  });
  expect_refused([](int rank) {
    return DataLoaderOptions{.batch_size = 8, .shuffle = true, .seed = static_cast<std::uint64_t>(rank)};
  });
  expect_refused([](int rank) { return DataLoaderOptions{.batch_size = 8 + rank}; });
}

}  // namespace
}  // namespace lockstep
