#include "lockstep/checkpoint/training_checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/autograd/functions.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

const Recipe kRecipe = {{"seed", 3}, {"learning_rate", 0.1}, {"model", "linear"}};

// A model with an optimizer that has a memory.
struct Job {
  explicit Job(int devices = 1, std::uint64_t seed = 0) : runtime({.cpu_devices = devices}) {
    net.initialize(Normal{1}, runtime.devices(), {.seed = seed});
  }
  void step() {
    const Device device = runtime.devices()[0];
    mse_loss(net(Tensor(testing::Random(1).floats({4, 3})).to(device)),
             Tensor(testing::Random(2).floats({4, 2})).to(device))
        .backward();
    optimizer.step();
  }
  ResumedRun load(const std::filesystem::path& folder, const Recipe& recipe = kRecipe) {
    return load_checkpoint(folder, net, optimizer, recipe);
  }
  void save(const std::filesystem::path& folder, std::int64_t step) {
    save_checkpoint(folder, net, optimizer, {.step = step}, kRecipe);
  }

  Runtime runtime;
  Linear net{{.in_features = 3, .out_features = 2}};
  AdamW optimizer{net.parameters(), {.lr = 0.1}};
};

TEST(TrainingCheckpoint, HoldsEverythingThatTheNextStepNeeds) {
  TemporaryFolder folder;
  Job job;
  job.step();
  job.step();
  const TrainingPosition position{
      .step = 2,
      .epoch = 1,
      .batch = 1,
      .loss_sum = 1.0 / 3,
      .samples = 8,
      .seconds = 0.1,
      .loss_scaler = LossScalerState{.scale = 4096, .good_steps = 17},
      .epochs = {{1, 0.7, 1.0 / 7, {5, 6}, {{.name = "perplexity", .value = 1.0 / 3}, {.name = "odd", .value = NAN}}},
                 {.epoch = 2, .seconds = 1e-9, .data_seconds = 1e-10}}};
  save_checkpoint(folder.path(), job.net, job.optimizer, position, kRecipe);

  Job other(2, 9);  // other start weights, on other devices
  const ResumedRun run = other.load(folder.path());
  EXPECT_EQ(run.path, folder / "step-00000002");
  EXPECT_TRUE(run.damaged.empty());
  EXPECT_EQ(run.position.step, 2);
  EXPECT_EQ(run.position.epoch, 1);
  EXPECT_EQ(run.position.batch, 1);
  EXPECT_EQ(run.position.loss_sum, 1.0 / 3);
  EXPECT_EQ(run.position.samples, 8);
  EXPECT_EQ(run.position.seconds, 0.1);
  ASSERT_TRUE(run.position.loss_scaler.has_value());
  EXPECT_EQ(run.position.loss_scaler->scale, 4096);
  EXPECT_EQ(run.position.loss_scaler->good_steps, 17);
  ASSERT_EQ(run.position.epochs.size(), 2u);
  EXPECT_EQ(run.position.epochs[0].epoch, 1);
  EXPECT_EQ(run.position.epochs[0].seconds, 0.7);
  EXPECT_EQ(run.position.epochs[0].train_loss, 1.0 / 7);
  EXPECT_EQ(run.position.epochs[0].test.correct, 5);
  EXPECT_EQ(run.position.epochs[0].test.total, 6);
  ASSERT_EQ(run.position.epochs[0].metrics.size(), 2u);
  EXPECT_EQ(run.position.epochs[0].metrics[0].name, "perplexity");
  EXPECT_EQ(run.position.epochs[0].metrics[0].value, 1.0 / 3);
  EXPECT_TRUE(std::isnan(run.position.epochs[0].metrics[1].value));
  EXPECT_TRUE(run.position.epochs[1].metrics.empty());
  EXPECT_EQ(run.position.epochs[1].epoch, 2);
  EXPECT_EQ(run.position.epochs[1].data_seconds, 1e-10);
  EXPECT_EQ(other.optimizer.steps(), 2);
  EXPECT_EQ(weights_sha256(other.net), weights_sha256(job.net));
  // Moments and their count are there, too: the next steps are the same.
  for (int i = 0; i < 3; ++i) {
    job.step();
    other.step();
    EXPECT_EQ(weights_sha256(other.net), weights_sha256(job.net));
  }
}

