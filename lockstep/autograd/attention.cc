#include "lockstep/autograd/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "lockstep/autograd/autocast.h"
#include "lockstep/autograd/dropout_keys.h"
#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/attention.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_operands(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  check(query.defined() && key.defined() && query.shape().dim() >= 2 && key.shape().dim() >= 2 &&
            query.size(-1) == key.size(-1) && query.size(-1) > 0,
        "attention: query {} and key {}, expected [.., L, E] and [.., S, E]", query, key);
  check(options.dropout_p >= 0 && options.dropout_p <= 1, "attention: dropout {}, expected 0 to 1", options.dropout_p);
  check(options.position >= 0 && options.position <= key.size(-2),
        "attention: position {} among {} keys, expected 0 to {}", options.position, key.size(-2), key.size(-2));
  check(options.is_causal || options.position == 0, "attention: position {} without is_causal, expected 0",
        options.position);
  if (!options.enable_gqa) return;
  const bool has_heads = query.dim() >= 3 && key.dim() >= 3;
  const std::int64_t heads = has_heads ? query.size(-3) : 0, shared = has_heads ? key.size(-3) : 0;
  check(has_heads && (heads == shared || (shared > 0 && heads % shared == 0)),
        "attention: query {} and key {} with enable_gqa, expected [.., Hq, L, E] and [.., Hkv, S, E], where Hkv "
        "divides Hq",
        query, key);
}

// With enable_gqa, repeats each head of x, a key or a value, for the heads of query that share it.
Tensor for_each_head(const Tensor& query, const Tensor& x, const AttentionOptions& options) {
  if (!options.enable_gqa || x.size(-3) == query.size(-3)) return x;
  return repeat_interleave(x, query.size(-3) / x.size(-3), -3);
}

