// ResNet-18 follows PyTorch: tests/parity/expected.json was written by tests/parity/pytorch_reference.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/data/data_loader.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/head_dataset.h"
#include "lockstep/models/models.h"
#include "lockstep/models/resnet.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/split.h"
#include "lockstep/runtime/runtime.h"
#include "tests/models/pseudo_random.h"

namespace lockstep {
namespace {

using State = std::map<std::string, std::vector<float>>;

nlohmann::json expected() {
  std::ifstream file(LOCKSTEP_PARITY_FILE);
  return nlohmann::json::parse(file);
}

State floating_state(const Module& net) {
  State state;
  for (const auto& [name, tensor] : state_dict(net)) {
    if (tensor.dtype() == DType::f32) state[name] = tensor.to_vector<float>();
  }
  return state;
}

struct Outcome {
  std::vector<double> losses;
  State before, after;
};

// The first `steps` batches of 64 in the files' order, from the tool's start weights (seed 0).
Outcome train(int devices, double lr, int steps) {
  Runtime runtime({.cpu_devices = devices, .threads_per_shard = 1});
  auto net = resnet18();
  net->initialize(model_initializer("resnet18"), runtime.devices());
  auto data =
      std::make_shared<HeadDataset>(std::make_shared<FashionMnist>(load_fashion_mnist(MnistPart::train)), 64 * steps);
  DataLoader loader(data, {.batch_size = 64});
  Sgd sgd(net->parameters(), {.lr = lr});
  Outcome run;
  for (Example& batch : loader) {
    const Tensor loss =
        cross_entropy((*net)(split_and_load(batch[0], runtime.devices())), split_and_load(batch[1], runtime.devices()));
    if (run.before.empty()) run.before = floating_state(*net);
    loss.backward();
    sgd.step();
    run.losses.push_back(loss.item<float>());
  }
  run.after = floating_state(*net);
  return run;
}

// The same +-1 as in the script.
double sign(std::uint32_t hash, std::uint64_t index) { return (testing::mixed(hash, index) >> 7 & 1) ? 1 : -1; }

// The oracle is PyTorch in f64. Its own update in f32 ("f32_error") is 1e-6 of the norm from that in the last block,
// and 0.1 to 0.7 % before: rounding gives two of 28 million inputs of ReLU the other sign, and the one in the output of
// block 4.0 alone moves all gradients before it by that much. Which inputs these are depends on the order of sums, so
// two computations in f32 may differ by more than 1 %, and neither be wrong. Ours has to be within 1 % of f64, or
// within twice the error of PyTorch's f32. A projection of a difference d on random signs has the mean square |d|^2:
// sixteen of them estimate the error.
TEST(Parity, FirstStepMovesEveryParameterAsPyTorchDoes) {
  nlohmann::json step = expected().at("one_step");
  Outcome run = train(1, step.at("lr"), 1);
  EXPECT_NEAR(run.losses[0], step.at("loss").get<double>(), 1e-5);
  // Batch norms' running statistics move in the forward pass, before `before` was read; they are compared elsewhere.
  std::size_t compared = 0;
  for (const auto& [name, update] : step.at("updates").items()) {
    if (name.find("running_") != std::string::npos) continue;
    const auto& before = run.before.at(name);
    const auto& after = run.after.at(name);
    std::uint32_t hash = testing::fnv1a(name);
    std::uint64_t index = 0;
    double squares = 0, square_norm = 0;
    for (const auto& projection : update.at("projections")) {
      double mine = 0;
      for (std::size_t i = 0; i < after.size(); ++i) {
        mine += sign(hash, ++index) * (static_cast<double>(after[i]) - static_cast<double>(before[i]));
      }
      squares += (mine - projection.get<double>()) * (mine - projection.get<double>());
    }
    for (std::size_t i = 0; i < after.size(); ++i) {
      square_norm += std::pow(static_cast<double>(after[i]) - static_cast<double>(before[i]), 2);
    }
    const double norm = update.at("norm");
    const double allowed = std::max(1e-2 * norm, 2 * update.at("f32_error").get<double>());
    EXPECT_NEAR(std::sqrt(square_norm), norm, allowed) << name;
    EXPECT_LT(std::sqrt(squares / static_cast<double>(update.at("projections").size())), allowed) << name;
    ++compared;
  }
  EXPECT_GT(compared, 40u);
}

// At 0.0001 rounding has not yet grown into the losses; docs/parity.md has the figures for 0.001, where PyTorch on two
// threads leaves PyTorch on one by 0.013 within the same twelve steps.
TEST(Parity, LossesFollowPyTorch) {
  constexpr int kSteps = 4;
  int compared = 0;
  const nlohmann::json all = expected();
  for (const auto& row : all.at("losses")) {
    if (row.at("lr") != 0.0001) continue;
    for (int devices : {1, 2}) {
      Outcome run = train(devices, row.at("lr"), kSteps);
      for (std::size_t i = 0; i < run.losses.size(); ++i) {
        double theirs = row.at(std::to_string(devices))[i];
        ++compared;
        EXPECT_NEAR(run.losses[i], theirs, 2e-3) << "step " << i + 1 << " on " << devices << " devices";
      }
    }
  }
  EXPECT_EQ(compared, 2 * kSteps);
}

}  // namespace
}  // namespace lockstep
