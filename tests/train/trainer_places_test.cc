// Trainer and evaluate() take the devices of the model and the ranks of the Job.
#include <gtest/gtest.h>

#include <thread>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/job.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

Sequential small_net() { return Sequential(Flatten(), Linear(36, 8), ReLU(), Linear(8, 5)); }

TrainerOptions short_run() { return {.split = {.shards = 4}, .batch_size = 10, .epochs = 2}; }

struct Trained {
  std::string weights, init;
};

Trained train(Sequential net, const TrainerOptions& options) {
  Sgd sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  Trainer trainer(net, sgd, random_pictures(46, 1), random_pictures(17, 2), options);
  trainer.train();
  const auto init = std::ranges::find(trainer.recipe(), "init", [](const auto& entry) { return entry.first; });
  return {weights_sha256(net), init == trainer.recipe().end() ? "" : init->second.json()};
}

std::string alone() {
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  return train(small_net(), short_run()).weights;
}

TEST(TrainerPlaces, TheModelKnowsItsDevices) {
  const std::string expected = alone();
  Runtime runtime({.cpu_devices = 3, .threads_per_shard = 1});
  const Trained plain = train(small_net(), short_run());
  EXPECT_EQ(plain.weights, expected);
  EXPECT_EQ(plain.init, "\"default\"");
  TrainerOptions named = short_run();
  named.recipe = {{"init", "of the network"}};
  EXPECT_EQ(train(small_net(), named).init, "\"of the network\"");
  Sequential initialized = small_net();
  initialized.initialize(Xavier{});
  EXPECT_EQ(train(std::move(initialized), short_run()).init, "");
  // What is said twice must agree.
  Sequential net = small_net();
  net.to({runtime.devices()[0]});
  TrainerOptions elsewhere = short_run();
  elsewhere.devices = {runtime.devices()[1]};
  EXPECT_ERROR(train(std::move(net), elsewhere), "trainer: the model is on [cpu:0], expected [cpu:1]");
}

// Two models of one program that begin by default have different values, so their runs have different recipes.
TEST(TrainerPlaces, TheNumberOfAModelIsInTheRecipe) {
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  const Trained first = train(small_net(), short_run()), second = train(small_net(), short_run());
  EXPECT_NE(first.weights, second.weights);
  EXPECT_EQ(first.init, "\"default\"");
  EXPECT_EQ(second.init, fmt::format("\"default {}\"", small_net().parameters().size()));
  // Also if the second one is used first.
  Runtime other({.cpu_devices = 1, .threads_per_shard = 1});
  Sequential a = small_net(), b = small_net();
  for (Sequential* net : {&a, &b}) net->to(other.devices());
  Sgd sgd_a(a.parameters(), {.lr = 0.1, .momentum = 0.9}), sgd_b(b.parameters(), {.lr = 0.1, .momentum = 0.9});
  Trainer trainer_a(a, sgd_a, random_pictures(46, 1), random_pictures(17, 2), short_run()),
      trainer_b(b, sgd_b, random_pictures(46, 1), random_pictures(17, 2), short_run());
  trainer_b.train();
  trainer_a.train();
  EXPECT_EQ(weights_sha256(a), first.weights);
  EXPECT_EQ(weights_sha256(b), second.weights);
}

// The recipe of a second stage depends neither on the number of ranks nor on whether the first stage was resumed.
TEST(TrainerPlaces, ASecondStageHasOneRecipe) {
  const auto second_stage = [](const std::vector<Device>& devices, const std::filesystem::path& folder) {
    Sequential net = small_net();
    net.to(devices);
    Sgd sgd(net.parameters(), {.lr = 0.1});
    TrainerOptions options = short_run();
    options.save_folder = folder;
    options.resume = true;
    Trainer(net, sgd, random_pictures(46, 1), random_pictures(17, 2), options).train();
    options.save_folder = "";
    options.resume = false;
    return recipe_hash(Trainer(net, sgd, random_pictures(46, 3), random_pictures(17, 2), options).recipe());
  };
  TemporaryFolder folder;
  const auto alone = [&] {
    Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
    return second_stage(runtime.devices(), folder.path());
  };
  const std::string expected = alone();
  EXPECT_EQ(alone(), expected);  // continues the first stage, which is complete
  std::vector<std::string> hashes(2);
  const auto groups = make_local_groups(2);
  TemporaryFolder other;
  {
    std::vector<std::jthread> ranks;
    for (std::size_t r = 0; r < 2; ++r) {
      ranks.emplace_back([&, r] {
        RuntimeOptions options{.cpu_devices = 1, .threads_per_shard = 1};
        Job job(groups[r], std::make_unique<Runtime>(options));
        hashes[r] = second_stage(job.devices(), other.path());
        job.close();
      });
    }
  }
  EXPECT_EQ(hashes, std::vector(2, expected));
}