// The step's gradients overflow, its loss does not.
TEST(TrainingCheckpoint, OneThatIsNotFiniteIsNotWritten) {
  TemporaryFolder folder;
  Job job;
  job.step();
  job.save(folder.path(), 1);
  const Tensor weight = job.net.weight.host_data();
  // A second moment that overflows where the weight does not.
  Tensor loss = mse_loss(job.net(Tensor(testing::Random(1).floats({4, 3})).to(job.runtime.devices()[0])),
                         Tensor(testing::Random(2).floats({4, 2})).to(job.runtime.devices()[0]));
  (loss * 1e30).backward();
  job.optimizer.step();
  EXPECT_ERROR(job.save(folder.path(), 2), "checkpoint: step 2: optimizer: exp_avg_sq.weight holds inf at element 0");
  std::vector<float> ruined = weight.to_vector<float>();
  ruined[4] = NAN;
  job.net.weight.set_data(Tensor::from(ruined, {2, 3}));
  EXPECT_ERROR(job.save(folder.path(), 2), "checkpoint: step 2: weight holds nan at element 4");
  job.net.weight.set_data(weight);
  EXPECT_ERROR(save_checkpoint(folder.path(), job.net, Sgd(job.net.parameters(), {.lr = 0.1}),
                               {.step = 2, .loss_sum = NAN}, kRecipe),
               "checkpoint: loss_sum is nan, expected a finite number");
  EXPECT_EQ(folder.entries(), 1);
  EXPECT_EQ(Job().load(folder.path()).position.step, 1);
}

// Masks go on where they were, also where a second optimizer has stepped, of which this checkpoint knows nothing.
TEST(TrainingCheckpoint, HoldsWhereRandomOperationsAre) {
  const auto mask = [](Job& job) {
    return dropout(Tensor::from(std::vector<float>(64, 1.0F), {64}).to(job.runtime.devices()[0]), 0.5)
        .to_vector<float>();
  };
  TemporaryFolder folder;
  Job job;
  Parameter other(ParameterOptions{.shape = {2}});
  other.initialize("other", job.runtime.devices(), Constant{1}, 0);
  Sgd second({other}, {.lr = 0.1});
  for (int i = 0; i < 2; ++i) job.step(), second.step();
  job.save(folder.path(), 2);
  EXPECT_EQ(job.runtime.random().step(), 4U);
  Job resumed;
  resumed.step();
  resumed.load(folder.path());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(mask(resumed), mask(job));
    job.step();
    resumed.step();
  }
}

// A checkpoint in `folder`, with another state.json, in folder/changed.
void change_state(const TemporaryFolder& folder, const std::string& state, std::int64_t step = 1) {
  const std::string name_of_step = fmt::format("step-{:08}", step);
  const Checkpoint good = open_checkpoint(folder / name_of_step);
  CheckpointWriter writer(folder / "changed", step);
  for (const std::string& name : good.files) {
    writer.add_file(name, name == "state.json" ? state : folder.read(name_of_step + "/" + name));
  }
  writer.publish();
}

// The moments have the age that they have, wherever the run began.
TEST(TrainingCheckpoint, HoldsTheStepsOfAnOptimizerThatWasUsedBefore) {
  TemporaryFolder folder;
  Job job;
  for (int i = 0; i < 5; ++i) job.step();
  job.save(folder.path(), 2);
  Job other(1, 9);
  EXPECT_EQ(other.load(folder.path()).position.step, 2);
  EXPECT_EQ(other.optimizer.steps(), 5);
  job.step();
  other.step();
  EXPECT_EQ(weights_sha256(other.net), weights_sha256(job.net));
  // Older files have no such number.
  nlohmann::json state = nlohmann::json::parse(folder.read("step-00000002/state.json"));
  state.erase("optimizer_steps");
  change_state(folder, state.dump(), 2);
  other.load(folder / "changed");
  EXPECT_EQ(other.optimizer.steps(), 2);
}

// All is checked before anything changes.
TEST(TrainingCheckpoint, ARefusedPartLeavesTheOthersAsTheyAre) {
  TemporaryFolder folder;
  Job job;
  job.step();
  job.save(folder.path(), 1);
  Job other(1, 9);
  const std::string before = weights_sha256(other.net);
  EXPECT_ERROR(load_checkpoint(folder.path(), other.net, other.optimizer, kRecipe,
                               [](const ResumedRun& run) { fail("step {} refused", run.position.step); }),
               "step 1 refused");
  EXPECT_EQ(weights_sha256(other.net), before);
  EXPECT_EQ(other.optimizer.steps(), 0);
  Sgd sgd(other.net.parameters(), {.lr = 0.1, .momentum = 0.9});
  EXPECT_ERROR(load_checkpoint(folder.path(), other.net, sgd, kRecipe),
               "optimizer.safetensors: optimizer: the state has exp_avg.bias, which belongs to none");
  EXPECT_EQ(weights_sha256(other.net), before);
  // A shape that is not known yet may have any size.
  Linear unknown({.out_features = 2});
  unknown.initialize(Normal{1}, other.runtime.devices());
  AdamW adam(unknown.parameters(), {.lr = 0.1});
  load_checkpoint(folder.path(), unknown, adam, kRecipe);
  EXPECT_EQ(weights_sha256(unknown), weights_sha256(job.net));
}

