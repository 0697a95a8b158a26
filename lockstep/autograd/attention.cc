#include "lockstep/autograd/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Replaces scores by -infinity where a key comes after the query.
Tensor without_later_keys(const Tensor& scores) {
  const Placed placed = place_as("attention", scores);
  if (placed.kind == Kind::cut && placed.cut.axis >= scores.shape().dim() - 2)
    fail_across_batch("attention", scores, "and they would see each other");
  return lift("attention", placed, {scores}, [](const Arrays& in) -> Lifted {
    const Device device = in[0].device();
    // f32 holds indices up to 2^24 exactly, and every back end compares it quickly.
    const DType dtype = std::max(in[0].size(-2), in[0].size(-1)) < (1 << 24) ? DType::f32 : DType::i64;
    const Array query = ops::reshape(ops::arange(in[0].size(-2), dtype, device), {in[0].size(-2), 1});
    const Array key = ops::arange(in[0].size(-1), dtype, device);
    const Array later = ops::compare(CompareOp::lt, query, key);
    return {ops::where(later, ops::scalar_like(in[0], -kInfinity), in[0]),
            [later](const PartPass&, const Array& dy) -> Arrays {
              return {ops::where(later, ops::scalar_like(dy, 0), dy)};
            }};
  });
}

}  // namespace

Tensor attention_weights(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  check(query.defined() && key.defined() && query.shape().dim() >= 2 && key.shape().dim() >= 2 &&
            query.size(-1) == key.size(-1) && query.size(-1) > 0,
        "attention: query {} and key {}, expected [.., L, E] and [.., S, E]", query, key);
  check(options.dropout_p >= 0 && options.dropout_p <= 1, "attention: dropout {}, expected 0 to 1", options.dropout_p);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  Tensor scores = matmul(query * scale, transpose(key, -2, -1));
  const Shape shape = scores.shape();
  if (const Tensor mask = beside(scores, options.attn_mask); mask.defined()) {
    check(is_mask(mask.dtype()) || is_floating(mask.dtype()), "attention: mask is {}, expected bool or floating", mask);
    scores = is_mask(mask.dtype()) ? where(mask, scores, -kInfinity) : scores + cast(mask, scores.dtype());
    check(scores.shape() == shape, "attention: mask is {}, expected one that broadcasts to {}", mask, shape);
  }
  if (options.is_causal) scores = without_later_keys(scores);
  const Tensor weights = softmax(scores, -1);
  return options.dropout_p > 0 ? dropout(weights, options.dropout_p) : weights;
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  check(key.defined() && value.defined() && value.shape().dim() >= 2 && key.shape().dim() >= 2 &&
            value.size(-2) == key.size(-2),
        "attention: key {} and value {}, expected as many rows", key, value);
  return matmul(attention_weights(query, key, options), value);
}

}  // namespace lockstep
