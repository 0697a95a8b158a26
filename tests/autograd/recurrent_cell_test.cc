// A step of an LSTM or a GRU is one task, with the same bits as the separate operations of its formula.
#include <gtest/gtest.h>

#include <optional>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/recurrent.h"
#include "lockstep/engine/engine.h"
#include "lockstep/ops/copy.h"
#include "lockstep/runtime/runtime.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

constexpr std::int64_t kRows = 5, kTime = 4, kInputs = 3, kHidden = 6;

// h, and for an LSTM c.
using States = std::vector<Tensor>;
using Layer = std::function<Tensor(const Tensor& x, States& states, const RecurrentWeights&)>;

struct Cell {
  std::string name;
  std::int64_t gates;
  std::size_t states;
  Layer layer, formula;
};

Tensor lstm_by_formula(const Tensor& x, States& states, const RecurrentWeights& w) {
  Tensor &h = states[0], &c = states[1];
  std::vector<Tensor> outputs;
  for (const Tensor& from_x : unbind(linear(x, w.weight_ih, w.bias_ih), 1)) {
    const auto gates = unbind(unflatten(from_x + linear(h, w.weight_hh, w.bias_hh), -1, {4, -1}), -2);
    c = sigmoid(gates[1]) * c + sigmoid(gates[0]) * tanh(gates[2]);
    h = sigmoid(gates[3]) * tanh(c);
    outputs.push_back(h);
  }
  return stack(outputs, 1);
}

Tensor gru_by_formula(const Tensor& x, States& states, const RecurrentWeights& w) {
  Tensor& h = states[0];
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

Tensor lstm_by_layer(const Tensor& x, States& states, const RecurrentWeights& w) {
  return lstm_layer(x, states[0], states[1], w, {.batch_first = true});
}
Tensor gru_by_layer(const Tensor& x, States& states, const RecurrentWeights& w) {
  return gru_layer(x, states[0], w, {.batch_first = true});
}

using Make = std::function<Tensor(const Shape& shape)>;

RecurrentWeights make_weights(const Cell& cell, const Make& make, bool biases) {
  const std::int64_t rows = cell.gates * kHidden;
  RecurrentWeights w{make({rows, kInputs}), make({rows, kHidden}), {}, {}};
  if (biases) w.bias_ih = make({rows}), w.bias_hh = make({rows});
  return w;
}

States make_states(const Cell& cell, const Make& make) {
  States states;
  for (std::size_t i = 0; i < cell.states; ++i) states.push_back(make({kRows, kHidden}));
  return states;
}

// The output, the last states, and all gradients. Without a placement: whole. `last`: the loss contains a last state.
std::vector<std::vector<double>> run(const Cell& cell, const Layer& layer, Device device,
                                     const std::shared_ptr<const Placement>& at, bool last) {
  Random random(3);
  const Make whole = [&](const Shape& shape) { return as_leaf(Tensor(random.floats(shape)).to(device)); };
  const Make samples = [&](const Shape& shape) {
    return at ? as_leaf(scatter(random.floats(shape), at)) : whole(shape);
  };
  const Tensor x = samples({kRows, kTime, kInputs});
  const States start = make_states(cell, samples);
  const RecurrentWeights w = make_weights(cell, whole, true);
  States states = start;
  const Tensor y = layer(x, states, w);
  Tensor loss = sum(y * y);
  if (last) loss = loss + sum(states.back() * 3);
  loss.backward();
  std::vector<std::vector<double>> all{values(y)};
  for (const Tensor& t : states) all.push_back(values(t));
  for (const Tensor& t : start) all.push_back(values(t.grad()));
  for (const Tensor& t : {x, w.weight_ih, w.weight_hh, w.bias_ih, w.bias_hh}) all.push_back(values(t.grad()));
  return all;
}

class RecurrentCell : public ::testing::TestWithParam<Cell> {};

TEST_P(RecurrentCell, HasTheBitsOfItsFormula) {
  const Cell& cell = GetParam();
  Runtime runtime({.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1});
  const auto& devices = runtime.devices();
  const auto cut = std::make_shared<Placement>(std::vector<std::int64_t>{2, 3, 0},
                                               std::vector<Slot>{{0, devices[0]}, {1, devices[1]}, {2, devices[1]}});
  for (const bool last : {false, true}) {
    for (const auto& at : {std::shared_ptr<Placement>(), cut}) {
      EXPECT_EQ(run(cell, cell.layer, devices[0], at, last), run(cell, cell.formula, devices[0], at, last));
    }
  }
}

// As a parameter is.
TEST_P(RecurrentCell, TakesStatesThatAreReplicated) {
  const Cell& cell = GetParam();
  Runtime runtime;
  const auto outputs = [&](const Layer& layer) {
    Random random(3);
    const auto array = [&](const Shape& shape) { return ops::to_device(random.floats(shape), runtime.devices()[0]); };
    const Make make = array;
    const Tensor x = make({kRows, kTime, kInputs});
    const States start = make_states(cell, [&](const Shape& s) { return as_leaf(replicated_tensor({array(s)})); });
    States states = start;
    const Tensor y = layer(x, states, make_weights(cell, make, false));
    sum(y).backward();
    std::vector<std::vector<double>> all{values(y)};
    for (const Tensor& t : start) all.push_back(values(t.grad()));
    return all;
  };
  EXPECT_EQ(outputs(cell.layer), outputs(cell.formula));
}

TEST_P(RecurrentCell, AStepIsTwoTasks) {
  const Cell& cell = GetParam();
  Runtime runtime;
  const Device device = runtime.devices()[0];
  // Tasks of as many steps, with their gradients or without.
  const auto tasks = [&](const Layer& layer, std::int64_t steps, bool backward) {
    std::optional<NoGradGuard> no_grad;
    if (!backward) no_grad.emplace();
    Random random(3);
    const Make make = [&](const Shape& shape) { return as_leaf(Tensor(random.floats(shape)).to(device)); };
    const RecurrentWeights w = make_weights(cell, make, false);
    const Tensor x = make({kRows, steps, kInputs});
    States states = make_states(cell, make);
    const std::int64_t before = runtime.engine().counters().pushed;
    const Tensor y = layer(x, states, w);
    if (backward) sum(y).backward();
    return runtime.engine().counters().pushed - before;
  };
  const auto of_a_step = [&](const Layer& layer, bool backward) {
    return tasks(layer, 9, backward) - tasks(layer, 8, backward);
  };
  // The product, the cell, and what takes the step's part of x and puts its output among the others.
  EXPECT_LE(of_a_step(cell.layer, false), 4);
  EXPECT_LT(2 * of_a_step(cell.layer, true), of_a_step(cell.formula, true));
}

INSTANTIATE_TEST_SUITE_P(, RecurrentCell,
                         ::testing::Values(Cell{"lstm", 4, 2, lstm_by_layer, lstm_by_formula},
                                           Cell{"gru", 3, 1, gru_by_layer, gru_by_formula}),
                         [](const auto& cell) { return cell.param.name; });

}  // namespace
}  // namespace lockstep::testing