TEST(TrainingCheckpoint, TheNewestOneIsTakenOrTheOneAskedFor) {
  TemporaryFolder folder;
  Job job;
  for (const std::int64_t step : {1, 2, 3}) {
    job.step();
    job.save(folder.path(), step);
  }
  EXPECT_EQ(folder.entries(), 2);  // older ones make room
  EXPECT_EQ(Job().load(folder.path()).position.step, 3);
  EXPECT_EQ(Job().load(folder / "step-00000002").position.step, 2);
}

TEST(TrainingCheckpoint, ARefusedOneChangesNothing) {
  TemporaryFolder folder;
  Job job;
  job.step();
  job.save(folder.path(), 1);
  Job other(1, 9);
  const std::string before = weights_sha256(other.net);
  auto refused = [&](const Recipe& recipe, const std::string& why) {
    EXPECT_ERROR(other.load(folder.path(), recipe), why);
    EXPECT_ERROR(other.load(folder.path(), recipe), (folder / "step-00000001").string());
    EXPECT_EQ(weights_sha256(other.net), before);
    EXPECT_EQ(other.optimizer.steps(), 0);
  };
  Recipe recipe = kRecipe;
  recipe.set("seed", 4);
  refused(recipe, "was made with seed 3; this run has seed 4");
  recipe = kRecipe;
  recipe.set("learning_rate", std::nextafter(0.1, 1));
  refused(recipe, "was made with learning_rate 0.1; this run has learning_rate 0.10000000000000002");
  recipe = kRecipe;
  recipe.set("momentum", 0.9);
  refused(recipe, "was made with no momentum; this run has momentum 0.9");
  recipe = kRecipe;
  recipe.erase("model");
  refused(recipe, "was made with model \"linear\"; this run has no model");
  recipe.set("seed", 4);
  refused(recipe, "was made with seed 3, model \"linear\"; this run has seed 4, no model");
  EXPECT_EQ(read_recipe(folder.path()), kRecipe);

  EXPECT_ERROR(other.load(folder / "none"), "there is no valid checkpoint to resume from");
  EXPECT_EQ(weights_sha256(other.net), before);
}

TEST(TrainingCheckpoint, OfAnOlderVersionMayLackNames) {
  TemporaryFolder folder;
  Job job;
  job.step();
  job.save(folder.path(), 1);
  nlohmann::json state = nlohmann::json::parse(folder.read("step-00000001/state.json"));
  state.erase("version");
  change_state(folder, state.dump());
  EXPECT_TRUE(job.load(folder / "changed").unrecorded.empty());
  Recipe recipe = kRecipe;
  recipe.set("data", "5f");
  recipe.set("threads_per_shard", 2);
  EXPECT_EQ(job.load(folder / "changed", recipe).unrecorded, (std::vector<std::string>{"data", "threads_per_shard"}));
  recipe.set("dropout", 0.9);  // which it had
  EXPECT_ERROR(job.load(folder / "changed", recipe), "made with no dropout; this run has dropout 0.9");
  recipe.erase("dropout");
  // A file of today has all names, and one of version 2 those of its time.
  EXPECT_ERROR(job.load(folder / "step-00000001", recipe),
               "made with no data, no threads_per_shard; this run has data \"5f\"");
  state["version"] = 2;
  change_state(folder, state.dump());
  EXPECT_ERROR(job.load(folder / "changed", recipe), "made with no data, no threads_per_shard; this run has data");
  recipe = kRecipe;
  recipe.set("nesterov", 1.0);
  EXPECT_EQ(job.load(folder / "changed", recipe).unrecorded, (std::vector<std::string>{"nesterov"}));
  EXPECT_ERROR(job.load(folder / "step-00000001", recipe), "made with no nesterov; this run has nesterov 1.0");
  state["version"] = 5;
  change_state(folder, state.dump());
  EXPECT_ERROR(job.load(folder / "changed"), "state.json: version is 5, expected at most 4");
}

