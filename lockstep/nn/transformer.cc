#include "lockstep/nn/transformer.h"

#include "lockstep/nn/output_observer.h"
#include "lockstep/nn/sizes.h"

namespace lockstep {
namespace {

MultiheadAttentionOptions attention_of(const TransformerEncoderLayerOptions& o) {
  return {.embed_dim = o.d_model, .num_heads = o.nhead, .dropout = o.dropout, .batch_first = o.batch_first};
}

LayerNormOptions norm_of(const TransformerEncoderLayerOptions& o) {
  return {.normalized_shape = {o.d_model}, .eps = o.layer_norm_eps};
}

TransformerEncoderLayerOptions layer_with_sizes(std::string_view name, TransformerEncoderLayerOptions more,
                                                std::int64_t d_model, std::int64_t nhead) {
  set_size(name, "d_model", more.d_model, d_model);
  set_size<std::int64_t>(name, "nhead", more.nhead, nhead, 1);
  return more;
}

// Makes the layers of a stack.
template <typename List>
void append_layers(std::string_view name, List& layers, const TransformerEncoderOptions& options) {
  check(options.num_layers > 0, "{}: {} layers, expected at least 1", name, options.num_layers);
  for (std::int64_t i = 0; i < options.num_layers; ++i) layers.append(options.layer);
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(TransformerEncoderLayerOptions options)
    : options_(options), self_attn_(make<MultiheadAttention>("self_attn", attention_of(options))),
      linear1_(make<Linear>("linear1", {.in_features = options.d_model, .out_features = options.dim_feedforward})),
      dropout_(make<Dropout>("dropout", options.dropout)),
      linear2_(make<Linear>("linear2", {.in_features = options.dim_feedforward, .out_features = options.d_model})),
      norm1_(make<LayerNorm>("norm1", norm_of(options))), norm2_(make<LayerNorm>("norm2", norm_of(options))),
      dropout1_(make<Dropout>("dropout1", options.dropout)), dropout2_(make<Dropout>("dropout2", options.dropout)) {
  check(options_.activation != nullptr, "transformer encoder layer: no activation, expected relu, gelu, ...");
}

TransformerEncoderLayer::TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 TransformerEncoderLayerOptions more)
    : TransformerEncoderLayer(layer_with_sizes("transformer encoder layer", more, d_model, nhead)) {}

Tensor TransformerEncoderLayer::operator()(const Tensor& src, const TransformerMasks& masks) {
  return OutputObserver::reported(*this, forward(src, masks));
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

TransformerEncoder::TransformerEncoder(TransformerEncoderOptions options)
    : layers_(make<ModuleList<TransformerEncoderLayer>>("layers")) {
  append_layers("transformer encoder", layers_, options);
  if (options.norm) norm_ = &make<LayerNorm>("norm", norm_of(options.layer));
}

Tensor TransformerEncoder::operator()(const Tensor& src, const TransformerMasks& masks) {
  return OutputObserver::reported(*this, forward(src, masks));
}

Tensor TransformerEncoder::forward(const Tensor& src, const TransformerMasks& masks) {
  Tensor y = src;
  for (TransformerEncoderLayer& layer : layers_) y = layer(y, masks);
  return norm_ ? (*norm_)(y) : y;
}

TransformerDecoderLayer::TransformerDecoderLayer(TransformerDecoderLayerOptions options)
    : options_(options), self_attn_(make<MultiheadAttention>("self_attn", attention_of(options))),
      multihead_attn_(make<MultiheadAttention>("multihead_attn", attention_of(options))),
      linear1_(make<Linear>("linear1", {.in_features = options.d_model, .out_features = options.dim_feedforward})),
      dropout_(make<Dropout>("dropout", options.dropout)),
      linear2_(make<Linear>("linear2", {.in_features = options.dim_feedforward, .out_features = options.d_model})),
      norm1_(make<LayerNorm>("norm1", norm_of(options))), norm2_(make<LayerNorm>("norm2", norm_of(options))),
      norm3_(make<LayerNorm>("norm3", norm_of(options))), dropout1_(make<Dropout>("dropout1", options.dropout)),
      dropout2_(make<Dropout>("dropout2", options.dropout)), dropout3_(make<Dropout>("dropout3", options.dropout)) {
  check(options_.activation != nullptr, "transformer decoder layer: no activation, expected relu, gelu, ...");
}

TransformerDecoderLayer::TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 TransformerDecoderLayerOptions more)
    : TransformerDecoderLayer(layer_with_sizes("transformer decoder layer", more, d_model, nhead)) {}

Tensor TransformerDecoderLayer::operator()(const Tensor& tgt, const Tensor& memory,
                                           const TransformerDecoderMasks& masks) {
  return OutputObserver::reported(*this, forward(tgt, memory, masks));
}

Tensor TransformerDecoderLayer::self_part(const Tensor& x, const TransformerDecoderMasks& masks) {
  return dropout1_(self_attn_.attend(
      x, x, x,
      {.key_padding_mask = masks.tgt_key_padding_mask, .attn_mask = masks.tgt_mask, .is_causal = masks.tgt_is_causal}));
}

Tensor TransformerDecoderLayer::memory_part(const Tensor& x, const Tensor& memory,
                                            const TransformerDecoderMasks& masks) {
  return dropout2_(multihead_attn_.attend(x, memory, memory,
                                          {.key_padding_mask = masks.memory_key_padding_mask,
                                           .attn_mask = masks.memory_mask,
                                           .is_causal = masks.memory_is_causal}));
}

Tensor TransformerDecoderLayer::dense_part(const Tensor& x) {
  return dropout3_(linear2_(dropout_(options_.activation(linear1_(x)))));
}

Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory, const TransformerDecoderMasks& masks) {
  if (options_.norm_first) {
    const Tensor x = tgt + self_part(norm1_(tgt), masks);
    const Tensor y = x + memory_part(norm2_(x), memory, masks);
    return y + dense_part(norm3_(y));
  }
  const Tensor x = norm1_(tgt + self_part(tgt, masks));
  const Tensor y = norm2_(x + memory_part(x, memory, masks));
  return norm3_(y + dense_part(y));
}

TransformerDecoder::TransformerDecoder(TransformerDecoderOptions options)
    : layers_(make<ModuleList<TransformerDecoderLayer>>("layers")) {
  append_layers("transformer decoder", layers_, options);
  if (options.norm) norm_ = &make<LayerNorm>("norm", norm_of(options.layer));
}

Tensor TransformerDecoder::operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderMasks& masks) {
  return OutputObserver::reported(*this, forward(tgt, memory, masks));
}

Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory, const TransformerDecoderMasks& masks) {
  Tensor y = tgt;
  for (TransformerDecoderLayer& layer : layers_) y = layer(y, memory, masks);
  return norm_ ? (*norm_)(y) : y;
}

