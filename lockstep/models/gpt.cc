#include "lockstep/models/gpt.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"

namespace lockstep {
namespace {

class GPTDecoder : public TokenDecoder {
 public:
  GPTDecoder(GPT& gpt, const GPTOptions& options) : gpt_(gpt), cache_(options.n_layer, options.block_size) {}
  Tensor next(const Tensor& ids) override {
    const NoGradGuard no_grad;
    const EvalGuard evaluation(gpt_);
    const ForwardScope scope(gpt_);
    return gpt_.forward(gpt_.placed(ids), cache_);
  }

 private:
  GPT& gpt_;
  KeyValueCache cache_;
};

}  // namespace

CausalSelfAttention::CausalSelfAttention(const GPTOptions& options)
    : options_(options), c_attn_({.in_features = options.n_embd, .out_features = 3 * options.n_embd}),
      c_proj_({.in_features = options.n_embd, .out_features = options.n_embd}), resid_dropout_(options.dropout) {
  check(options.n_head > 0 && options.n_embd % options.n_head == 0, "gpt: {} heads do not divide {} features",
        options.n_head, options.n_embd);
  add("c_attn", c_attn_);
  add("c_proj", c_proj_);
  add("resid_dropout", resid_dropout_);
}

std::vector<Tensor> CausalSelfAttention::heads(const Tensor& x) {
  return unbind(permute(unflatten(c_attn_(x), 2, {3, options_.n_head, -1}), {2, 0, 3, 1, 4}));
}

Tensor CausalSelfAttention::joined(const Tensor& y) {
  return resid_dropout_(c_proj_(flatten(permute(y, {0, 2, 1, 3}), 2)));
}

Tensor CausalSelfAttention::forward(const Tensor& x) {
  const auto parts = heads(x);
  return joined(scaled_dot_product_attention(parts[0], parts[1], parts[2],
                                             {.dropout_p = training() ? options_.dropout : 0, .is_causal = true}));
}

Tensor CausalSelfAttention::forward(const Tensor& x, KeyValueCache& cache, std::int64_t layer) {
  check(!training() || options_.dropout == 0,
        "gpt: a cache, which would ignore dropout {}, in training mode, expected evaluation mode", options_.dropout);
  const auto parts = heads(x);
  return joined(cache.attend(layer, parts[0], parts[1], parts[2]));
}

GPTMlp::GPTMlp(const GPTOptions& options)
    : c_fc_({.in_features = options.n_embd, .out_features = 4 * options.n_embd}),
      c_proj_({.in_features = 4 * options.n_embd, .out_features = options.n_embd}), dropout_(options.dropout) {
  add("c_fc", c_fc_);
  add("c_proj", c_proj_);
  add("dropout", dropout_);
}

GPTBlock::GPTBlock(const GPTOptions& options)
    : ln_1_({.normalized_shape = {options.n_embd}}), attn_(options), ln_2_({.normalized_shape = {options.n_embd}}),
      mlp_(options) {
  add("ln_1", ln_1_);
  add("attn", attn_);
  add("ln_2", ln_2_);
  add("mlp", mlp_);
}

Tensor GPTBlock::forward(const Tensor& x) {
  const Tensor y = x + attn_(ln_1_(x));
  return y + mlp_(ln_2_(y));
}

Tensor GPTBlock::forward(const Tensor& x, KeyValueCache& cache, std::int64_t layer) {
  const Tensor y = x + attn_.forward(ln_1_(x), cache, layer);
  return y + mlp_(ln_2_(y));
}

GPTBody::GPTBody(const GPTOptions& options)
    : wte_({.num_embeddings = options.vocab_size, .embedding_dim = options.n_embd}),
      wpe_({.num_embeddings = options.block_size, .embedding_dim = options.n_embd}), dtype_(options.dtype),
      drop_(options.dropout), ln_f_({.normalized_shape = {options.n_embd}}) {
  check(options.n_layer > 0, "gpt: {} layers, expected at least 1", options.n_layer);
  for (std::int64_t i = 0; i < options.n_layer; ++i) h_.append(options);
  add("wte", wte_);
  add("wpe", wpe_);
  add("drop", drop_);
  add("h", h_);
  add("ln_f", ln_f_);
}

Tensor GPTBody::embedded(const Tensor& ids, std::int64_t first) {
  const std::int64_t longest = wpe_.weight.shape()[0];
  check(ids.defined() && ids.shape().dim() == 2 && ids.size(1) > 0 && ids.size(1) <= longest - first,
        "gpt: input is {}{}, expected 2 axes (N, T), of 1 to {} steps", ids.describe(),
        first > 0 ? fmt::format(" after {} steps", first) : "", longest - first);
  return drop_((wte_(ids) + narrow(wpe_.weight, 0, first, ids.size(1))).to(dtype_));
}

Tensor GPTBody::forward(const Tensor& ids) {
  Tensor x = embedded(ids, 0);
  for (GPTBlock& block : h_) x = block(x);
  return ln_f_(x);
}

Tensor GPTBody::forward(const Tensor& ids, KeyValueCache& cache) {
  Tensor x = embedded(ids, cache.length());
  std::int64_t layer = 0;
  for (GPTBlock& block : h_) x = block.forward(x, cache, layer++);
  cache.advance(ids.size(1));
  return ln_f_(x);
}

GPT::GPT(const GPTOptions& options)
    : options_(options), transformer_(options),
      lm_head_({.in_features = options.n_embd,
                .out_features = options.vocab_size,
                .bias = false,
                .weight = options.tie_weights ? transformer_["wte.weight"] : Parameter()}) {
  add("transformer", transformer_);
  add("lm_head", lm_head_);
}

std::unique_ptr<TokenDecoder> GPT::decoder() {
  if (!computes_rows(typeid(GPT), options_.dtype)) return nullptr;
  return std::make_unique<GPTDecoder>(*this, options_);
}

}  // namespace lockstep
