// A step of an LSTM is one task, with the bits of the operations that its formula names.
#include <gtest/gtest.h>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/recurrent.h"
#include "lockstep/engine/engine.h"
#include "lockstep/runtime/runtime.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

constexpr std::int64_t kRows = 5, kTime = 4, kInputs = 3, kStates = 6;

Tensor lstm_by_formula(const Tensor& x, Tensor& h, Tensor& c, const RecurrentWeights& w) {
  std::vector<Tensor> outputs;
  for (const Tensor& from_x : unbind(linear(x, w.weight_ih, w.bias_ih), 1)) {
    const auto gates = unbind(unflatten(from_x + linear(h, w.weight_hh, w.bias_hh), -1, {4, -1}), -2);
    c = sigmoid(gates[1]) * c + sigmoid(gates[0]) * tanh(gates[2]);
    h = sigmoid(gates[3]) * tanh(c);
    outputs.push_back(h);
  }
  return stack(outputs, 1);
}

using LstmFunction = std::function<Tensor(const Tensor& x, Tensor& h, Tensor& c, const RecurrentWeights&)>;
Tensor lstm_by_layer(const Tensor& x, Tensor& h, Tensor& c, const RecurrentWeights& w) {
  return lstm_layer(x, h, c, w, {.batch_first = true});
}

// Outputs, the last states, and all gradients. Without a placement: whole. `last`: the loss has the last state c, too.
std::vector<std::vector<double>> run_lstm(const LstmFunction& layer, Device device,
                                          const std::shared_ptr<const Placement>& at, bool last) {
  Random random(3);
  const auto leaf = [&](const Shape& shape, bool samples) {
    const Tensor t = random.floats(shape);
    return as_leaf(samples && at ? scatter(t, at) : t.to(device));
  };
  Tensor x = leaf({kRows, kTime, kInputs}, true), h0 = leaf({kRows, kStates}, true), c0 = leaf({kRows, kStates}, true);
  RecurrentWeights w{leaf({4 * kStates, kInputs}, false), leaf({4 * kStates, kStates}, false),
                     leaf({4 * kStates}, false), leaf({4 * kStates}, false)};
  Tensor h = h0, c = c0;
  const Tensor y = layer(x, h, c, w);
  Tensor loss = sum(y * y);
  if (last) loss = loss + sum(c * 3);
  loss.backward();
  std::vector<std::vector<double>> all{values(y), values(h), values(c)};
  for (const Tensor& t : {x, h0, c0, w.weight_ih, w.weight_hh, w.bias_ih, w.bias_hh}) all.push_back(values(t.grad()));
  return all;
}

TEST(LstmCell, HasTheBitsOfItsFormula) {
  Runtime runtime({.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1});
  const auto& devices = runtime.devices();
  const auto at = std::make_shared<Placement>(std::vector<std::int64_t>{2, 3, 0},
                                              std::vector<Slot>{{0, devices[0]}, {1, devices[1]}, {2, devices[1]}});
  for (const bool last : {false, true}) {
    EXPECT_EQ(run_lstm(lstm_by_layer, devices[0], nullptr, last), run_lstm(lstm_by_formula, devices[0], nullptr, last));
    EXPECT_EQ(run_lstm(lstm_by_layer, devices[0], at, last), run_lstm(lstm_by_formula, devices[0], at, last));
  }
}

// As a parameter is.
TEST(LstmCell, TakesAStateThatIsReplicated) {
  Runtime runtime;
  const auto outputs = [&](const LstmFunction& layer) {
    Random random(3);
    const auto make = [&](const Shape& shape) { return random.floats(shape).to(runtime.devices()[0]); };
    const Tensor x = make({kRows, kTime, kInputs});
    Tensor h = Tensor::replicated({make({kRows, kStates})}), c = as_leaf(Tensor::replicated({make({kRows, kStates})}));
    const Tensor start = c;
    const Tensor y = layer(x, h, c, {make({4 * kStates, kInputs}), make({4 * kStates, kStates}), {}, {}});
    sum(y).backward();
    return std::pair(values(y), values(start.grad()));
  };
  EXPECT_EQ(outputs(lstm_by_layer), outputs(lstm_by_formula));
}

TEST(LstmCell, AStepIsTwoTasks) {
  Runtime runtime;
  const Device device = runtime.devices()[0];
  const auto tasks = [&](std::int64_t steps) {
    const NoGradGuard no_grad;
    Random random(3);
    const auto make = [&](const Shape& shape) { return random.floats(shape).to(device); };
    const RecurrentWeights w{make({4 * kStates, kInputs}), make({4 * kStates, kStates}), {}, {}};
    Tensor x = make({kRows, steps, kInputs}), h = make({kRows, kStates}), c = make({kRows, kStates});
    const std::int64_t before = runtime.engine().counters().pushed;
    lstm_by_layer(x, h, c, w);
    return runtime.engine().counters().pushed - before;
  };
  // The product, the cell, and what takes the step's part of x and puts its output among the others.
  EXPECT_LE(tasks(9) - tasks(8), 4);
}

}  // namespace
}  // namespace lockstep::testing