// A recipe of one's own may not name the seed of dropout.
TEST(TrainingCheckpoint, HoldsTheSeedOfRandomOperations) {
  TemporaryFolder folder;
  Job job, other;
  job.step();
  job.save(folder.path(), 1);
  other.runtime.random().set_seed(7);
  const std::string before = weights_sha256(other.net);
  EXPECT_ERROR(other.load(folder.path()),
               "state.json: the random operations of the checkpoint have seed 0; this run's RuntimeOptions::seed is 7");
  EXPECT_EQ(weights_sha256(other.net), before);
  // Older versions did not save it.
  nlohmann::json state = nlohmann::json::parse(folder.read("step-00000001/state.json"));
  state.erase("random_seed");
  state["version"] = 3;
  change_state(folder, state.dump());
  EXPECT_EQ(other.load(folder / "changed").position.step, 1);
}

TEST(TrainingCheckpoint, IsNotCastToTheTypesOfAnotherModel) {
  TemporaryFolder folder;
  Job job;
  job.save(folder.path(), 1);
  Linear other({.in_features = 3, .out_features = 2});
  other.initialize(Normal{1}, job.runtime.devices());
  other.to(DType::f64);
  AdamW adamw(other.parameters(), {.lr = 0.1});
  EXPECT_ERROR(load_checkpoint(folder.path(), other, adamw, kRecipe),
               "weights.safetensors: weight is f32, expected f64");
}

// The folder is sound, what is in it is not what a run writes.
TEST(TrainingCheckpoint, ContentsThatMakeNoSenseAreErrors) {
  Job job;
  auto with_state = [&](const std::string& state) {
    TemporaryFolder folder;
    job.save(folder.path(), 1);
    change_state(folder, state);
    Job().load(folder / "changed");
  };
  const std::string recipe = R"("recipe": {"seed": 3, "learning_rate": 0.1, "model": "linear"})";
  const std::string rest = R"("epoch": 0, "batch": 0, "loss_sum": 0, "samples": 0, "seconds": 0)";
  // Also without the step of random operations, as before there was one.
  with_state(R"({"position": {"step": 1, )" + rest + "}, " + recipe + "}");
  EXPECT_ERROR(with_state(R"({"random_step": "1", "position": {"step": 1, )" + rest + "}, " + recipe + "}"),
               "state.json");
  EXPECT_ERROR(with_state("{"), "state.json");
  EXPECT_ERROR(with_state("[]"), "state.json");
  EXPECT_ERROR(with_state("{" + recipe + "}"), "position");
  EXPECT_ERROR(with_state(R"({"position": {"step": 1}, )" + recipe + "}"), "epoch");
  EXPECT_ERROR(with_state(R"({"position": {"step": -1, )" + rest + "}, " + recipe + "}"),
               "step is -1, expected a count");
  EXPECT_ERROR(with_state(R"({"position": {"step": "1", )" + rest + "}, " + recipe + "}"), "state.json");
  EXPECT_ERROR(with_state(R"({"position": {"step": 1, "loss_scaler": {"scale": 2}, )" + rest + "}, " + recipe + "}"),
               "good_steps");
  EXPECT_ERROR(with_state(R"({"position": {"step": 1, "epochs": [{"epoch": 1}], )" + rest + "}, " + recipe + "}"),
               "seconds");
  EXPECT_ERROR(with_state(R"({"position": {"step": 1, )" + rest + "}}"), "recipe");
  EXPECT_ERROR(with_state(R"({"random_step": -1, "position": {"step": 1, )" + rest + "}, " + recipe + "}"),
               "random_step is -1, expected a count");
  EXPECT_ERROR(with_state(R"({"position": {"step": 1e300, )" + rest + "}, " + recipe + "}"),
               "step is 1e+300, expected a count");
  EXPECT_ERROR(with_state(R"({"position": {"step": 7, )" + rest + "}, " + recipe + "}"),
               "step is 7, expected 1 as in the manifest");
  // Copies of such values would overflow the stack.
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_ERROR(with_state(R"({"position": {"step": 1, )" + rest + R"(}, "recipe": {"a": )" + deep + "}}"),
               "nested more than 5 deep");
  EXPECT_ERROR(with_state(R"({"position": {"step": 1, "epochs": )" + deep + ", " + rest + "}, " + recipe + "}"),
               "nested more than 5 deep");
  std::string names = "\"n\": 1";
  for (int i = 0; i < 5000; ++i) names += fmt::format(", \"n{}\": 1", i);
  EXPECT_ERROR(with_state(R"({"position": {"step": 1, )" + rest + R"(}, "recipe": {)" + names + "}}"),
               "more than 4096 names");
}

