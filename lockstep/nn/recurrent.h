// Recurrent layers: LSTM, GRU, and RNN. A call takes an initial state and returns the state after the last step. An
// input without a batch, [T, input], has states [layers * directions, H] and outputs without one. Cells compute one
// step.
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
  std::int64_t proj_size = 0;  // of an LSTM: number of features of h and of the outputs; 0: hidden_size
};

// The base of LSTM, GRU, and RNN. The parameters have PyTorch's names: weight_ih_l0, weight_hh_l0, bias_ih_l0,
// bias_hh_l0, with a projection weight_hr_l0, and so on for the other layers. Names of the second direction end with
// _reverse.
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
  // Returns the outputs of the last layer. states[k] is [layers * directions, N, H] (states[0] with a projection:
  // [layers * directions, N, proj_size]), or undefined for zeros; it becomes the state after the last step.
  Tensor run(const Tensor& x, std::vector<Tensor>& states, const Layer& layer);

 private:
  RecurrentWeights weights(std::size_t index, std::int64_t features);
  // Returns the number of features of h and of each direction's outputs.
  std::int64_t output_size() const { return options_.proj_size > 0 ? options_.proj_size : options_.hidden_size; }

  std::string_view name_;
  RecurrentOptions options_;
  int gates_;
  struct Weights {
    Parameter weight_ih, weight_hh, bias_ih, bias_hh, weight_hr;
  };
  std::vector<Weights> weights_;  // layer by layer, forward before reverse
};

struct LstmState {
  Tensor h, c;  // [layers * directions, N, H], h with proj_size features if that is not 0
};

struct LstmOutput {
  Tensor output;  // [T, N, directions * H], or directions * proj_size features
  LstmState state;
};

// Long short-term memory (Hochreiter and Schmidhuber 1997). W_ih x + b_ih + W_hh h + b_hh has four parts, i, f, g, and
// o. Then c = sigmoid(f) c + sigmoid(i) tanh(g), and h = sigmoid(o) tanh(c), with a projection W_hr times that (Sak et
// al. 2014). For truncated backpropagation through time, detach the state before the next call:
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

enum class Nonlinearity : std::uint8_t { tanh, relu };

// RecurrentOptions without proj_size, and the nonlinearity.
struct RNNOptions {
  std::int64_t input_size = 0;  // 0: inferred at the first forward pass
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 1;
  Nonlinearity nonlinearity = Nonlinearity::tanh;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
};

struct RnnOutput {
  Tensor output;  // [T, N, directions * H]
  Tensor h;       // [layers * directions, N, H]
};

// The plain recurrent network (Elman 1990): h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of the same.
class RNN : public RecurrentModule {
 public:
  using Options = RNNOptions;
  explicit RNN(const RNNOptions& options);
  RNN(std::int64_t input_size, std::int64_t hidden_size, RNNOptions more = {});
  RnnOutput forward(const Tensor& x, const Tensor& h);
  // Starts from zeros. Returns only the outputs.
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()).output; }
  RnnOutput operator()(const Tensor& x, const Tensor& h = {}) { return forward(x, h); }

 private:
  Nonlinearity nonlinearity_;
};

struct RecurrentCellOptions {
  std::int64_t input_size = 0;  // 0: inferred at the first forward pass
  std::int64_t hidden_size = 0;
  bool bias = true;
};

// The base of the cells, which compute one step for inputs [N, input], or [input]: weight_ih [gates * H, input],
// weight_hh [gates * H, H], bias_ih, and bias_hh.
class RecurrentCell : public Module {
 public:
  using Options = RecurrentCellOptions;

  const Parameter weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  static RecurrentCellOptions with_sizes(std::string_view name, RecurrentCellOptions more, std::int64_t input_size,
                                         std::int64_t hidden_size);
  RecurrentCell(std::string_view name, int gates, RecurrentCellOptions options);
  std::string extra_repr() const override;
  // Computes one step of a layer, and replaces `states` [N, H] by the next states. run() also takes states [H].
  using Step = std::function<void(const Tensor& x, std::vector<Tensor>& states, const RecurrentWeights& weights)>;
  void run(const Tensor& x, std::vector<Tensor>& states, const Step& step);

 private:
  std::string_view name_;
  int gates_;
  RecurrentCellOptions options_;
};

// A step of an LSTM. The state, h and c, is [N, H]; undefined tensors mean zeros.
//
//   LstmState state = cell(x, before);
class LSTMCell : public RecurrentCell {
 public:
  explicit LSTMCell(RecurrentCellOptions options) : RecurrentCell("lstm cell", 4, options) {}
  LSTMCell(std::int64_t input_size, std::int64_t hidden_size, RecurrentCellOptions more = {})
      : LSTMCell(with_sizes("lstm cell", more, input_size, hidden_size)) {}
  LstmState forward(const Tensor& x, const LstmState& state);
  // Starts from zeros. Returns only h.
  Tensor forward(const Tensor& x) override { return forward(x, LstmState{}).h; }
  LstmState operator()(const Tensor& x, const LstmState& state = {}) { return forward(x, state); }
};

// A step of a GRU: the next h.
class GRUCell : public RecurrentCell {
 public:
  explicit GRUCell(RecurrentCellOptions options) : RecurrentCell("gru cell", 3, options) {}
  GRUCell(std::int64_t input_size, std::int64_t hidden_size, RecurrentCellOptions more = {})
      : GRUCell(with_sizes("gru cell", more, input_size, hidden_size)) {}
  Tensor forward(const Tensor& x, const Tensor& h);
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()); }
  Tensor operator()(const Tensor& x, const Tensor& h = {}) { return forward(x, h); }
};

struct RNNCellOptions {
  std::int64_t input_size = 0;  // 0: inferred at the first forward pass
  std::int64_t hidden_size = 0;
  bool bias = true;
  Nonlinearity nonlinearity = Nonlinearity::tanh;
};

// A step of an RNN: the next h.
class RNNCell : public RecurrentCell {
 public:
  using Options = RNNCellOptions;
  explicit RNNCell(RNNCellOptions options)
      : RecurrentCell("rnn cell", 1, {options.input_size, options.hidden_size, options.bias}),
        nonlinearity_(options.nonlinearity) {}
  RNNCell(std::int64_t input_size, std::int64_t hidden_size, RNNCellOptions more = {});
  Tensor forward(const Tensor& x, const Tensor& h);
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()); }
  Tensor operator()(const Tensor& x, const Tensor& h = {}) { return forward(x, h); }

 protected:
  std::string extra_repr() const override;

 private:
  Nonlinearity nonlinearity_;
};

}  // namespace lockstep
