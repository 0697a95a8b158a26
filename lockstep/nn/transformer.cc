#include "lockstep/nn/transformer.h"

#include "lockstep/nn/output_observer.h"
#include "lockstep/nn/sizes.h"

namespace lockstep {

TransformerEncoderLayer::TransformerEncoderLayer(TransformerEncoderLayerOptions options)
    : options_(options), self_attn_(make<MultiheadAttention>("self_attn", {.embed_dim = options.d_model,
                                                                           .num_heads = options.nhead,
                                                                           .dropout = options.dropout,
                                                                           .batch_first = options.batch_first})),
      linear1_(make<Linear>("linear1", {.in_features = options.d_model, .out_features = options.dim_feedforward})),
      dropout_(make<Dropout>("dropout", options.dropout)),
      linear2_(make<Linear>("linear2", {.in_features = options.dim_feedforward, .out_features = options.d_model})),
      norm1_(make<LayerNorm>("norm1", {.normalized_shape = {options.d_model}, .eps = options.layer_norm_eps})),
      norm2_(make<LayerNorm>("norm2", {.normalized_shape = {options.d_model}, .eps = options.layer_norm_eps})),
      dropout1_(make<Dropout>("dropout1", options.dropout)), dropout2_(make<Dropout>("dropout2", options.dropout)) {
  check(options_.activation != nullptr, "transformer encoder layer: no activation, expected relu, gelu, ...");
}

TransformerEncoderLayer::TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 TransformerEncoderLayerOptions more)
    : TransformerEncoderLayer((set_size("transformer encoder layer", "d_model", more.d_model, d_model),
                               set_size<std::int64_t>("transformer encoder layer", "nhead", more.nhead, nhead, 1),
                               more)) {}

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
