#include "lockstep/nn/transformer.h"

#include "lockstep/nn/output_observer.h"

namespace lockstep {

TransformerEncoderLayer::TransformerEncoderLayer(TransformerEncoderLayerOptions options)
    : options_(options), self_attn_({.embed_dim = options.d_model,
                                     .num_heads = options.nhead,
                                     .dropout = options.dropout,
                                     .batch_first = options.batch_first}),
      linear1_({.in_features = options.d_model, .out_features = options.dim_feedforward}),
      linear2_({.in_features = options.dim_feedforward, .out_features = options.d_model}),
      norm1_({.normalized_shape = {options.d_model}, .eps = options.layer_norm_eps}),
      norm2_({.normalized_shape = {options.d_model}, .eps = options.layer_norm_eps}), dropout_(options.dropout),
      dropout1_(options.dropout), dropout2_(options.dropout) {
  check(options_.activation != nullptr, "transformer encoder layer: no activation, expected relu, gelu, ...");
  add("self_attn", self_attn_);
  add("linear1", linear1_);
  add("dropout", dropout_);
  add("linear2", linear2_);
  add("norm1", norm1_);
  add("norm2", norm2_);
  add("dropout1", dropout1_);
  add("dropout2", dropout2_);
}

Tensor TransformerEncoderLayer::operator()(const Tensor& src, const TransformerMasks& masks) {
  Tensor y = forward(src, masks);
  OutputObserver::report(*this, y);
  return y;
}

Tensor TransformerEncoderLayer::attention_part(const Tensor& x, const TransformerMasks& masks) {
  return dropout1_(self_attn_.attend(
      x, x, x,
      {.key_padding_mask = masks.src_key_padding_mask, .attn_mask = masks.src_mask, .is_causal = masks.is_causal}));
}

Tensor TransformerEncoderLayer::dense_part(const Tensor& x) {
  return dropout2_(linear2_(dropout_(options_.activation(linear1_(x)))));
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const TransformerMasks& masks) {
  if (options_.norm_first) {
    const Tensor x = src + attention_part(norm1_(src), masks);
    return x + dense_part(norm2_(x));
  }
  const Tensor x = norm1_(src + attention_part(src, masks));
  return norm2_(x + dense_part(x));
}

}  // namespace lockstep
