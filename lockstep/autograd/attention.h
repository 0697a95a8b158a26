// Attention (Vaswani et al. 2017). nn/attention.h has the layer with several heads.
//
//   Tensor y = scaled_dot_product_attention(query, key, value, {.is_causal = true});
#pragma once

#include <optional>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

struct AttentionOptions {
  // Broadcasts to [.., L, S]. bool, or u8: true lets a query see a key. Floating: added to the scores.
  Tensor attn_mask = {};
  // The probability of dropping a weight. Applies in every call, so pass 0 in evaluation.
  double dropout_p = 0;
  // Query i sees only keys 0 to position + i. With a mask, a key must pass both.
  bool is_causal = false;
  // Multiplies the scores; 1 / sqrt(E) if not given.
  std::optional<double> scale = {};
  // Grouped-query attention (Ainslie et al. 2023): query [.., Hq, L, E], key and value [.., Hkv, S, ..], where Hkv
  // divides Hq. Query head h uses head h / (Hq / Hkv), rounded down.
  bool enable_gqa = false;
  // With is_causal: where query 0 is among the keys, at most their number.
  std::int64_t position = 0;
};

// softmax(query key^T scale) after masks and dropout: query [.., L, E], key [.., S, E] -> [.., L, S]. A query that sees
// no key has NaN weights. With enable_gqa: throws if there is no axis of heads, or if Hkv does not divide Hq.
Tensor attention_weights(const Tensor& query, const Tensor& key, const AttentionOptions& options = {});

// attention_weights() times value [.., S, V] -> [.., L, V]. The leading axes broadcast; the batch is on one of them.
// On CPUs, f32 takes one pass over the keys, without weights in memory, if all operands have the same leading axes, the
// mask needs no gradient, and no operand does if the position is not 0. On axis -3, keys and values may then have
// extent 1 or, with enable_gqa, as many heads as there are groups: queries share them without a copy. A query's row has
// the same bits with and without other queries and later keys. Throws if, with enable_gqa, keys and values differ in
// heads.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace lockstep
