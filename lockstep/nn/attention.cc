#include "lockstep/nn/attention.h"

#include <limits>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/nn/output_observer.h"
#include "lockstep/nn/sizes.h"

namespace lockstep {
namespace {

// Returns the bias that a mask adds to the scores.
Tensor as_bias(std::string_view what, const Tensor& mask, DType dtype) {
  check(is_mask(mask.dtype()) || is_floating(mask.dtype()), "multihead attention: {} is {}, expected bool or floating",
        what, mask);
  if (!is_mask(mask.dtype())) return cast(mask, dtype);
  return masked_fill(zeros_like(cast(mask, dtype)), mask, -std::numeric_limits<double>::infinity());
}

// Checks the options, and returns them with kdim and vdim set.
MultiheadAttentionOptions checked(MultiheadAttentionOptions options) {
  const std::int64_t features = options.embed_dim;
  check(features > 0 && options.num_heads > 0 && features % options.num_heads == 0,
        "multihead attention: {} heads do not divide {} features", options.num_heads, features);
  check(options.dropout >= 0 && options.dropout <= 1, "multihead attention: dropout {}, expected 0 to 1",
        options.dropout);
  check(options.kdim >= 0 && options.vdim >= 0, "multihead attention: kdim {}, vdim {}, expected at least 1",
        options.kdim, options.vdim);
  if (options.kdim == 0) options.kdim = features;
  if (options.vdim == 0) options.vdim = features;
  return options;
}

// Returns whether x has no batch axis. A cut tensor always has one.
bool is_alone(const Tensor& x) { return x.defined() && x.dim() == 2 && x->kind != Kind::cut; }

bool has_one_weight(const MultiheadAttentionOptions& o) { return o.kdim == o.embed_dim && o.vdim == o.embed_dim; }

ParameterOptions projection(std::int64_t rows, std::int64_t columns) {
  return {.shape = {rows, columns}, .default_initializer = Xavier{}};
}

}  // namespace

MultiheadAttention::MultiheadAttention(MultiheadAttentionOptions given) : MultiheadAttention(checked(given), 0) {}

MultiheadAttention::MultiheadAttention(const MultiheadAttentionOptions& options, int)
    : in_proj_weight(has_one_weight(options)
                         ? add_parameter("in_proj_weight", projection(3 * options.embed_dim, options.embed_dim))
                         : Parameter()),
      q_proj_weight(has_one_weight(options)
                        ? Parameter()
                        : add_parameter("q_proj_weight", projection(options.embed_dim, options.embed_dim))),
      k_proj_weight(has_one_weight(options)
                        ? Parameter()
                        : add_parameter("k_proj_weight", projection(options.embed_dim, options.kdim))),
      v_proj_weight(has_one_weight(options)
                        ? Parameter()
                        : add_parameter("v_proj_weight", projection(options.embed_dim, options.vdim))),
      in_proj_bias(options.bias
                       ? add_parameter("in_proj_bias", {.shape = {3 * options.embed_dim}, .initializer = Constant{0}})
                       : Parameter()),
      out_proj(make<Linear>(
          "out_proj", {.in_features = options.embed_dim, .out_features = options.embed_dim, .bias = options.bias})),
      options_(options) {
  if (options.bias) out_proj.bias.set_default_initializer(Constant{0});
}

MultiheadAttention::MultiheadAttention(std::int64_t embed_dim, std::int64_t num_heads, MultiheadAttentionOptions more)
    : MultiheadAttention((set_size("multihead attention", "embed_dim", more.embed_dim, embed_dim),
                          set_size<std::int64_t>("multihead attention", "num_heads", more.num_heads, num_heads, 1),
                          more)) {}

// Projects x by third `part` of the weight, and returns it by heads: [N, heads, L, E / heads].
Tensor MultiheadAttention::heads(const Tensor& x, int part) const {
  const std::int64_t features = options_.embed_dim, expected = part == 0   ? features
                                                               : part == 1 ? options_.kdim
                                                                           : options_.vdim;
  check(x.defined() && x.shape().dim() == 3 && x.size(2) == expected,
        "multihead attention: {} is {}, expected 3 axes ({}, {})",
        part == 0   ? "query"
        : part == 1 ? "key"
                    : "value",
        x, options_.batch_first ? "N, L" : "L, N", expected);
  const auto third = [&](const Parameter& p) { return narrow(p, 0, part * features, features); };
  const bool one_weight = has_one_weight(options_);
  const Parameter& own = part == 0 ? q_proj_weight : part == 1 ? k_proj_weight : v_proj_weight;
  const Tensor y =
      linear(x, one_weight ? third(in_proj_weight) : own.tensor(), options_.bias ? third(in_proj_bias) : Tensor());
  const Tensor split = unflatten(y, 2, {options_.num_heads, -1});
  return options_.batch_first ? permute(split, {0, 2, 1, 3}) : permute(split, {1, 2, 0, 3});
}

MultiheadAttention::Heads MultiheadAttention::all_heads(const Tensor& query, const Tensor& key,
                                                        const Tensor& value) const {
  const Heads x{heads(query, 0), heads(key, 1), heads(value, 2)};
  check(x.k.size(0) == x.q.size(0), "multihead attention: query {} and key {}, expected the same samples", query, key);
  check(x.v.size(2) == x.k.size(2) && x.v.size(0) == x.k.size(0),
        "multihead attention: value is {}, expected {} rows for each of {} samples", value, x.k.size(2), x.k.size(0));
  return x;
}

AttentionOptions MultiheadAttention::attention(const Tensor& q, const Tensor& k, const MultiheadMasks& masks) const {
  const std::int64_t samples = q.size(0), length = q.size(2), keys = k.size(2);
  Tensor bias;
  if (const Tensor& mask = masks.key_padding_mask; mask.defined()) {
    check(mask.shape() == Shape{samples, keys}, "multihead attention: key_padding_mask is {}, expected [{}, {}]", mask,
          samples, keys);
    bias = unsqueeze(unsqueeze(as_bias("key_padding_mask", beside(q, mask), q.dtype()), 1), 1);
  }
  if (const Tensor& mask = masks.attn_mask; mask.defined()) {
    const std::int64_t all = samples * options_.num_heads;
    check(mask.shape() == Shape{length, keys} || mask.shape() == Shape{all, length, keys},
          "multihead attention: attn_mask is {}, expected [{}, {}] or [{}, {}, {}]", mask, length, keys, all, length,
          keys);
    Tensor more = as_bias("attn_mask", beside(q, mask), q.dtype());
    if (mask.shape().dim() == 3) more = more.reshape({samples, options_.num_heads, length, keys});
    bias = bias.defined() ? bias + more : more;
  }
  return {.attn_mask = bias,
          .dropout_p = options_.dropout > 0 && training() ? options_.dropout : 0,
          .is_causal = masks.is_causal};
}

// Joins the heads [N, heads, L, E / heads].
Tensor MultiheadAttention::output(const Tensor& y) {
  const Tensor joined = flatten(options_.batch_first ? permute(y, {0, 2, 1, 3}) : permute(y, {2, 0, 1, 3}), 2);
  return OutputObserver::reported(*this, out_proj(joined));
}

int MultiheadAttention::batch_axis() const { return options_.batch_first ? 0 : 1; }
Tensor MultiheadAttention::as_batch(const Tensor& x) const { return is_alone(x) ? unsqueeze(x, batch_axis()) : x; }
MultiheadMasks MultiheadAttention::as_batch(MultiheadMasks masks) const {
  Tensor& mask = masks.key_padding_mask;
  if (mask.defined() && mask.dim() == 1) mask = unsqueeze(mask, 0);
  return masks;
}

std::pair<Tensor, Tensor> MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                      const MultiheadMasks& masks) {
  if (is_alone(query)) {
    const auto [y, w] = forward(as_batch(query), as_batch(key), as_batch(value), as_batch(masks));
    return {squeeze(y, batch_axis()), squeeze(w, 0)};
  }
  const auto [q, k, v] = all_heads(query, key, value);
  const Tensor w = attention_weights(q, k, attention(q, k, masks));
  return {output(matmul(w, v)), mean(w, 1)};
}

Tensor MultiheadAttention::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const MultiheadMasks& masks) {
  if (is_alone(query))
    return squeeze(attend(as_batch(query), as_batch(key), as_batch(value), as_batch(masks)), batch_axis());
  const auto [q, k, v] = all_heads(query, key, value);
  return output(scaled_dot_product_attention(q, k, v, attention(q, k, masks)));
}

}  // namespace lockstep