double scale_of(const Tensor& query, const AttentionOptions& options) {
  return options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

// Replaces scores by -infinity where a key comes after the query. Query 0 is at `position` among the keys.
Tensor without_later_keys(const Tensor& scores, std::int64_t position) {
  const Placed placed = place_as("attention", scores);
  if (placed.kind == Kind::cut && placed.cut.axis >= scores.shape().dim() - 2)
    fail_across_batch("attention", scores, "and they would see each other");
  // An export knows the mask of position 0 alone, by its name.
  const std::string_view name = position == 0 ? "attention" : "attention from a position";
  return lift(name, placed, {scores}, [position](const Arrays& in) -> Lifted {
    const Device device = in[0].device();
    // f32 holds indices up to 2^24 exactly, and every back end compares it quickly.
    const DType dtype = std::max(position + in[0].size(-2), in[0].size(-1)) < (1 << 24) ? DType::f32 : DType::i64;
    const Array query = ops::reshape(ops::arange(in[0].size(-2), dtype, device, position), {in[0].size(-2), 1});
    const Array key = ops::arange(in[0].size(-1), dtype, device);
    const Array later = ops::compare(CompareOp::lt, query, key);
    return {ops::where(later, ops::scalar_like(in[0], -kInfinity), in[0]),
            [later](const PartPass&, const Array& dy) -> Arrays {
              return {ops::where(later, ops::scalar_like(dy, 0), dy)};
            }};
  });
}

// Whether attention in one pass can read both: their samples are in the same places, on the same axis before the
// matrices, or they have none.
bool cut_alike(const Tensor& a, const Tensor& b) {
  if (a->kind != Kind::cut || b->kind != Kind::cut) return a->kind != Kind::cut && b->kind != Kind::cut;
  return same_placement(a->at, b->at) && a->cut == b->cut && a->cut.axis < a.dim() - 2;
}

// Whether key and value have a matrix for each matrix of query, or for each group of them along axis -3.
bool heads_fit(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  for (int axis = 0; axis < query.dim() - 2; ++axis) {
    const std::int64_t matrices = key.size(axis);
    if (value.size(axis) != matrices) return false;
    if (matrices == query.size(axis)) continue;
    // check_operands() has seen that the groups of enable_gqa are equal.
    if (axis < query.dim() - 3 || (matrices != 1 && !options.enable_gqa)) return false;
  }
  return true;
}

// How many matrices of query, one after the other, share a matrix of the mask; nothing if the mask does not broadcast
// in such a way, or needs a gradient.
std::optional<std::int64_t> heads_of_mask(const Tensor& query, const Tensor& mask, std::int64_t keys) {
  if (!mask.defined()) return 1;
  const int axes = query.dim(), missing = axes - mask.dim();
  if (mask.requires_grad() || mask.dim() < 2 || missing < 0) return {};
  if (!is_mask(mask.dtype()) && !is_floating(mask.dtype())) return {};
  const auto size = [&](int axis) { return axis < missing ? 1 : mask.size(axis - missing); };
  if ((size(axes - 2) != 1 && size(axes - 2) != query.size(-2)) || (size(axes - 1) != 1 && size(axes - 1) != keys))
    return {};
  int own = axes - 2;  // axes before this one have matrices of their own
  while (own > 0 && size(own - 1) == 1) --own;
  for (int axis = 0; axis < own; ++axis) {
    if (size(axis) != query.size(axis)) return {};
  }
  if (mask->kind == Kind::cut) {
    if (query->kind != Kind::cut || !same_placement(query->at, mask->at)) return {};
    if (query->cut != Cut{mask->cut.axis + missing, mask->cut.outer, mask->cut.inner}) return {};
  } else if (query->kind == Kind::cut && query->cut.axis < own) {
    return {};
  }
  std::int64_t heads = 1;
  for (int axis = own; axis < axes - 2; ++axis) heads *= query.size(axis);
  return heads;
}

// Whether attention is computed in one pass. Shapes, types, placements, and back ends decide it, so every layout of a
// batch gets the same bits.
bool fuses(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  const auto is_f32 = [](const Tensor& x) { return x.dtype() == DType::f32; };
  // Dropout would draw twice for a trace.
  if (ForwardTrace::current() && options.dropout_p > 0) return false;
  if (autocast_dtype() || !is_f32(query) || !is_f32(key) || !is_f32(value)) return false;
  if (query.dim() < 3 || key.dim() != query.dim() || value.dim() != query.dim() || options.dropout_p == 1) return false;
  // The kernel of the backward pass knows no position.
  if (options.position > 0 && (query.requires_grad() || key.requires_grad() || value.requires_grad())) return false;
  if (query.size(-2) == 0 || key.size(-2) == 0 || value.size(-1) == 0) return false;
  if (!cut_alike(query, key) || !cut_alike(query, value) || !heads_fit(query, key, value, options)) return false;
  if (!heads_of_mask(query, options.attn_mask, key.size(-2))) return false;
  return std::ranges::all_of(query.devices(), [](Device d) { return ops::fuses_attention(d, DType::f32); });
}

// [.., n, m] as matrices [count, n, m].
Array as_matrices(const Array& x) {
  std::int64_t count = 1;
  for (int axis = 0; axis + 2 < x.shape().dim(); ++axis) count *= x.size(axis);
  return ops::reshape(ops::to_layout(x, Layout::plain), {count, x.size(-2), x.size(-1)});
}

struct Shapes {
  Shape q, k, v;
};

Tensor attention_in_one_pass(const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionOptions& options) {
  const std::int64_t shared = *heads_of_mask(query, options.attn_mask, key.size(-2));
  Tensor mask = beside(query, options.attn_mask);
  if (mask.defined()) {
    const Tensor zeros = zeros_like(cast(mask, DType::f32));
    mask = is_mask(mask.dtype()) ? where(mask, zeros, -kInfinity) : cast(mask, DType::f32);
  }
  const Tensor inputs[] = {query, key, value, mask};
  const Placed placed = place("attention", inputs);
  DropoutKeys keys(placed);
  const bool saves = query.requires_grad() || key.requires_grad() || value.requires_grad();
  return lift("attention", placed, inputs, [&](const Arrays& in) -> Lifted {
    Shape shape = in[0].shape();
    shape[-1] = in[2].size(-1);
    const Shapes of{in[0].shape(), in[1].shape(), in[2].shape()};
    if (in[0].numel() == 0 || in[2].numel() == 0) {
      return {ops::empty(shape, DType::f32, in[0].device()), [of](const PartPass&, const Array& dy) -> Arrays {
                return {ops::full(of.q, 0, DType::f32, dy.device()), ops::full(of.k, 0, DType::f32, dy.device()),
                        ops::full(of.v, 0, DType::f32, dy.device()), Array()};
              }};
    }
    ops::AttentionOptions o{.scale = scale_of(query, options),
                            .causal = options.is_causal,
                            .position = options.position,
                            .dropout_p = options.dropout_p,
                            .heads_of_mask = shared};
    if (options.dropout_p > 0) o.key = keys.next(in[0]);
    if (in[3].defined()) o.mask = as_matrices(in[3]);
    const Array q = as_matrices(in[0]), k = as_matrices(in[1]), v = as_matrices(in[2]);
    const ops::AttentionResult r = ops::attention(q, k, v, o);
    return {
        ops::reshape(r.y, shape),
        [=, q = SavedArray(saves, q), k = SavedArray(saves, k), v = SavedArray(saves, v), y = SavedArray(saves, r.y),
         mask = SavedArray(saves, o.mask), stats = r.stats](const PartPass& p, const Array& dy) -> Arrays {
          static_cast<void>(mask.get(p.name()));  // o.mask is its memory
          const ops::AttentionResult saved{y.get(p.name()), stats};
          const ops::AttentionGradients d =
              ops::attention_backward(q.get(p.name()), k.get(p.name()), v.get(p.name()), saved, as_matrices(dy), o);
          return {ops::reshape(d.q, of.q), ops::reshape(d.k, of.k), ops::reshape(d.v, of.v), Array()};
        }};
  });
}

}  // namespace

