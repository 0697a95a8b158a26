// The lockstep property: the recipe decides the result of a training run to the last bit. The number of devices and
// processes, and their speeds, do not change it. Ranks are threads here, each with its own runtime.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/models/lenet.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/resnet.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/residual.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/split.h"
#include "lockstep/runtime/runtime.h"
#include "tests/logical_tensors.h"

namespace lockstep {
namespace {

std::unique_ptr<Sequential> residual_net() {
  auto net = std::make_unique<Sequential>();
  net->append<Conv2d>(ConvLayerOptions{.out_channels = 16, .kernel_size = 3, .padding = 1});
  net->append<BatchNorm2d>().append<ReLU>();
  net->append<Residual>(ResidualOptions{.channels = 16});
  net->append<Residual>(ResidualOptions{.channels = 32, .stride = 2, .project = true});
  net->append<GlobalAvgPool2d>().append<Flatten>().append<Linear>(LinearOptions{.out_features = 10});
  return net;
}

std::unique_ptr<Sequential> synchronized_residual_net() {
  auto net = residual_net();
  convert_sync_batchnorm(*net);
  return net;
}

std::unique_ptr<Sequential> dropout_net() {
  auto net = std::make_unique<Sequential>();
  net->append<Flatten>().append<Dropout>(0.2).append<Linear>(LinearOptions{.out_features = 64});
  net->append<ReLU>().append<Dropout>(0.5).append<Linear>(LinearOptions{.out_features = 10});
  return net;
}

struct Recipe {
  std::string name;
  std::function<std::unique_ptr<Sequential>()> net;
  std::int64_t pixels = 28;
  // f16: with a loss scaler.
  DType dtype = DType::f32;
  LossScalerOptions scaling = {};
  DType gradients = DType::f32;
  int shards = 8;
  int threads = 1;
  bool adam = false;
  double clip_norm = 0;
  // backward() calls before each step.
  int micro_batches = 1;
  // All but the last of them without synchronizing.
  bool no_sync = false;
  // Samples of each micro-batch: over 8 shards 40 are even, 21 leave the last one without samples, 3 leave
  // five.
  std::vector<std::int64_t> batches = {40, 21, 40, 3};
  std::uint64_t seed = 1;
  // So many of the first parameters stay as they are: frozen, or left out of the optimizer.
  std::ptrdiff_t untrained = 0;
  bool frozen = false;
};
void PrintTo(const Recipe& recipe, std::ostream* os) { *os << recipe.name; }

struct Arrangement {
  int devices;  // of each rank
  bool serial = false;
  int cores_per_device = 0;
  int ranks = 1;
  // Shards go to other devices and ranks before each step.
  bool moves = false;
};

struct Outcome {
  std::vector<double> losses;
  std::vector<float> scales;  // of the loss, at each step
  std::string weights;
  bool operator==(const Outcome&) const = default;
};

// No step waits for another: whatever order the devices find is the one that is tested. Without a group: the only rank.
Outcome train_rank(const Recipe& recipe, Arrangement layout, std::shared_ptr<ProcessGroup> group) {
  Runtime runtime({.cpu_devices = layout.devices,
                   .cores_per_device = layout.cores_per_device,
                   .threads_per_shard = recipe.threads,
                   .serial = layout.serial,
                   .seed = recipe.seed});
  auto net = recipe.net();
  net->initialize(Xavier{}, runtime.devices(), {.seed = recipe.seed});
  std::vector<Parameter> trained = net->parameters();
  if (recipe.frozen) {
    for (std::ptrdiff_t i = 0; i < recipe.untrained; ++i) trained.at(static_cast<std::size_t>(i)).set_trainable(false);
  } else {
    trained.erase(trained.begin(), trained.begin() + recipe.untrained);
  }
  std::unique_ptr<DistributedModel> ddp;
  if (group) {
    settle_shapes(*net, Tensor::host({1, 1, recipe.pixels, recipe.pixels}), runtime.devices()[0]);
    // Small buckets: there are several of them even in small nets.
    ddp = std::make_unique<DistributedModel>(*net, runtime.devices(), std::make_shared<Communicator>(runtime, group),
                                             DistributedOptions{.split = {.shards = recipe.shards},
                                                                .gradients = recipe.gradients,
                                                                .buckets = {.bytes = 20000, .first_bytes = 1000}});
  } else {
    for (const Parameter& p : net->parameters()) p.gradient_state().set_dtype(recipe.gradients);
  }
  std::unique_ptr<Optimizer> optimizer;
  if (recipe.adam) {
    optimizer = std::make_unique<AdamW>(trained, AdamWOptions{.lr = 1e-2, .weight_decay = 1e-2});
  } else {
    optimizer = std::make_unique<Sgd>(trained, SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4});
  }
  std::optional<LossScaler> scaler;
  if (recipe.dtype == DType::f16) scaler.emplace(runtime.devices(), recipe.scaling);
  testing::Random random(recipe.seed);
  std::mt19937_64 moves(recipe.seed);  // the same on all ranks
  std::vector<double> weights(static_cast<std::size_t>(layout.moves ? layout.devices * layout.ranks : 0));
  std::vector<Tensor> losses;
  Outcome outcome;
  std::vector<Tensor> scales;
  for (std::size_t i = 0; i < recipe.batches.size(); ++i) {
    const std::int64_t n = recipe.batches[i];
    std::vector<std::int64_t> labels(static_cast<std::size_t>(n));
    for (std::int64_t& label : labels) label = random.integer(0, 9);
    Example batch{random.floats({n, 1, recipe.pixels, recipe.pixels}), Tensor::from(labels, {n})};
    if (layout.moves && i % static_cast<std::size_t>(recipe.micro_batches) == 0) {
      for (double& weight : weights) weight = 1 + static_cast<double>(moves() % 8);
      if (ddp) ddp->set_shares(ddp->shares().with(weighted_shares(recipe.shards, weights)));
    }
    Tensor x, y;
    if (ddp) {
      auto [first, last] = ddp->rows_of(n);
      for (Tensor& part : batch) part = part.narrow(0, first, last - first);
      auto parts = ddp->split(batch, n);
      x = parts[0];
      y = parts[1];
    } else {
      x = split_and_load(batch[0], runtime.devices(), {.shards = recipe.shards, .balance = {.weights = weights}});
      y = split_and_load(batch[1], runtime.devices(), {.shards = recipe.shards, .balance = {.weights = weights}});
    }
    x = x.to(recipe.dtype);
    bool last = (i + 1) % static_cast<std::size_t>(recipe.micro_batches) == 0;
    Tensor loss = cross_entropy((*net)(x), y);
    loss.backward({.scales = scaler ? scaler->scales() : std::span<const Array>(), .sync = last || !recipe.no_sync});
    losses.push_back(loss.detach());
    if (!last) continue;
    if (scaler) {
      scales.push_back(scaler->current());
      optimizer->unscale(*scaler, recipe.clip_norm);
    } else if (recipe.clip_norm > 0) {
      optimizer->clip_grad_norm(recipe.clip_norm);
    }
    optimizer->step();
  }
  for (const Tensor& loss : losses) outcome.losses.push_back(loss.item<float>());
  for (const Tensor& scale : scales) outcome.scales.push_back(scale.item<float>());
  outcome.weights = weights_sha256(*net);
  return outcome;
}

Outcome train(const Recipe& recipe, Arrangement layout) {
  if (layout.ranks == 1) return train_rank(recipe, layout, nullptr);
  auto groups = make_local_groups(layout.ranks);
  std::vector<Outcome> outcomes(groups.size());
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    ranks.emplace_back([&, r] {
      try {
        outcomes[r] = train_rank(recipe, layout, groups[r]);
      } catch (const std::exception& error) {
        groups[r]->abort(error.what());
        ADD_FAILURE() << "rank " << r << ": " << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome, outcomes[0]);
  return outcomes[0];
}

class Lockstep : public ::testing::TestWithParam<Recipe> {};

TEST_P(Lockstep, TheBitsDoNotDependOnDevices) {
  const Outcome one = train(GetParam(), {.devices = 1});
  for (const Arrangement layout :
       {Arrangement{.devices = 1, .serial = true}, Arrangement{.devices = 2}, Arrangement{.devices = 3},
        Arrangement{.devices = 3, .serial = true}, Arrangement{.devices = 8},
        Arrangement{.devices = 2, .cores_per_device = 1}, Arrangement{.devices = 1, .cores_per_device = 1},
        Arrangement{.devices = 1, .ranks = 2}, Arrangement{.devices = 1, .ranks = 3},
        Arrangement{.devices = 2, .ranks = 2}, Arrangement{.devices = 1, .serial = true, .ranks = 2},
        Arrangement{.devices = 1, .ranks = 4}, Arrangement{.devices = 1, .ranks = 5},
        Arrangement{.devices = 3, .moves = true}, Arrangement{.devices = 1, .ranks = 3, .moves = true},
        Arrangement{.devices = 2, .ranks = 2, .moves = true}}) {
    SCOPED_TRACE(fmt::format("{} ranks of {} devices, {}, {}", layout.ranks, layout.devices,
                             layout.serial ? "serial" : "threads", layout.moves ? "shards move" : "shards stay"));
    const Outcome other = train(GetParam(), layout);
    EXPECT_EQ(other.losses, one.losses);
    EXPECT_EQ(other.scales, one.scales);
    EXPECT_EQ(other.weights, one.weights);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, Lockstep,
    ::testing::Values(
        Recipe{.name = "Mlp", .net = [] { return mlp(); }},
        Recipe{.name = "MlpBf16", .net = [] { return mlp(); }, .dtype = DType::bf16},
        // The first steps overflow and are left out.
        Recipe{.name = "MlpF16ClippedOverflowing",
               .net = [] { return mlp(); },
               .dtype = DType::f16,
               .scaling = {.initial_scale = 0x1p24, .growth_interval = 2},
               .clip_norm = 0.1,
               .batches = {40, 40, 40, 40, 40, 21}},
        Recipe{.name = "MlpAdamWFiveShards", .net = [] { return mlp(); }, .shards = 5, .adam = true},
        Recipe{.name = "Lenet", .net = [] { return lenet(); }},
        Recipe{.name = "LenetBf16", .net = [] { return lenet(); }, .dtype = DType::bf16},
        Recipe{.name = "LenetF16", .net = [] { return lenet(); }, .dtype = DType::f16},
        Recipe{.name = "LenetTwoThreadsPerShard", .net = [] { return lenet(); }, .threads = 2},
        Recipe{.name = "LenetClipped", .net = [] { return lenet(); }, .clip_norm = 0.1},
        Recipe{.name = "LenetAccumulated", .net = [] { return lenet(); }, .micro_batches = 2},
        // A first micro-batch that leaves shards empty, which the second one has.
        Recipe{.name = "LenetAccumulatedUneven",
               .net = [] { return lenet(); },
               .micro_batches = 2,
               .batches = {3, 40, 21, 40}},
        Recipe{.name = "LenetAccumulatedNoSync", .net = [] { return lenet(); }, .micro_batches = 2, .no_sync = true},
        Recipe{.name = "LenetAccumulatedClippedAdamW",
               .net = [] { return lenet(); },
               .adam = true,
               .clip_norm = 0.1,
               .micro_batches = 2},
        Recipe{.name = "MlpRoundedGradientsFiveShards",
               .net = [] { return mlp(); },
               .gradients = DType::bf16,
               .shards = 5},
        Recipe{.name = "LenetRoundedGradientsAccumulated",
               .net = [] { return lenet(); },
               .gradients = DType::bf16,
               .clip_norm = 0.1,
               .micro_batches = 2},
        Recipe{.name = "LenetRoundedGradientsNoSync",
               .net = [] { return lenet(); },
               .gradients = DType::bf16,
               .micro_batches = 2,
               .no_sync = true,
               .batches = {3, 40, 21, 40}},
        Recipe{.name = "LenetFineTuned", .net = [] { return lenet(); }, .untrained = 4, .frozen = true},
        Recipe{.name = "LenetFineTunedLeftOut", .net = [] { return lenet(); }, .clip_norm = 0.1, .untrained = 4},
        // Up to the middle of the first residual block, after the first batch norm's scale.
        Recipe{.name = "ResidualFineTuned",
               .net = residual_net,
               .pixels = 10,
               .micro_batches = 2,
               .untrained = 4,
               .frozen = true},
        Recipe{.name = "ResidualSynchronizedFineTuned",
               .net = synchronized_residual_net,
               .pixels = 10,
               .untrained = 4,
               .frozen = true},
        Recipe{.name = "Dropout", .net = dropout_net, .pixels = 12},
        Recipe{.name = "DropoutAccumulated", .net = dropout_net, .pixels = 12, .micro_batches = 2},
        Recipe{.name = "Residual", .net = residual_net, .pixels = 10},
        Recipe{.name = "ResidualBf16", .net = residual_net, .pixels = 10, .dtype = DType::bf16},
        Recipe{.name = "ResidualF16Accumulated",
               .net = residual_net,
               .pixels = 10,
               .dtype = DType::f16,
               .micro_batches = 2},
        Recipe{.name = "ResidualSynchronized", .net = synchronized_residual_net, .pixels = 10},
        Recipe{
            .name = "ResidualSynchronizedBf16", .net = synchronized_residual_net, .pixels = 10, .dtype = DType::bf16}),
    [](const auto& info) { return info.param.name; });

// Every kernel that ResNet-18 chooses for its sizes.
TEST(LockstepResnet18, TheBitsDoNotDependOnDevices) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Recipe recipe{.name = "Resnet18",
                        .net = [] { return resnet18(); },
                        .pixels = 14,
                        .dtype = dtype,
                        .shards = 4,
                        .batches = {7, 8}};
    const Outcome one = train(recipe, {.devices = 1});
    EXPECT_EQ(train(recipe, {.devices = 2}), one) << name(dtype);
    EXPECT_EQ(train(recipe, {.devices = 3}), one) << name(dtype);
    EXPECT_EQ(train(recipe, {.devices = 1, .ranks = 2}), one) << name(dtype);
  }
}

// One sample for each shard, on as many devices and ranks as there may be.
TEST(LockstepResnet18, TheBitsOfEightShardsDoNotDependOnDevicesAndRanks) {
  const Recipe recipe{.name = "Resnet18", .net = [] { return resnet18(); }, .pixels = 14, .batches = {8, 5}};
  const Outcome one = train(recipe, {.devices = 1});
  EXPECT_EQ(train(recipe, {.devices = 8}), one);
  EXPECT_EQ(train(recipe, {.devices = 1, .ranks = 4}), one);
  EXPECT_EQ(train(recipe, {.devices = 2, .ranks = 2}), one);
}

// The scale falls until gradients are finite, and rises again: what the recipe above of that name is about.
TEST(LockstepF16, StepsThatOverflowAreLeftOut) {
  const Recipe recipe{.name = "Mlp",
                      .net = [] { return mlp(); },
                      .dtype = DType::f16,
                      .scaling = {.initial_scale = 0x1p24, .growth_interval = 2},
                      .batches = {40, 40, 40, 40, 40, 21}};
  const Outcome outcome = train(recipe, {.devices = 2});
  // A gradient of 0.9 / 40 times 2^22 is more than 65504.
  EXPECT_EQ(outcome.scales, (std::vector<float>{0x1p24f, 0x1p23f, 0x1p22f, 0x1p21f, 0x1p21f, 0x1p22f}));
  EXPECT_EQ(outcome.losses.size(), 6U);
  for (const double loss : outcome.losses) EXPECT_TRUE(std::isfinite(loss));
}

// Frozen or left out: the others get the same gradients.
TEST(LockstepFineTuning, FrozenIsAsGoodAsLeftOut) {
  Recipe recipe{.name = "Residual", .net = residual_net, .pixels = 10, .batches = {40, 21}, .untrained = 4};
  const Outcome left_out = train(recipe, {.devices = 2});
  recipe.frozen = true;
  EXPECT_EQ(train(recipe, {.devices = 2}), left_out);
  recipe.untrained = 0;
  EXPECT_NE(train(recipe, {.devices = 2}), left_out);
}

// The hash is able to differ: each part of the recipe changes the weights.
TEST(LockstepRecipe, DecidesTheBits) {
  const Recipe recipe{.name = "Base", .net = dropout_net, .pixels = 12, .batches = {40, 40}};
  Recipe seed = recipe, shards = recipe, clipped = recipe, accumulated = recipe, bf16 = recipe, f16 = recipe,
         rounded = recipe;
  seed.seed = 2;
  shards.shards = 4;
  clipped.clip_norm = 0.1;
  accumulated.micro_batches = 2;
  bf16.dtype = DType::bf16;
  f16.dtype = DType::f16;
  rounded.gradients = DType::bf16;
  const std::string base = train(recipe, {.devices = 2}).weights;
  for (const Recipe& other : {seed, shards, clipped, accumulated, bf16, f16, rounded}) {
    EXPECT_NE(train(other, {.devices = 2}).weights, base);
  }
}

}  // namespace
}  // namespace lockstep
