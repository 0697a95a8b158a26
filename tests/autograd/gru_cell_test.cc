// A step of a GRU is one task, with the bits of the operations that its formula names.
#include <gtest/gtest.h>

#include <optional>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/recurrent.h"
#include "lockstep/engine/engine.h"
#include "lockstep/runtime/runtime.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

constexpr std::int64_t kGruRows = 5, kGruTime = 4, kGruInputs = 3, kGruStates = 6;

Tensor gru_by_formula(const Tensor& x, Tensor& h, const RecurrentWeights& w) {
  std::vector<Tensor> outputs;
  for (const Tensor& from_x : unbind(linear(x, w.weight_ih, w.bias_ih), 1)) {
    const auto parts = [](const Tensor& all) { return unbind(unflatten(all, -1, {3, -1}), -2); };
    const auto gx = parts(from_x), gh = parts(linear(h, w.weight_hh, w.bias_hh));
    const Tensor r = sigmoid(gx[0] + gh[0]), z = sigmoid(gx[1] + gh[1]), n = tanh(gx[2] + r * gh[2]);
    h = n + z * (h - n);
    outputs.push_back(h);
  }
  return stack(outputs, 1);
}

using GruFunction = std::function<Tensor(const Tensor& x, Tensor& h, const RecurrentWeights&)>;
Tensor gru_by_layer(const Tensor& x, Tensor& h, const RecurrentWeights& w) {
  return gru_layer(x, h, w, {.batch_first = true});
}

// The output, the last state, and all gradients. Without a placement: whole. `last`: the loss has the last state, too.
std::vector<std::vector<double>> run_gru(const GruFunction& layer, Device device,
                                         const std::shared_ptr<const Placement>& at, bool last) {
  Random random(3);
  const auto leaf = [&](const Shape& shape, bool samples) {
    const Tensor t = random.floats(shape);
    return as_leaf(samples && at ? scatter(t, at) : t.to(device));
  };
  Tensor x = leaf({kGruRows, kGruTime, kGruInputs}, true), start = leaf({kGruRows, kGruStates}, true);
  RecurrentWeights w{leaf({3 * kGruStates, kGruInputs}, false), leaf({3 * kGruStates, kGruStates}, false),
                     leaf({3 * kGruStates}, false), leaf({3 * kGruStates}, false)};
  Tensor h = start;
  const Tensor y = layer(x, h, w);
  Tensor loss = sum(y * y);
  if (last) loss = loss + sum(h * 3);
  loss.backward();
  std::vector<std::vector<double>> all{values(y), values(h)};
  for (const Tensor& t : {x, start, w.weight_ih, w.weight_hh, w.bias_ih, w.bias_hh}) all.push_back(values(t.grad()));
  return all;
}

TEST(GruCell, HasTheBitsOfItsFormula) {
  Runtime runtime({.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1});
  const auto& devices = runtime.devices();
  const auto at = std::make_shared<Placement>(std::vector<std::int64_t>{2, 3, 0},
                                              std::vector<Slot>{{0, devices[0]}, {1, devices[1]}, {2, devices[1]}});
  for (const bool last : {false, true}) {
    EXPECT_EQ(run_gru(gru_by_layer, devices[0], nullptr, last), run_gru(gru_by_formula, devices[0], nullptr, last));
    EXPECT_EQ(run_gru(gru_by_layer, devices[0], at, last), run_gru(gru_by_formula, devices[0], at, last));
  }
}

// As a parameter is.
TEST(GruCell, TakesAStateThatIsReplicated) {
  Runtime runtime;
  const auto outputs = [&](const GruFunction& layer) {
    Random random(3);
    const auto make = [&](const Shape& shape) { return random.floats(shape).to(runtime.devices()[0]); };
    const Tensor x = make({kGruRows, kGruTime, kGruInputs});
    Tensor h = as_leaf(Tensor::replicated({make({kGruRows, kGruStates})}));
    const Tensor start = h;
    const Tensor y = layer(x, h, {make({3 * kGruStates, kGruInputs}), make({3 * kGruStates, kGruStates}), {}, {}});
    sum(y).backward();
    return std::pair(values(y), values(start.grad()));
  };
  EXPECT_EQ(outputs(gru_by_layer), outputs(gru_by_formula));
}

TEST(GruCell, AStepIsTwoTasks) {
  Runtime runtime;
  const Device device = runtime.devices()[0];
  // Tasks of as many steps, with their gradients or without.
  const auto tasks = [&](const GruFunction& layer, std::int64_t steps, bool backward) {
    std::optional<NoGradGuard> no_grad;
    if (!backward) no_grad.emplace();
    Random random(3);
    const auto make = [&](const Shape& shape) { return as_leaf(random.floats(shape).to(device)); };
    const RecurrentWeights w{make({3 * kGruStates, kGruInputs}), make({3 * kGruStates, kGruStates}), {}, {}};
    Tensor x = make({kGruRows, steps, kGruInputs}), h = make({kGruRows, kGruStates});
    const std::int64_t before = runtime.engine().counters().pushed;
    const Tensor y = layer(x, h, w);
    if (backward) sum(y).backward();
    return runtime.engine().counters().pushed - before;
  };
  const auto of_a_step = [&](const GruFunction& layer, bool backward) {
    return tasks(layer, 9, backward) - tasks(layer, 8, backward);
  };
  // The product, the cell, and what takes the step's part of x and puts its output among the others.
  EXPECT_LE(of_a_step(gru_by_layer, false), 4);
  EXPECT_LT(2 * of_a_step(gru_by_layer, true), of_a_step(gru_by_formula, true));
}

}  // namespace
}  // namespace lockstep::testing
