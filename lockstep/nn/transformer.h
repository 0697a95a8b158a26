// The transformer encoder layer (Vaswani et al. 2017).
//
//   TransformerEncoderLayer layer(64, 4, {.batch_first = true});
//   Tensor y = layer(x, {.is_causal = true});  // x [N, L, 64]
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/autograd/functions.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
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
  // True: normalizes the input of each of the two parts (pre-norm). False: normalizes the sum of its input and output.
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

}  // namespace lockstep
