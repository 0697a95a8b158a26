// Multi-head attention (Vaswani et al. 2017).
//
//   MultiheadAttention attention(64, 4, {.batch_first = true});
//   Tensor y = attention(x);  // x [N, L, 64] attends to itself
#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct MultiheadAttentionOptions {
  std::int64_t embed_dim = 0;
  std::int64_t num_heads = 1;  // divides embed_dim
  double dropout = 0;          // of the attention weights, in training
  bool bias = true;
  bool batch_first = false;  // [N, L, E] instead of [L, N, E]
  std::int64_t kdim = 0;     // features of the keys; 0: embed_dim
  std::int64_t vdim = 0;     // features of the values; 0: embed_dim
};

// A bool or u8 mask hides the positions that are true, as in PyTorch (AttentionOptions is the other way around). A
// floating mask is added to the scores. The output of a query that sees no key is NaN.
struct MultiheadMasks {
  Tensor key_padding_mask = {};  // [N, S]
  Tensor attn_mask = {};         // [L, S], or [N * num_heads, L, S]
  bool is_causal = false;        // query i sees keys 0 to i only; needs no mask in memory
};

// Multi-head attention: queries [L, N, E] attend to keys and values [S, N, E]; without a batch, [L, E] and [S, E] with
// results [L, E] and [L, S]. Each head uses its own part of the E features. Names and order of parameters are
// PyTorch's: in_proj_weight stacks the weights for queries, keys, and values. If kdim or vdim differs from embed_dim,
// each of the three has a weight of its own instead.
class MultiheadAttention : public Module {
 public:
  using Options = MultiheadAttentionOptions;
  explicit MultiheadAttention(MultiheadAttentionOptions options);
  MultiheadAttention(std::int64_t embed_dim, std::int64_t num_heads, MultiheadAttentionOptions more = {});

  // Returns the output [L, N, E] and the weights after dropout, averaged over the heads: [N, L, S]. This is PyTorch's
  // need_weights=True; attend() is need_weights=False.
  std::pair<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const MultiheadMasks& masks = {});
  // Returns only the output, in one pass where it can, so that the last digits may be others than those of forward().
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const MultiheadMasks& masks = {});
  // Attends from x to itself, without a mask.
  Tensor forward(const Tensor& x) override { return attend(x, x, x); }
  using Module::operator();
  std::pair<Tensor, Tensor> operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                       const MultiheadMasks& masks = {}) {
    return forward(query, key, value, masks);
  }

  const Parameter in_proj_weight;  // [3 E, E]
  const Parameter q_proj_weight;   // [E, E], with another kdim or vdim
  const Parameter k_proj_weight;   // [E, kdim]
  const Parameter v_proj_weight;   // [E, vdim]
  const Parameter in_proj_bias;    // [3 E]
  Linear& out_proj;                // [E, E]

 private:
  // Takes options that are checked and complete.
  MultiheadAttention(const MultiheadAttentionOptions& options, int);
  int batch_axis() const;
  // Return inputs without a batch as a batch of one.
  Tensor as_batch(const Tensor& x) const;
  MultiheadMasks as_batch(MultiheadMasks masks) const;
  // Queries, keys, and values by heads: [N, heads, L or S, E / heads].
  struct Heads {
    Tensor q, k, v;
  };
  Tensor heads(const Tensor& x, int part) const;
  Heads all_heads(const Tensor& query, const Tensor& key, const Tensor& value) const;
  // What decides the weights between heads.
  AttentionOptions attention(const Tensor& q, const Tensor& k, const MultiheadMasks& masks) const;
  Tensor output(const Tensor& y);

  MultiheadAttentionOptions options_;
};

}  // namespace lockstep
