// Multi-head attention, under PyTorch's names.
#pragma once

#include <utility>

#include "lockstep/nn/linear.h"

namespace LOCKSTEP_API lockstep {

struct MultiheadAttentionOptions {
  std::int64_t embed_dim = 0;
  std::int64_t num_heads = 1;  // which divide embed_dim
  double dropout = 0;          // of the weights, in training
  bool bias = true;
  bool batch_first = false;  // [N, L, E] instead of [L, N, E]
};

// Masks are u8, where 1 must not be seen, or floating, added to the scores. A query that sees no key has NaN.
struct MultiheadMasks {
  Tensor key_padding_mask = {};  // [N, S]
  Tensor attn_mask = {};         // [L, S], or [N * num_heads, L, S]
  bool is_causal = false;        // query i sees keys 0 to i alone, without a mask in memory
};

// Attention of queries [L, N, E] to keys and values [S, N, E] in several heads, each on its part of the E features
// (Vaswani et al. 2017). Names and order of parameters are PyTorch's: in_proj_weight has the weights for queries,
// keys, and values one below the other.
class MultiheadAttention : public Module {
 public:
  using Options = MultiheadAttentionOptions;
  explicit MultiheadAttention(MultiheadAttentionOptions options);

  // The output [L, N, E], and the weights after dropout: their mean over the heads [N, L, S]. PyTorch's need_weights
  // is this function instead of attend().
  std::pair<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const MultiheadMasks& masks = {});
  // The output alone.
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
  Linear out_proj;           // [E, E]

 private:
  Tensor heads(const Tensor& x, int part) const;
  Tensor weights(const Tensor& query, const Tensor& key, const MultiheadMasks& masks) const;
  Tensor output(const Tensor& weights, const Tensor& value);

  MultiheadAttentionOptions options_;
};

}  // namespace lockstep