namespace {

TransformerEncoderLayerOptions layer_of(const TransformerOptions& o) {
  return {.d_model = o.d_model,
          .nhead = o.nhead,
          .dim_feedforward = o.dim_feedforward,
          .dropout = o.dropout,
          .activation = o.activation,
          .layer_norm_eps = o.layer_norm_eps,
          .batch_first = o.batch_first,
          .norm_first = o.norm_first};
}

TransformerOptions with_sizes(TransformerOptions more, std::int64_t d_model, std::int64_t nhead) {
  set_size<std::int64_t>("transformer", "d_model", more.d_model, d_model, TransformerOptions().d_model);
  set_size<std::int64_t>("transformer", "nhead", more.nhead, nhead, TransformerOptions().nhead);
  return more;
}

}  // namespace

Transformer::Transformer(const TransformerOptions& options)
    : encoder(make<TransformerEncoder>(
          "encoder", {.layer = layer_of(options), .num_layers = options.num_encoder_layers, .norm = true})),
      decoder(make<TransformerDecoder>(
          "decoder", {.layer = layer_of(options), .num_layers = options.num_decoder_layers, .norm = true})) {
  // As in PyTorch, this includes parameters whose layers have other initial values.
  for (const Parameter& p : parameters()) {
    if (p.shape().dim() > 1) p.set_default_initializer(Xavier{});
  }
}

Transformer::Transformer(std::int64_t d_model, std::int64_t nhead, const TransformerOptions& more)
    : Transformer(with_sizes(more, d_model, nhead)) {}

Tensor Transformer::forward(const Tensor& src, const Tensor& tgt, const TransformerMasks& src_masks,
                            const TransformerDecoderMasks& tgt_masks) {
  return OutputObserver::reported(*this, decoder(tgt, encoder(src, src_masks), tgt_masks));
}

}  // namespace lockstep