Tensor attention_weights(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  check_operands(query, key, options);
  Tensor scores = matmul(query * scale_of(query, options), transpose(for_each_head(query, key, options), -2, -1));
  const Shape shape = scores.shape();
  if (const Tensor mask = beside(scores, options.attn_mask); mask.defined()) {
    check(is_mask(mask.dtype()) || is_floating(mask.dtype()), "attention: mask is {}, expected bool or floating", mask);
    scores = is_mask(mask.dtype()) ? where(mask, scores, -kInfinity) : scores + cast(mask, scores.dtype());
    check(scores.shape() == shape, "attention: mask is {}, expected one that broadcasts to {}", mask, shape);
  }
  if (options.is_causal) scores = without_later_keys(scores, options.position);
  const Tensor weights = softmax(scores, -1);
  return options.dropout_p > 0 ? dropout(weights, options.dropout_p) : weights;
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  check(key.defined() && value.defined() && value.shape().dim() >= 2 && key.shape().dim() >= 2 &&
            value.size(-2) == key.size(-2),
        "attention: key {} and value {}, expected as many rows", key, value);
  check_operands(query, key, options);
  check(!options.enable_gqa || (value.dim() >= 3 && value.size(-3) == key.size(-3)),
        "attention: key {} and value {} with enable_gqa, expected as many heads on axis -3", key, value);
  const auto composed = [&] {
    return matmul(attention_weights(query, key, options), for_each_head(query, value, options));
  };
  if (!fuses(query, key, value, options)) return composed();
  ForwardTrace* const trace = ForwardTrace::current();
  if (!trace) return attention_in_one_pass(query, key, value, options);
  // A trace gets the operations that attention is composed of, and the result the bits that it has without a trace.
  const Tensor traced = composed();
  const TracePause pause;
  const Tensor y = attention_in_one_pass(query, key, value, options);
  trace->same(traced, y);
  return y;
}

}  // namespace lockstep
