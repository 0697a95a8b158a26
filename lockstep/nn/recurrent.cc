#include "lockstep/nn/recurrent.h"

#include <cmath>

#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/recurrent.h"
#include "lockstep/nn/layer_error.h"
#include "lockstep/nn/output_observer.h"
#include "lockstep/nn/sizes.h"

namespace lockstep {

RecurrentModule::RecurrentModule(std::string_view name, int gates, const RecurrentOptions& options)
    : name_(name), options_(options), gates_(gates) {
  const RecurrentOptions& o = options_;
  check(o.input_size >= 0 && o.hidden_size > 0 && o.num_layers > 0,
        "{}: {} to {} features in {} layers, expected at least 1 of each", name, o.input_size, o.hidden_size,
        o.num_layers);
  check(o.dropout >= 0 && o.dropout <= 1, "{}: dropout {}, expected 0 to 1", name, o.dropout);
  check(o.proj_size >= 0 && o.proj_size < o.hidden_size, "{}: proj_size {}, expected less than hidden_size, {}", name,
        o.proj_size, o.hidden_size);
  check(o.proj_size == 0 || name == "lstm", "{}: proj_size {}, which only LSTM has, expected 0", name, o.proj_size);
  const std::int64_t rows = gates * o.hidden_size, directions = o.bidirectional ? 2 : 1;
  const Uniform uniform(1 / std::sqrt(static_cast<double>(o.hidden_size)));
  for (std::int64_t i = 0; i < o.num_layers * directions; ++i) {
    const std::string suffix = fmt::format("_l{}{}", i / directions, i % directions == 1 ? "_reverse" : "");
    const std::int64_t features = i < directions ? o.input_size : directions * output_size();
    Weights w;
    const auto add = [&](const char* kind, Shape shape, const Initializer& initializer) {
      return add_parameter(kind + suffix, {.shape = shape, .initializer = initializer, .default_initializer = uniform});
    };
    w.weight_ih = add("weight_ih", {rows, features}, {});
    w.weight_hh = add("weight_hh", {rows, output_size()}, {});
    if (o.bias) {
      w.bias_ih = add("bias_ih", {rows}, Constant{0});
      w.bias_hh = add("bias_hh", {rows}, Constant{0});
    }
    if (o.proj_size > 0) w.weight_hr = add("weight_hr", {o.proj_size, o.hidden_size}, {});
    weights_.push_back(std::move(w));
  }
}

RecurrentOptions RecurrentModule::with_sizes(std::string_view name, RecurrentOptions more, std::int64_t input_size,
                                             std::int64_t hidden_size) {
  set_size(name, "input_size", more.input_size, input_size);
  set_size(name, "hidden_size", more.hidden_size, hidden_size);
  return more;
}

RecurrentWeights RecurrentModule::weights(std::size_t index, std::int64_t features) {
  Weights& w = weights_[index];
  if (!w.weight_ih.shape_known()) w.weight_ih.settle_shape({gates_ * options_.hidden_size, features});
  const auto tensor_of = [&](const Parameter& p) { return p.defined() ? p.tensor() : Tensor(); };
  return {w.weight_ih, w.weight_hh, tensor_of(w.bias_ih), tensor_of(w.bias_hh), tensor_of(w.weight_hr)};
}

Tensor RecurrentModule::run(const Tensor& x, std::vector<Tensor>& states, const Layer& layer) try {
  const TracedModule traced(this);
  if (x.defined() && x.shape().dim() == 2) {
    // One sequence: a batch of one.
    std::vector<Tensor> of_batch;
    for (const Tensor& state : states) {
      check(!state.defined() || state.shape().dim() == 2,
            "{}: state is {} beside an input of one sequence, expected 2 axes (layers * directions, H)", name_, state);
      of_batch.push_back(state.defined() ? unsqueeze(state, 1) : state);
    }
    const int axis = options_.batch_first ? 0 : 1;
    const Tensor y = squeeze(run(unsqueeze(x, axis), of_batch, layer), axis);
    for (std::size_t k = 0; k < states.size(); ++k) states[k] = squeeze(of_batch[k], 1);
    return y;
  }
  check(x.defined() && x.shape().dim() == 3, "{}: input is {}, expected 3 axes ({}, features)", name_, x,
        options_.batch_first ? "N, T" : "T, N");
  const std::size_t directions = options_.bidirectional ? 2 : 1;
  for (std::size_t k = 0; k < states.size(); ++k) {
    const Shape expected{static_cast<std::int64_t>(weights_.size()), x.size(options_.batch_first ? 0 : 1),
                         k == 0 ? output_size() : options_.hidden_size};
    check(!states[k].defined() || states[k].shape() == expected, "{}: state is {}, expected {}", name_, states[k],
          expected);
  }
  Tensor y = x;
  std::vector<std::vector<Tensor>> last(states.size());
  for (std::size_t first = 0; first < weights_.size(); first += directions) {
    if (first > 0 && options_.dropout > 0 && training()) y = dropout(y, options_.dropout);
    std::vector<Tensor> outputs;
    for (std::size_t i = first; i < first + directions; ++i) {
      std::vector<Tensor> state;
      for (const Tensor& all : states) {
        state.push_back(all.defined() ? select(all, 0, static_cast<std::int64_t>(i)) : Tensor());
      }
      outputs.push_back(
          layer(y, state, weights(i, y.size(2)), {.batch_first = options_.batch_first, .reverse = i > first}));
      for (std::size_t k = 0; k < states.size(); ++k) last[k].push_back(state[k]);
    }
    y = outputs.size() == 1 ? outputs[0] : cat(outputs, 2);
  }
  for (std::size_t k = 0; k < states.size(); ++k) states[k] = stack(last[k]);
  OutputObserver::report(*this, y);
  return y;
} catch (const Error&) {
  rethrow_in(*this);
}

LstmOutput LSTM::forward(const Tensor& x, const LstmState& state) {
  std::vector<Tensor> states{state.h, state.c};
  Tensor y = run(x, states,
                 [](const Tensor& x, std::vector<Tensor>& state, const RecurrentWeights& weights,
                    const RecurrentPass& pass) { return lstm_layer(x, state[0], state[1], weights, pass); });
  return {std::move(y), {std::move(states[0]), std::move(states[1])}};
}

GruOutput GRU::forward(const Tensor& x, const Tensor& h) {
  std::vector<Tensor> states{h};
  Tensor y = run(x, states,
                 [](const Tensor& x, std::vector<Tensor>& state, const RecurrentWeights& weights,
                    const RecurrentPass& pass) { return gru_layer(x, state[0], weights, pass); });
  return {std::move(y), std::move(states[0])};
}

RNN::RNN(const RNNOptions& o)
    : RecurrentModule("rnn", 1,
                      {.input_size = o.input_size,
                       .hidden_size = o.hidden_size,
                       .num_layers = o.num_layers,
                       .bias = o.bias,
                       .batch_first = o.batch_first,
                       .dropout = o.dropout,
                       .bidirectional = o.bidirectional}),
      nonlinearity_(o.nonlinearity) {}

RNN::RNN(std::int64_t input_size, std::int64_t hidden_size, RNNOptions more)
    : RNN((set_size("rnn", "input_size", more.input_size, input_size),
           set_size("rnn", "hidden_size", more.hidden_size, hidden_size), more)) {}

RnnOutput RNN::forward(const Tensor& x, const Tensor& h) {
  std::vector<Tensor> states{h};
  const bool relu = nonlinearity_ == Nonlinearity::relu;
  Tensor y = run(x, states,
                 [relu](const Tensor& x, std::vector<Tensor>& state, const RecurrentWeights& weights,
                        const RecurrentPass& pass) { return rnn_layer(x, state[0], weights, pass, relu); });
  return {std::move(y), std::move(states[0])};
}

namespace {

// Options of a cell's parameters. A bias starts at 0 under initialize().
ParameterOptions cell_weight(const RecurrentCellOptions& o, int gates, std::int64_t features) {
  return {.shape = {gates * o.hidden_size, features},
          .default_initializer = Uniform(1 / std::sqrt(static_cast<double>(o.hidden_size)))};
}
ParameterOptions cell_bias(const RecurrentCellOptions& o, int gates) {
  return {.shape = {gates * o.hidden_size},
          .initializer = Constant{0},
          .default_initializer = Uniform(1 / std::sqrt(static_cast<double>(o.hidden_size)))};
}

const RecurrentCellOptions& checked_cell(std::string_view name, const RecurrentCellOptions& o) {
  check(o.input_size >= 0 && o.hidden_size > 0, "{}: {} to {} features, expected at least 1", name, o.input_size,
        o.hidden_size);
  return o;
}

}  // namespace

RecurrentCell::RecurrentCell(std::string_view name, int gates, RecurrentCellOptions options)
    : weight_ih(add_parameter("weight_ih", cell_weight(checked_cell(name, options), gates, options.input_size))),
      weight_hh(add_parameter("weight_hh", cell_weight(options, gates, options.hidden_size))),
      bias_ih(options.bias ? add_parameter("bias_ih", cell_bias(options, gates)) : Parameter()),
      bias_hh(options.bias ? add_parameter("bias_hh", cell_bias(options, gates)) : Parameter()), name_(name),
      gates_(gates), options_(options) {}

RecurrentCellOptions RecurrentCell::with_sizes(std::string_view name, RecurrentCellOptions more,
                                               std::int64_t input_size, std::int64_t hidden_size) {
  set_size(name, "input_size", more.input_size, input_size);
  set_size(name, "hidden_size", more.hidden_size, hidden_size);
  return more;
}

RNNCell::RNNCell(std::int64_t input_size, std::int64_t hidden_size, RNNCellOptions more)
    : RNNCell((set_size("rnn cell", "input_size", more.input_size, input_size),
               set_size("rnn cell", "hidden_size", more.hidden_size, hidden_size), more)) {}

void RecurrentCell::run(const Tensor& x, std::vector<Tensor>& states, const Step& step) try {
  const TracedModule traced(this);
  const int dims = x.shape().dim();
  check(x.defined() && (dims == 1 || dims == 2), "{}: input is {}, expected 2 axes (N, features), or 1", name_, x);
  if (dims == 1) {
    for (Tensor& state : states) {
      if (state.defined()) state = unsqueeze(state, 0);
    }
    run(unsqueeze(x, 0), states, step);
    for (Tensor& state : states) state = squeeze(state, 0);
    return;
  }
  if (!weight_ih.shape_known()) weight_ih.settle_shape({gates_ * options_.hidden_size, x.size(1)});
  const auto bias = [&](const Parameter& p) { return options_.bias ? p.tensor() : Tensor(); };
  step(unsqueeze(x, 0), states, {weight_ih, weight_hh, bias(bias_ih), bias(bias_hh), Tensor()});
  OutputObserver::report(*this, states[0]);
} catch (const Error&) {
  rethrow_in(*this);
}

LstmState LSTMCell::forward(const Tensor& x, const LstmState& state) {
  std::vector<Tensor> states{state.h, state.c};
  run(x, states, [](const Tensor& x, std::vector<Tensor>& state, const RecurrentWeights& weights) {
    lstm_layer(x, state[0], state[1], weights);
  });
  return {std::move(states[0]), std::move(states[1])};
}

Tensor GRUCell::forward(const Tensor& x, const Tensor& h) {
  std::vector<Tensor> states{h};
  run(x, states, [](const Tensor& x, std::vector<Tensor>& state, const RecurrentWeights& weights) {
    gru_layer(x, state[0], weights);
  });
  return states[0];
}

Tensor RNNCell::forward(const Tensor& x, const Tensor& h) {
  std::vector<Tensor> states{h};
  const bool relu = nonlinearity_ == Nonlinearity::relu;
  run(x, states, [relu](const Tensor& x, std::vector<Tensor>& state, const RecurrentWeights& weights) {
    rnn_layer(x, state[0], weights, {}, relu);
  });
  return states[0];
}

}  // namespace lockstep
