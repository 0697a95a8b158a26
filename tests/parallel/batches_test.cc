// Batches that go where the model is, and what the model or the job knows and nobody has to say.
#include "lockstep/parallel/batches.h"

#include <gtest/gtest.h>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/base/warning.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

std::shared_ptr<const Dataset> examples(std::int64_t count, int parts = 2) {
  testing::Random random(3);
  std::vector<Tensor> all{random.floats({count, 4}), random.floats({count, 2})};
  for (int i = 2; i < parts; ++i) all.push_back(random.floats({count}));
  return std::make_shared<TensorDataset>(all);
}

// Weights after two epochs of a model that nobody placed or initialized.
std::string trained(int devices,
                    const std::function<void(DataLoader&, Module&, const std::function<void(Tensor, Tensor)>&)>& loop) {
  Runtime runtime({.cpu_devices = devices, .threads_per_shard = 1});
  auto net = two_layers();
  Sgd sgd(net->parameters(), {.lr = 0.1});
  DataLoader loader(examples(21), {.batch_size = 8, .shuffle = true});
  for (int epoch = 0; epoch < 2; ++epoch) {
    loop(loader, *net, [&](const Tensor& x, const Tensor& y) {
      mse_loss((*net)(x), y).backward();
      sgd.step();
    });
  }
  EXPECT_EQ(loader.epoch(), 2);
  return weights_sha256(*net);
}

TEST(Batches, HaveShardsByTheirSize) {
  Runtime runtime({.cpu_devices = 3, .threads_per_shard = 1});
  std::vector<std::string> warnings;
  const WarningHandler before = set_warning_handler([&](const Warning& w) { warnings.push_back(w.kind); });
  for (const auto& [batch, shards, warns] : {std::tuple{200, 8, false}, {64, 4, false}, {32, 2, true}, {8, 1, true}}) {
    auto net = two_layers();
    DataLoader loader(examples(200), {.batch_size = batch});
    warnings.clear();
    EXPECT_EQ(splitter_for(*net, {}, loader.batch_size())->shards(), shards);
    EXPECT_EQ(warnings, std::vector<std::string>(warns ? 1 : 0, "idle devices"));
    EXPECT_EQ(splitter_for(*net, {.shards = 5}, batch)->shards(), 5);
    std::int64_t rows = 0;
    for (auto [x, y] : loader.on(*net)) {
      mse_loss((*net)(x), y).backward();
      rows += x.size(0);
    }
    EXPECT_EQ(rows, 200);
  }
  set_warning_handler(before);
}

TEST(Batches, HaveTheBitsOfSplitAndLoad) {
  const std::string expected = trained(1, [](DataLoader& loader, Module& net, const auto& step) {
    const std::vector<Device> devices = net.devices();
    for (Example& batch : loader) {
      step(split_and_load(batch[0], devices, {.shards = 4}), split_and_load(batch[1], devices, {.shards = 4}));
    }
  });
  for (const int devices : {1, 3}) {
    EXPECT_EQ(trained(devices,
                      [](DataLoader& loader, Module& net, const auto& step) {
                        for (auto [x, y] : loader.on(net, {.shards = 4})) step(x, y);
                      }),
              expected);
  }
}

TEST(Batches, AreOnAllDevicesOfTheModel) {
  Runtime runtime({.cpu_devices = 3, .threads_per_shard = 1});
  auto net = two_layers();
  net->to({runtime.devices()[2], runtime.devices()[0]});
  DataLoader loader(examples(32, 3), {.batch_size = 32});
  for (auto [x, y, z] : loader.on<3>(*net)) {
    EXPECT_EQ(x.devices(), net->devices());
    EXPECT_EQ(z.shards().size(), 2u);
  }
  EXPECT_ERROR(*loader.on(*net).begin(), "batches: examples have 3 parts, expected 2: write loader.on<3>(net)");
}