// A damaged state is read as something that a run could have written, or it is an error.
TEST(TrainingCheckpoint, ChangedBytesAreReadOrAreErrors) {
  TemporaryFolder folder;
  Job job;
  job.step();
  job.save(folder.path(), 1);
  const std::string good = folder.read("step-00000001/state.json");
  std::mt19937 random(1);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  constexpr std::string_view kBytes = "{}[]\",:0123456789-.eE+ntf\\ \0\xff";
  int refused = 0;
  Runtime runtime;
  for (int i = 0; i < 500; ++i) {
    std::string state = good;
    for (std::size_t n = 1 + below(3); n > 0; --n) {
      const std::size_t at = below(state.size()), length = std::min(1 + below(20), state.size() - at);
      switch (below(3)) {
        case 0: state[at] = kBytes[below(kBytes.size())]; break;
        case 1: state.erase(at, length); break;
        default: state.insert(at, state.substr(at, length));
      }
    }
    std::filesystem::remove_all(folder / "changed");
    change_state(folder, state);
    Linear net({.in_features = 3, .out_features = 2});
    net.initialize(Normal{1}, runtime.devices(), {.seed = 0});
    AdamW optimizer(net.parameters(), {.lr = 0.1});
    try {
      load_checkpoint(folder / "changed", net, optimizer, kRecipe);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

// A program of two models, such as a GAN.
struct Pair {
  Pair() {
    g.initialize(Normal{1}, runtime.devices(), {.seed = 1});
    d.initialize(Normal{1}, runtime.devices(), {.seed = 2});
  }
  std::vector<TrainedModel> models() { return {{"g", g, adam}, {"d", d, sgd}}; }
  void step() {
    const Tensor x = Tensor(testing::Random(1).floats({4, 3})).to(runtime.devices()[0]);
    mean(square(d(g(x)))).backward();
    adam.step();
    sgd.step();
  }
  std::vector<std::string> hashes() const { return {weights_sha256(g), weights_sha256(d)}; }

  Runtime runtime{{.cpu_devices = 1, .threads_per_shard = 1}};
  Linear g{{.in_features = 3, .out_features = 3}}, d{{.in_features = 3, .out_features = 1}};
  Adam adam{g.parameters(), {.lr = 0.1}};
  Sgd sgd{d.parameters(), {.lr = 0.1, .momentum = 0.9}};
};

TEST(TrainingCheckpoint, HoldsSeveralModels) {
  const TemporaryFolder folder;
  Pair first, second;
  first.step();
  first.step();
  save_checkpoint(folder.path(), first.models(), {.step = 2}, kRecipe);
  const ResumedRun run = load_checkpoint(folder.path(), second.models(), kRecipe);
  EXPECT_EQ(run.position.step, 2);
  EXPECT_EQ(second.adam.steps(), 2);
  EXPECT_EQ(second.hashes(), first.hashes());
  first.step();
  second.step();
  EXPECT_EQ(second.hashes(), first.hashes());
  Linear g({.in_features = 3, .out_features = 3});
  g.initialize(Constant{0}, first.runtime.devices());
  load_weights(run.path / "g.weights.safetensors", g);
  EXPECT_ERROR(load_weights(folder.path(), g),
               "the checkpoint has several models, expected the path of one of its "
               "files: d.weights.safetensors, g.weights.safetensors");
}

TEST(TrainingCheckpoint, ARefusedModelLeavesTheOthersAsTheyAre) {
  const TemporaryFolder folder;
  Pair first, second;
  first.step();
  save_checkpoint(folder.path(), {{"g", first.g, first.adam}, {"d", first.g, first.adam}}, {.step = 1}, kRecipe);
  const std::vector<std::string> before = second.hashes();
  EXPECT_ERROR(load_checkpoint(folder.path(), second.models(), kRecipe), "d.optimizer.safetensors");
  EXPECT_EQ(second.hashes(), before);
  EXPECT_EQ(second.adam.steps(), 0);
  EXPECT_ERROR(load_checkpoint(folder.path(), {{"h", first.g, first.adam}}, kRecipe), "h.optimizer.safetensors");
  const auto save = [&](const std::vector<TrainedModel>& models) {
    save_checkpoint(folder.path(), models, {.step = 2}, kRecipe);
  };
  EXPECT_ERROR(save({{"a/b", first.g, first.adam}}), "a model named \"a/b\"");
  EXPECT_ERROR(save({{"a", first.g, first.adam}, {"a", first.d, first.sgd}}), "two models are named \"a\"");
}

}  // namespace
}  // namespace lockstep
