// A language model of Llama's shape, as docs/models.md shows it: grouped-query attention, rotary positions, SwiGLU.
// Parameters have the names of Hugging Face's LlamaForCausalLM.
#pragma once

#include <lockstep/nn/embedding.h>
#include <lockstep/nn/feed_forward.h>
#include <lockstep/nn/linear.h>
#include <lockstep/nn/module.h>
#include <lockstep/nn/module_list.h>
#include <lockstep/nn/normalization.h>
#include <lockstep/nn/rotary.h>

namespace llama {

using namespace lockstep;

struct LlamaOptions {
  std::int64_t vocab_size, dim, hidden_dim, n_layers, n_heads, n_kv_heads;
};

// [N, L, dim] -> [N, L, dim]
struct Attention : Module {
  std::int64_t size;  // of a head
  Linear &q_proj, &k_proj, &v_proj, &o_proj;
  RotaryPositionalEmbeddings& rope;
  explicit Attention(const LlamaOptions& o)
      : size(o.dim / o.n_heads), q_proj(make<Linear>("q_proj", o.dim, o.n_heads * size, {.bias = false})),
        k_proj(make<Linear>("k_proj", o.dim, o.n_kv_heads * size, {.bias = false})),
        v_proj(make<Linear>("v_proj", o.dim, o.n_kv_heads * size, {.bias = false})),
        o_proj(make<Linear>("o_proj", o.n_heads * size, o.dim, {.bias = false})),
        rope(make<RotaryPositionalEmbeddings>("rope", size, {.interleaved = false})) {}
  Tensor forward(const Tensor& x) override {
    auto heads = [&](Linear& proj) { return unflatten(proj(x), 2, {-1, size}); };  // [N, L, heads, size]
    Tensor q = transpose(rope(heads(q_proj)), 1, 2), k = transpose(rope(heads(k_proj)), 1, 2);
    Tensor v = transpose(heads(v_proj), 1, 2);
    Tensor y = scaled_dot_product_attention(q, k, v, {.is_causal = true, .enable_gqa = true});
    return o_proj(flatten(transpose(y, 1, 2), 2));
  }
};

struct Block : Module {
  RMSNorm& input_layernorm;
  Attention& self_attn;
  RMSNorm& post_attention_layernorm;
  FeedForward& mlp;
  explicit Block(const LlamaOptions& o)
      : input_layernorm(make<RMSNorm>("input_layernorm", o.dim, {.eps = 1e-5})),
        self_attn(make<Attention>("self_attn", o)),
        post_attention_layernorm(make<RMSNorm>("post_attention_layernorm", o.dim, {.eps = 1e-5})),
        mlp(make<FeedForward>("mlp", o.dim, o.hidden_dim)) {}
  Tensor forward(const Tensor& x) override {
    Tensor y = x + self_attn(input_layernorm(x));
    return y + mlp(post_attention_layernorm(y));
  }
};

struct Body : Module {
  Embedding& embed_tokens;
  ModuleList<Block>& layers;
  RMSNorm& norm;
  explicit Body(const LlamaOptions& o)
      : embed_tokens(make<Embedding>("embed_tokens", o.vocab_size, o.dim)), layers(make<ModuleList<Block>>("layers")),
        norm(make<RMSNorm>("norm", o.dim, {.eps = 1e-5})) {
    for (std::int64_t i = 0; i < o.n_layers; ++i) layers.append(o);
  }
  Tensor forward(const Tensor& ids) override {
    Tensor x = embed_tokens(ids);
    for (Block& block : layers) x = block(x);
    return norm(x);
  }
};

// i64 [N, L] -> logits [N, L, vocab_size]
struct Llama : Module {
  Body& model;
  Linear& lm_head;
  explicit Llama(const LlamaOptions& o)
      : model(make<Body>("model", o)), lm_head(make<Linear>("lm_head", o.dim, o.vocab_size, {.bias = false})) {}
  Tensor forward(const Tensor& ids) override { return lm_head(model(ids)); }
};

}  // namespace llama
