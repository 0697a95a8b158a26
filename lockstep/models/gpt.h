// A GPT like GPT-2, of any size.
//
//   GPT gpt({.vocab_size = 65, .block_size = 128});
//   gpt.initialize(Normal(0.02));
//   Tensor logits = gpt(ids);                       // i64 [N, T] -> [N, T, 65]
//   auto more = gpt.generate(prompt, {.seed = 1});  // language_model.h
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/models/language_model.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/key_value_cache.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module_list.h"
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
  // lm_head and wte share their weight, as in GPT-2: one parameter with both names in the state_dict.
  bool tie_weights = false;
};

// Causal self-attention, [N, T, n_embd] -> [N, T, n_embd]. One linear layer computes the queries, keys, and values of
// all heads.
class CausalSelfAttention : public Module {
 public:
  explicit CausalSelfAttention(const GPTOptions& options);
  Tensor forward(const Tensor& x) override;
  // x follows the tokens in the cache; see KeyValueCache::attend(). Throws in training mode with dropout.
  Tensor forward(const Tensor& x, KeyValueCache& cache, std::int64_t layer);

 private:
  // Queries, keys, and values: 3 x [N, heads, T, n_embd / heads].
  std::vector<Tensor> heads(const Tensor& x);
  Tensor joined(const Tensor& y);

  GPTOptions options_;
  Linear c_attn_, c_proj_;
  Dropout resid_dropout_;
};

// Two linear layers with GELU between them; the hidden layer has 4 n_embd features: [.., n_embd] -> [.., n_embd].
class GPTMlp : public Module {
 public:
  explicit GPTMlp(const GPTOptions& options);
  Tensor forward(const Tensor& x) override { return dropout_(c_proj_(gelu(c_fc_(x)))); }

 private:
  Linear c_fc_, c_proj_;
  Dropout dropout_;
};

// y = x + attn(ln_1(x)); returns y + mlp(ln_2(y)): [N, T, n_embd] -> [N, T, n_embd].
class GPTBlock : public Module {
 public:
  explicit GPTBlock(const GPTOptions& options);
  Tensor forward(const Tensor& x) override;
  Tensor forward(const Tensor& x, KeyValueCache& cache, std::int64_t layer);

 private:
  LayerNorm ln_1_;
  CausalSelfAttention attn_;
  LayerNorm ln_2_;
  GPTMlp mlp_;
};

// A GPT without its last layer: i64 [N, T] -> [N, T, n_embd].
class GPTBody : public Module {
 public:
  explicit GPTBody(const GPTOptions& options);
  Tensor forward(const Tensor& ids) override;
  // ids follow the tokens in the cache, which gets them, too.
  Tensor forward(const Tensor& ids, KeyValueCache& cache);

 private:
  // The embeddings of tokens and positions, which begin with `first`.
  Tensor embedded(const Tensor& ids, std::int64_t first);

  Embedding wte_, wpe_;
  DType dtype_;
  Dropout drop_;
  ModuleList<GPTBlock> h_;
  LayerNorm ln_f_;
};

// A language model like GPT-2 (Radford et al. 2019), i64 [N, T] -> logits [N, T, vocab_size]: learned positions,
// pre-norm blocks, and a final layer norm. Parameters are named as in nanoGPT: transformer.wte.weight,
// transformer.h.0.attn.c_attn.weight, ..., lm_head.weight. GPT-2 starts with Normal(0.02).
// Throws if n_head does not divide n_embd, and in forward() if T is 0 or above block_size.
class GPT : public LanguageModel {
 public:
  explicit GPT(const GPTOptions& options);
  Tensor forward(const Tensor& ids) override { return lm_head_(transformer_(ids)); }
  // The logits of tokens that follow those in the cache, which gets them, too. The cache has n_layer layers, and room
  // for at most block_size tokens. Use decoder() where the bits of forward(ids) matter; it says where there are such.
  Tensor forward(const Tensor& ids, KeyValueCache& cache) { return lm_head_(transformer_.forward(ids, cache)); }
  // block_size.
  std::int64_t longest() const override { return options_.block_size; }
  std::unique_ptr<TokenDecoder> decoder() override;

 private:
  GPTOptions options_;
  GPTBody transformer_;
  Linear lm_head_;
};

}  // namespace lockstep
