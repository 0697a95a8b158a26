// Attention (Vaswani et al. 2017), under PyTorch's names.
#pragma once

#include <optional>

#include "lockstep/autograd/tensor.h"

namespace lockstep {

struct AttentionOptions {
  // Broadcasts to [.., L, S]: u8, where 1 takes part; or floating, added to the scores.
  Tensor attn_mask = {};
  // The share of weights that is dropped in every call: pass 0 in evaluation.
  double dropout_p = 0;
  // Query i sees keys 0 to i alone. With a mask, a key has to pass both.
  bool is_causal = false;
  // Multiplies the scores; 1 / sqrt(E) if not given.
  std::optional<double> scale = {};
};

// softmax(query key^T scale) after masks and dropout: query [.., L, E], key [.., S, E] -> [.., L, S]. A query that
// sees no key has NaN weights.
Tensor attention_weights(const Tensor& query, const Tensor& key, const AttentionOptions& options = {});

// Those weights times value [.., S, V] -> [.., L, V]. The axes in front broadcast; the batch is on one of them.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace lockstep
