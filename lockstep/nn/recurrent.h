// Recurrent layers: LSTM and GRU. A call takes an initial state and returns the state after the last step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct RecurrentWeights;  // autograd/recurrent.h
struct RecurrentPass;

struct RecurrentOptions {
  std::int64_t input_size = 0;  // 0: inferred at the first forward pass
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;  // [N, T, input] instead of [T, N, input]; states always have the samples on axis 1
  double dropout = 0;        // between layers, in training
  bool bidirectional = false;
};

// The common part of LSTM and GRU. The parameters have PyTorch's names: weight_ih_l0, weight_hh_l0, bias_ih_l0,
// bias_hh_l0, and so on for the other layers. Names of the second direction end with _reverse.
class RecurrentModule : public Module {
 public:
  using Options = RecurrentOptions;

 protected:
  std::string extra_repr() const override;
  RecurrentModule(std::string_view name, int gates, const RecurrentOptions& options);
  static RecurrentOptions with_sizes(std::string_view name, RecurrentOptions more, std::int64_t input_size,
                                     std::int64_t hidden_size);

  // Computes one layer in one direction. Replaces `state` by the state after the last step.
  using Layer = std::function<Tensor(const Tensor& x, std::vector<Tensor>& state, const RecurrentWeights& weights,
                                     const RecurrentPass& pass)>;
  // Returns the outputs of the last layer. states[k] is [layers * directions, N, H], or undefined for zeros; it becomes
  // the state after the last step.
  Tensor run(const Tensor& x, std::vector<Tensor>& states, const Layer& layer);

 private:
  RecurrentWeights weights(std::size_t index, std::int64_t features);

  std::string_view name_;
  RecurrentOptions options_;
  int gates_;
  struct Weights {
    Parameter weight_ih, weight_hh, bias_ih, bias_hh;
  };
  std::vector<Weights> weights_;  // layer by layer, forward before reverse
};

struct LstmState {
  Tensor h, c;  // [layers * directions, N, H]
};

struct LstmOutput {
  Tensor output;  // [T, N, directions * H]
  LstmState state;
};

// Long short-term memory (Hochreiter and Schmidhuber 1997). W_ih x + b_ih + W_hh h + b_hh has four parts, i, f, g, and
// o. Then c = sigmoid(f) c + sigmoid(i) tanh(g), and h = sigmoid(o) tanh(c). For truncated backpropagation through
// time, detach the state before the next call:
//
//   auto [y, state] = lstm(x);
//   auto [z, last] = lstm(next, {state.h.detach(), state.c.detach()});
class LSTM : public RecurrentModule {
 public:
  explicit LSTM(const RecurrentOptions& options) : RecurrentModule("lstm", 4, options) {}
  LSTM(std::int64_t input_size, std::int64_t hidden_size, const RecurrentOptions& more = {})
      : LSTM(with_sizes("lstm", more, input_size, hidden_size)) {}
  LstmOutput forward(const Tensor& x, const LstmState& state);
  // Starts from zeros. Returns only the outputs.
  Tensor forward(const Tensor& x) override { return forward(x, LstmState{}).output; }
  LstmOutput operator()(const Tensor& x, const LstmState& state = {}) { return forward(x, state); }
};

struct GruOutput {
  Tensor output;  // [T, N, directions * H]
  Tensor h;       // [layers * directions, N, H]
};

// Gated recurrent units (Cho et al. 2014), with the weights in three parts, as in PyTorch:
//   r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)
//   z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
//   n = tanh(W_in x + b_in + r (W_hn h + b_hn))
//   h = (1 - z) n + z h
class GRU : public RecurrentModule {
 public:
  explicit GRU(const RecurrentOptions& options) : RecurrentModule("gru", 3, options) {}
  GRU(std::int64_t input_size, std::int64_t hidden_size, const RecurrentOptions& more = {})
      : GRU(with_sizes("gru", more, input_size, hidden_size)) {}
  GruOutput forward(const Tensor& x, const Tensor& h);
  // Starts from zeros. Returns only the outputs.
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()).output; }
  GruOutput operator()(const Tensor& x, const Tensor& h = {}) { return forward(x, h); }
};

}  // namespace lockstep
