// Multi-head attention and the layer that transformer encoders repeat (Vaswani et al. 2017), under PyTorch's names.
//
//   TransformerEncoderLayer layer({.d_model = 64, .nhead = 4, .batch_first = true});
//   Tensor y = layer(x, {.is_causal = true});  // x [N, L, 64]
#pragma once

#include <functional>
#include <utility>

#include "lockstep/nn/layers.h"
#include "lockstep/nn/normalization.h"

namespace LOCKSTEP_API lockstep {

struct MultiheadAttentionOptions {
  std::int64_t embed_dim = 0;
  std::int64_t num_heads = 1;  // divides embed_dim
  double dropout = 0;          // of the weights, in training
  bool bias = true;
  bool batch_first = false;  // [N, L, E] instead of [L, N, E]
};

// A u8 mask hides the positions with 1. A floating mask is added to the scores. The output of a query that sees no key
// is NaN.
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
  // True: normalizes the input of each part. False: normalizes the sum of input and output.
  bool norm_first = false;
};

struct TransformerMasks {
  Tensor src_mask = {};              // see MultiheadMasks::attn_mask
  Tensor src_key_padding_mask = {};  // see MultiheadMasks::key_padding_mask
  bool is_causal = false;
};

// Self-attention and a net of two dense layers, each with dropout, a shortcut, and a layer norm. Names of parameters
// are PyTorch's: self_attn.in_proj_weight, ..., linear1, linear2, norm1, norm2.
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

}  // namespace lockstep
