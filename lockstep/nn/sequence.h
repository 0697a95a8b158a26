// Layers for sequences, under PyTorch's names: LSTM, GRU, multi-head attention, the transformer encoder layer, pooling.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/layers.h"
#include "lockstep/nn/normalization.h"

namespace LOCKSTEP_API lockstep {

struct RecurrentWeights;  // autograd/recurrent.h
struct RecurrentPass;

// LSTM and GRU. A call takes an initial state and returns the state after the last step.

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
  GruOutput forward(const Tensor& x, const Tensor& h);
  // Starts from zeros. Returns only the outputs.
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()).output; }
  GruOutput operator()(const Tensor& x, const Tensor& h = {}) { return forward(x, h); }
};

// Multi-head attention and the transformer encoder layer (Vaswani et al. 2017).
//
//   TransformerEncoderLayer layer({.d_model = 64, .nhead = 4, .batch_first = true});
//   Tensor y = layer(x, {.is_causal = true});  // x [N, L, 64]

struct MultiheadAttentionOptions {
  std::int64_t embed_dim = 0;
  std::int64_t num_heads = 1;  // divides embed_dim
  double dropout = 0;          // of the weights, in training
  bool bias = true;
  bool batch_first = false;  // [N, L, E] instead of [L, N, E]
};

// A u8 mask hides the positions that are 1, as in PyTorch (AttentionOptions is the other way around). A floating mask
// is added to the scores. The output of a query that sees no key is NaN.
struct MultiheadMasks {
  Tensor key_padding_mask = {};  // [N, S]
  Tensor attn_mask = {};         // [L, S], or [N * num_heads, L, S]
  bool is_causal = false;        // query i sees keys 0 to i only; needs no mask in memory
};

// Multi-head attention: queries [L, N, E] attend to keys and values [S, N, E]. Each head uses its own part of the E
// features. Names and order of parameters are PyTorch's: in_proj_weight stacks the weights for queries, keys, and
// values.
class MultiheadAttention : public Module {
 public:
  using Options = MultiheadAttentionOptions;
  explicit MultiheadAttention(MultiheadAttentionOptions options);

  // Returns the output [L, N, E] and the weights after dropout, averaged over the heads: [N, L, S]. This is PyTorch's
  // need_weights=True; attend() is need_weights=False.
  std::pair<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const MultiheadMasks& masks = {});
  // Returns only the output.
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const MultiheadMasks& masks = {});
  // Attends from x to itself, without a mask.
  Tensor forward(const Tensor& x) override { return attend(x, x, x); }
  using Module::operator();
  std::pair<Tensor, Tensor> operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                       const MultiheadMasks& masks = {}) {
    return forward(query, key, value, masks);
  }

  Parameter in_proj_weight;  // [3 E, E]
  Parameter in_proj_bias;    // [3 E]
  Linear& out_proj;          // [E, E]

 private:
  Tensor heads(const Tensor& x, int part) const;
  Tensor weights(const Tensor& query, const Tensor& key, const MultiheadMasks& masks) const;
  Tensor output(const Tensor& weights, const Tensor& value);

  MultiheadAttentionOptions options_;
};

struct TransformerEncoderLayerOptions {
  std::int64_t d_model = 0;
  std::int64_t nhead = 1;
  std::int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::function<Tensor(const Tensor&)> activation = relu;  // or gelu
  double layer_norm_eps = 1e-5;
  bool batch_first = false;  // [N, L, d_model] instead of [L, N, d_model]
  // True: normalizes the input of each of the two parts (pre-norm). False: normalizes the sum of its input and output.
  bool norm_first = false;
};

struct TransformerMasks {
  Tensor src_mask = {};              // see MultiheadMasks::attn_mask
  Tensor src_key_padding_mask = {};  // see MultiheadMasks::key_padding_mask
  bool is_causal = false;
};

// Self-attention and a feed-forward network of two linear layers, each with dropout, a residual connection, and a layer
// norm. Names of parameters are PyTorch's: self_attn.in_proj_weight, ..., linear1, linear2, norm1, norm2.
class TransformerEncoderLayer : public Module {
 public:
  using Options = TransformerEncoderLayerOptions;
  explicit TransformerEncoderLayer(TransformerEncoderLayerOptions options);
  Tensor forward(const Tensor& src, const TransformerMasks& masks);
  Tensor forward(const Tensor& src) override { return forward(src, TransformerMasks{}); }
  using Module::operator();
  Tensor operator()(const Tensor& src, const TransformerMasks& masks);

 private:
  Tensor attention_part(const Tensor& x, const TransformerMasks& masks);
  Tensor dense_part(const Tensor& x);

  TransformerEncoderLayerOptions options_;
  MultiheadAttention& self_attn_;
  Linear& linear1_;
  Dropout& dropout_;
  Linear& linear2_;
  LayerNorm &norm1_, &norm2_;
  Dropout &dropout1_, &dropout2_;
};

// The largest element, or the mean, of each window: [N, C, L] -> [N, C, L'], L' = floor((L + 2 padding - kernel) /
// stride) + 1. Errors and limits: see Pool1dOptions in backend/window.h.
class MaxPool1d : public Module {
 public:
  using Options = Pool1dOptions;
  explicit MaxPool1d(Pool1dOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x) override { return max_pool1d(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  Pool1dOptions options_;
};

class AvgPool1d : public Module {
 public:
  using Options = Pool1dOptions;
  explicit AvgPool1d(Pool1dOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x) override { return avg_pool1d(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  Pool1dOptions options_;
};

}  // namespace lockstep
