// Transformers (Vaswani et al. 2017): layers of the encoder and of the decoder, stacks of them, and both together.
//
//   TransformerEncoder encoder({.layer = {.d_model = 64, .nhead = 4, .batch_first = true}, .num_layers = 6});
//   Tensor y = encoder(x, {.is_causal = true});  // x [N, L, 64]
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/autograd/functions.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module_list.h"
#include "lockstep/nn/normalization.h"

namespace LOCKSTEP_API lockstep {

struct TransformerEncoderLayerOptions {
  std::int64_t d_model = 0;
  std::int64_t nhead = 1;
  std::int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::function<Tensor(const Tensor&)> activation = relu;  // or gelu
  double layer_norm_eps = 1e-5;
  bool batch_first = false;  // [N, L, d_model] instead of [L, N, d_model]
  // True: normalizes the input of each part (pre-norm). False: normalizes the sum of a part's input and output.
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
  TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead, TransformerEncoderLayerOptions more = {});
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

struct TransformerEncoderOptions {
  TransformerEncoderLayerOptions layer = {};
  std::int64_t num_layers = 1;
  bool norm = false;  // a layer norm after the last layer
};

// Layers one after the other: layers.0, layers.1, ..., and norm.
class TransformerEncoder : public Module {
 public:
  using Options = TransformerEncoderOptions;
  explicit TransformerEncoder(TransformerEncoderOptions options);
  TransformerEncoder(const TransformerEncoderLayerOptions& layer, std::int64_t num_layers, bool norm = false)
      : TransformerEncoder(Options{layer, num_layers, norm}) {}
  // Every layer uses the masks.
  Tensor forward(const Tensor& src, const TransformerMasks& masks);
  Tensor forward(const Tensor& src) override { return forward(src, TransformerMasks{}); }
  using Module::operator();
  Tensor operator()(const Tensor& src, const TransformerMasks& masks);

 private:
  ModuleList<TransformerEncoderLayer>& layers_;
  LayerNorm* norm_ = nullptr;
};

// Masks for the attention of the target to itself, and to the memory, which is the encoder's output.
struct TransformerDecoderMasks {
  Tensor tgt_mask = {};                 // see MultiheadMasks::attn_mask
  Tensor memory_mask = {};              // the same for the memory's positions
  Tensor tgt_key_padding_mask = {};     // see MultiheadMasks::key_padding_mask
  Tensor memory_key_padding_mask = {};  // the same for the memory's positions
  bool tgt_is_causal = false;
  bool memory_is_causal = false;
};

// The same options as the encoder's layer.
using TransformerDecoderLayerOptions = TransformerEncoderLayerOptions;

// Self-attention, attention to the memory, and a feed-forward network of two linear layers, each with dropout, a
// residual connection, and a layer norm. Names of parameters are PyTorch's: self_attn, multihead_attn, linear1,
// linear2, norm1, norm2, norm3.
class TransformerDecoderLayer : public Module {
 public:
  using Options = TransformerDecoderLayerOptions;
  explicit TransformerDecoderLayer(TransformerDecoderLayerOptions options);
  TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead, TransformerDecoderLayerOptions more = {});
  Tensor forward(const Tensor& tgt, const Tensor& memory, const TransformerDecoderMasks& masks = {});
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderMasks& masks = {});

 private:
  using Module::forward;  // hidden, and without a warning of clang
  Tensor self_part(const Tensor& x, const TransformerDecoderMasks& masks);
  Tensor memory_part(const Tensor& x, const Tensor& memory, const TransformerDecoderMasks& masks);
  Tensor dense_part(const Tensor& x);

  TransformerDecoderLayerOptions options_;
  MultiheadAttention &self_attn_, &multihead_attn_;
  Linear& linear1_;
  Dropout& dropout_;
  Linear& linear2_;
  LayerNorm &norm1_, &norm2_, &norm3_;
  Dropout &dropout1_, &dropout2_, &dropout3_;
};

// The same options as the encoder.
using TransformerDecoderOptions = TransformerEncoderOptions;

// Layers one after the other, which all attend to the memory: layers.0, layers.1, ..., and norm.
class TransformerDecoder : public Module {
 public:
  using Options = TransformerDecoderOptions;
  explicit TransformerDecoder(TransformerDecoderOptions options);
  TransformerDecoder(const TransformerDecoderLayerOptions& layer, std::int64_t num_layers, bool norm = false)
      : TransformerDecoder(Options{layer, num_layers, norm}) {}
  Tensor forward(const Tensor& tgt, const Tensor& memory, const TransformerDecoderMasks& masks = {});
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderMasks& masks = {});

 private:
  using Module::forward;  // hidden, and without a warning of clang
  ModuleList<TransformerDecoderLayer>& layers_;
  LayerNorm* norm_ = nullptr;
};

// PyTorch's defaults are those of the paper.
struct TransformerOptions {
  std::int64_t d_model = 512;
  std::int64_t nhead = 8;
  std::int64_t num_encoder_layers = 6;
  std::int64_t num_decoder_layers = 6;
  std::int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::function<Tensor(const Tensor&)> activation = relu;
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
};

// An encoder and a decoder, each with a norm after its last layer. By default, all weight matrices begin with Xavier's
// initial values.
class Transformer : public Module {
 public:
  using Options = TransformerOptions;
  explicit Transformer(const TransformerOptions& options = {});
  Transformer(std::int64_t d_model, std::int64_t nhead, const TransformerOptions& more = {});
  Tensor forward(const Tensor& src, const Tensor& tgt, const TransformerMasks& src_masks = {},
                 const TransformerDecoderMasks& tgt_masks = {});
  Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerMasks& src_masks = {},
                    const TransformerDecoderMasks& tgt_masks = {}) {
    return forward(src, tgt, src_masks, tgt_masks);
  }

  TransformerEncoder& encoder;
  TransformerDecoder& decoder;

 private:
  using Module::forward;
};

}  // namespace lockstep
