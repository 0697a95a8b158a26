// The layer that transformer encoders repeat, under PyTorch's names.
#pragma once

#include <functional>

#include "lockstep/nn/attention.h"
#include "lockstep/nn/layers.h"
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
  // Each part gets a normalized input; otherwise its sum with the input is normalized.
  bool norm_first = false;
};

struct TransformerMasks {
  Tensor src_mask = {};              // as MultiheadMasks::attn_mask
  Tensor src_key_padding_mask = {};  // as MultiheadMasks::key_padding_mask
  bool is_causal = false;
};

// Self-attention and a net of two dense layers, each with dropout, a shortcut, and a layer norm (Vaswani et al.
// 2017). Names of parameters are PyTorch's: self_attn.in_proj_weight, ..., linear1, linear2, norm1, norm2.
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
  MultiheadAttention self_attn_;
  Linear linear1_, linear2_;
  LayerNorm norm1_, norm2_;
  Dropout dropout_, dropout1_, dropout2_;
};

}  // namespace lockstep