TEST(Batches, OfRanksAreThoseOfTheirWrapper) {
  std::vector<std::string> weights(2);
  expect_fine(run_ranks(2, [&](Rank& r) {
    auto net = two_layers();
    net->to(r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator, {.split = {.shards = 4}});
    Sgd sgd(net->parameters(), {.lr = 0.1});
    DataLoader loader(examples(21), {.batch_size = 8, .shuffle = true});
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (auto [x, y] : loader.on(ddp)) {
        mse_loss(ddp(x), y).backward();
        sgd.step();
      }
    }
    EXPECT_ERROR(loader.on(*net), "loader.on: DistributedDataParallel has 0.weight: expected loader.on(ddp)");
    EXPECT_ERROR((*net)(ones({2, 4})), "but DistributedDataParallel has the model: call that with this rank's rows");
    const NoGradGuard no_grad;
    EXPECT_EQ((*net)(ones({2, 4})).shape(), (Shape{2, 2}));
    weights[static_cast<std::size_t>(r.rank())] = weights_sha256(*net);
  }));
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], trained(1, [](DataLoader& loader, Module& net, const auto& step) {
              for (auto [x, y] : loader.on(net, {.shards = 4})) step(x, y);
            }));
}

TEST(Places, AJobIsTheJobOfItsDevices) {
  std::vector<std::string> weights(2);
  const auto groups = make_local_groups(2);
  std::vector<std::jthread> ranks;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto runtime = std::make_unique<Runtime>(RuntimeOptions{.cpu_devices = 2, .threads_per_shard = 1});
      const std::vector<Device> devices{runtime->devices()[1]};
      Job job(groups[rank], std::move(runtime), devices);
      EXPECT_EQ(job.runtime().devices(), devices);
      auto net = two_layers();
      net->to(job.devices());
      DistributedDataParallel ddp(*net);
      EXPECT_EQ(&ddp.communicator(), job.communicator().get());
      job.close();
      EXPECT_EQ(find_job(devices), nullptr);
    });
  }
  ranks.clear();
  Runtime alone({.cpu_devices = 1});
  auto net = two_layers();
  EXPECT_ERROR((DistributedDataParallel<>{*net}),
               "distributed data parallel: the model is on [cpu:0], which belong to no Job");
}

TEST(Places, DataParallelTakesTheModels) {
  Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1});
  auto net = two_layers();
  DataParallel parallel(*net);
  EXPECT_EQ(parallel.devices(), runtime.devices());
  EXPECT_EQ(parallel(ones({4, 4})).shape(), (Shape{4, 2}));
  EXPECT_ERROR(DataParallel(*net, std::vector<Device>()), "data_parallel: no devices");
}

TEST(Places, AnOptimizerMayComeBeforeThePlace) {
  Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1});
  auto net = two_layers();
  Sgd sgd(net->parameters(), {.lr = 0.1, .momentum = 0.9});
  net->to({runtime.devices()[1]});
  mse_loss((*net)(ones({2, 4})), ones({2, 2})).backward();
  sgd.step();
  EXPECT_ERROR(net->to({runtime.devices()[0]}),
               "to: an optimizer has parameter 0.weight, and keeps its state on [cpu:1]");
}

// Targets of a loss, as inputs of a model.
TEST(Places, ALossTakesAHostTarget) {
  Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1});
  const Tensor x = ones({2, 3}, {.device = runtime.devices()[1]});
  EXPECT_EQ(mse_loss(x, zeros({2, 3})).item<float>(), 1);
  EXPECT_EQ(cross_entropy(x, zeros({2}, {.dtype = DType::i64})).device(), runtime.devices()[1]);
  EXPECT_ERROR(mse_loss(split_and_load(ones({2, 3}), runtime.devices()), zeros({2, 3})),
               "and the target is [2, 3] f32 on host, a whole tensor: take both from loader.on(net)");
}

}  // namespace
}  // namespace lockstep
