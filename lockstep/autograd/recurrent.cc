// Computes the inputs' products for all steps at once, and the states' products step by step.
#include "lockstep/autograd/recurrent.h"

#include <functional>

#include "lockstep/autograd/functions.h"

namespace lockstep {
namespace {

// Half types become f32: states and products are rounded, gates are not.
Tensor widened(const Tensor& x) { return is_half_dtype(x.dtype()) ? cast(x, DType::f32) : x; }

// The parts for the gates: [N, gates * H] -> gates x [N, H].
std::vector<Tensor> by_gate(const Tensor& x, int gates) { return unbind(unflatten(x, -1, {gates, -1}), -2); }

// step(inputs' part for one step, states' part) returns the next h. `states` hold the initial states.
Tensor over_steps(std::string_view what, const Tensor& x, std::initializer_list<Tensor*> states,
                  const RecurrentWeights& w, const RecurrentPass& pass, int gates,
                  const std::function<Tensor(const Tensor& from_x, const Tensor& from_h)>& step) {
  check(w.weight_ih.defined() && w.weight_hh.defined() && w.weight_hh.shape().rank() == 2 &&
            w.weight_hh.size(0) == gates * w.weight_hh.size(1),
        "{}: weight of the state is {}, expected [{} H, H]", what, w.weight_hh, gates);
  check(x.defined() && x.shape().rank() == 3 && w.weight_ih.shape() == Shape{w.weight_hh.size(0), x.size(2)},
        "{}: input is {}, its weight {}, expected 3 axes ({}, features) and [{}, features]", what, x, w.weight_ih,
        pass.batch_first ? "N, T" : "T, N", w.weight_hh.size(0));
  const int time = pass.batch_first ? 1 : 0;
  const std::int64_t hidden = w.weight_hh.size(1), samples = x.size(1 - time);
  check(x.size(time) > 0, "{}: no steps in {}", what, x);
  const std::vector<Tensor> from_x = unbind(linear(x, w.weight_ih, w.bias_ih), time);
  for (Tensor* state : states) {
    if (!state->defined()) *state = zeros_like(narrow(from_x[0].detach(), 1, 0, hidden));
    check(state->shape() == Shape{samples, hidden}, "{}: state is {}, expected [{}, {}]", what, state->describe(),
          samples, hidden);
  }
  Tensor& h = **states.begin();
  std::vector<Tensor> outputs(from_x.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t t = pass.reverse ? outputs.size() - 1 - i : i;
    h = outputs[t] = cast(step(widened(from_x[t]), widened(linear(h, w.weight_hh, w.bias_hh))), x.dtype());
  }
  return stack(outputs, time);
}

}  // namespace

Tensor lstm_layer(const Tensor& x, Tensor& h, Tensor& c, const RecurrentWeights& weights, const RecurrentPass& pass) {
  return over_steps("lstm", x, {&h, &c}, weights, pass, 4, [&c](const Tensor& from_x, const Tensor& from_h) {
    const std::vector<Tensor> gates = by_gate(from_x + from_h, 4);
    const Tensor next = sigmoid(gates[1]) * widened(c) + sigmoid(gates[0]) * tanh(gates[2]);
    c = cast(next, c.dtype());
    return sigmoid(gates[3]) * tanh(next);
  });
}

Tensor gru_layer(const Tensor& x, Tensor& h, const RecurrentWeights& weights, const RecurrentPass& pass) {
  return over_steps("gru", x, {&h}, weights, pass, 3, [&h](const Tensor& from_x, const Tensor& from_h) {
    const std::vector<Tensor> gx = by_gate(from_x, 3), gh = by_gate(from_h, 3);
    const Tensor r = sigmoid(gx[0] + gh[0]), z = sigmoid(gx[1] + gh[1]), n = tanh(gx[2] + r * gh[2]);
    return n + z * (widened(h) - n);
  });
}

}  // namespace lockstep
