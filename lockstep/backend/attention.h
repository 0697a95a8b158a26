// Internal: attention in one pass (Dao et al. 2022). The weights [L, S] of a head are never in memory as a whole. Of
// the forward pass, only two numbers of each query remain.
//
// Order of the sums: scores and their gradients add up the E or V elements of a row, gradients of keys and values the
// queries, and the others the keys, in runs of 128 from zero, one after the other. It follows from shapes alone.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/backend/kernels.h"
#include "lockstep/base/random.h"

namespace lockstep {

// What decides the weights, besides queries and keys.
struct AttentionRule {
  double scale = 1;           // of the scores
  bool causal = false;        // query i sees keys 0 to position + i
  std::int64_t position = 0;  // of query 0 among the keys; kernels::AttentionBackward takes 0 alone
  // Dropout: weight [l, s] of head b is kept if random_uniform(key, (b L + l) S + s) < keep, and then divided by keep.
  // kernels::Dropout does so with all weights [B, L, S]. `key_at` is as there.
  double keep = 1;
  RandomKey key = {};
  View key_at = {};
  // Added to the scores: [M, L or 1, S or 1]. Head b takes mask (b / heads_of_mask) % M. -infinity hides a key.
  View mask = {};
  std::int64_t heads_of_mask = 1;
};

namespace kernels {

// y = dropout(softmax(scale q k^T + mask)) v for each of B heads: q [B, L, E], k [H, S, E], v [H, S, V], y [B, L, V],
// all f32 and plain. H divides B: heads b B / H to (b + 1) B / H - 1 of the queries share head b of keys and values. A
// query that sees no key gives NaN. stats [2, B, L]: the largest score of each query in units of ln 2, and 1 / the sum
// of its exponentials.
struct Attention {
  AttentionRule rule;
  View q, k, v, y, stats;
  static void views(auto& c, const auto& in, const auto& out) {
    in(c.rule.key_at), in(c.rule.mask), in(c.q), in(c.k), in(c.v), out(c.y), out(c.stats);
  }
};
// The gradients of q, k, and v, from what kernels::Attention computed by the same rule.
struct AttentionBackward {
  AttentionRule rule;
  View q, k, v, y, stats, dy, dq, dk, dv;
  static void views(auto& c, const auto& in, const auto& out) {
    in(c.rule.key_at), in(c.rule.mask), in(c.q), in(c.k), in(c.v), in(c.y), in(c.stats), in(c.dy);
    out(c.dq), out(c.dk), out(c.dv);
  }
};

}  // namespace kernels

using AttentionKernels = Kernels<kernels::Attention, kernels::AttentionBackward>;

// For back ends that do not fuse attention.
std::unique_ptr<AttentionKernels> no_attention_kernels();

}  // namespace lockstep