// The order of the examples decides the bits: another seed of a sampler is another recipe.
TEST(TrainerPlaces, ASamplerIsInTheRecipe) {
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  const auto recipe_of = [](std::shared_ptr<const Sampler> sampler) {
    Sequential net = small_net();
    net.initialize(Xavier{});
    Sgd sgd(net.parameters(), {.lr = 0.1});
    TrainerOptions options = short_run();
    options.sampler = std::move(sampler);
    Trainer trainer(net, sgd, random_pictures(46, 1), random_pictures(17, 2), options);
    trainer.train();
    return std::pair(recipe_hash(trainer.recipe()), weights_sha256(net));
  };
  const auto weighted = [](std::uint64_t seed) {
    return std::make_shared<WeightedRandomSampler>(std::vector<double>(46, 1), 30,
                                                   WeightedRandomSamplerOptions{.seed = seed});
  };
  const auto plain = recipe_of(nullptr), first = recipe_of(weighted(1)), second = recipe_of(weighted(2));
  EXPECT_EQ(recipe_of(weighted(1)), first);
  EXPECT_NE(first.second, second.second);
  EXPECT_NE(first.first, second.first);
  EXPECT_NE(first.first, plain.first);
}

TEST(TrainerPlaces, TheSeedIsThatOfASamplerWithoutOne) {
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  const auto weights = [](std::optional<std::uint64_t> seed, bool shuffles, bool drop_last) {
    Sequential net = small_net();
    net.initialize(Xavier{});
    Sgd sgd(net.parameters(), {.lr = 0.1});
    TrainerOptions options = short_run();
    options.drop_last = drop_last;
    if (!shuffles) options.sampler = std::make_shared<RandomSampler>(46);
    options.seed = seed;
    Trainer trainer(net, sgd, random_pictures(46, 1), random_pictures(17, 2), options);
    trainer.train();
    return std::pair(weights_sha256(net), shuffles ? "" : trainer.recipe().at("sampler").json());
  };
  for (const bool drop_last : {false, true}) {
    for (const auto seed : std::vector<std::optional<std::uint64_t>>{std::nullopt, 3, 4}) {
      EXPECT_EQ(weights(seed, false, drop_last).first, weights(seed, true, drop_last).first);
    }
    EXPECT_NE(weights(3, false, drop_last).second, weights(4, false, drop_last).second);
  }
}

TEST(TrainerPlaces, TheJobOfTheDevicesIsJoined) {
  const std::string expected = alone();
  std::vector<std::string> joined(2), each(2);
  const auto groups = make_local_groups(2);
  {
    std::vector<std::jthread> ranks;
    for (std::size_t r = 0; r < 2; ++r) {
      ranks.emplace_back([&, r] {
        RuntimeOptions options{.cpu_devices = 1, .threads_per_shard = 1};
        Job job(groups[r], std::make_unique<Runtime>(options));
        Sequential net = small_net(), own = small_net();
        net.to(job.devices());
        own.to(job.devices());
        joined[r] = train(std::move(net), short_run()).weights;
        // A run of one rank alone would wait for the other one forever if it joined.
        TrainerOptions lonely = short_run();
        lonely.communicator = nullptr;
        if (r == 0) each[r] = train(std::move(own), lonely).weights;
        job.close();
      });
    }
  }
  EXPECT_EQ(joined, std::vector(2, expected));
  EXPECT_NE(each[0], expected);  // the second model of its Runtime begins with other values
  EXPECT_NE(each[0], "");
}

TEST(TrainerPlaces, EvaluationTakesTheModelsDevices) {
  Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1});
  Sequential net = small_net();
  DataLoader loader(random_pictures(17, 2), {.batch_size = 5});
  const Accuracy found = evaluate(net, loader);
  EXPECT_EQ(found.total, 17);
  EXPECT_EQ(found.correct, evaluate(net, loader, {.devices = {runtime.devices()[1]}}).correct);
  EXPECT_EQ(evaluate(net, loader, {metrics::accuracy()})[0].sum, static_cast<double>(found.correct));
  EXPECT_EQ(static_cast<std::int64_t>(misclassified(net, loader).size()), found.total - found.correct);
}

TEST(TrainerPlaces, ALossScalerTakesTheOptimizersDevices) {
  Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1});
  Sequential net = small_net();
  Sgd sgd(net.parameters(), {.lr = 0.1});
  EXPECT_EQ(LossScaler(sgd).scales().size(), 2u);
}

}  // namespace
}  // namespace lockstep
