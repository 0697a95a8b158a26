// A language model like GPT-2, of any size.
#pragma once

#include "lockstep/nn/container.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/layers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/normalization.h"

namespace LOCKSTEP_API lockstep {

struct GPTOptions {
  std::int64_t vocab_size = 0;
  std::int64_t block_size = 128;  // the longest sequence
  std::int64_t n_layer = 4;
  std::int64_t n_head = 4;
  std::int64_t n_embd = 128;
  double dropout = 0.1;
  // The sum of both embeddings is cast to this type, and all later layers compute in it: f32, or bf16 or f16 with f32
  // weights.
  DType dtype = DType::f32;
};

// Attention of each place to those before it, all heads' projections in one dense layer: [N, T, n_embd] -> the same.
class CausalSelfAttention : public Module {
 public:
  explicit CausalSelfAttention(const GPTOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  GPTOptions options_;
  Linear c_attn_, c_proj_;
  Dropout resid_dropout_;
};

// Two dense layers with GELU between them, of four times the features.
class GPTMlp : public Module {
 public:
  explicit GPTMlp(const GPTOptions& options);
  Tensor forward(const Tensor& x) override { return dropout_(c_proj_(gelu(c_fc_(x)))); }

 private:
  Linear c_fc_, c_proj_;
  Dropout dropout_;
};

// y = x + attn(ln_1(x)), and y + mlp(ln_2(y)).
class GPTBlock : public Module {
 public:
  explicit GPTBlock(const GPTOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  LayerNorm ln_1_;
  CausalSelfAttention attn_;
  LayerNorm ln_2_;
  GPTMlp mlp_;
};

// All of a GPT but its last layer: i64 [N, T] -> [N, T, n_embd].
class GPTBody : public Module {
 public:
  explicit GPTBody(const GPTOptions& options);
  Tensor forward(const Tensor& ids) override;

 private:
  Embedding wte_, wpe_;
  DType dtype_;
  Dropout drop_;
  ModuleList<GPTBlock> h_;
  LayerNorm ln_f_;
};

// A language model of the shape of GPT-2 (Radford et al. 2019): learned positions, blocks that normalize first, a
// last layer norm, and logits: i64 [N, T] -> [N, T, vocab_size]. Parameters are named as in nanoGPT:
// transformer.wte.weight, transformer.h.0.attn.c_attn.weight, ..., lm_head.weight; lm_head has a weight of its own.
// Normal{0.02} starts it as GPT-2.
class GPT : public Module {
 public:
  explicit GPT(const GPTOptions& options);
  Tensor forward(const Tensor& ids) override { return lm_head_(transformer_(ids)); }

 private:
  GPTBody transformer_;
  Linear lm_head_;
};

}  // namespace lockstep
