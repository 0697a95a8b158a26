// Internal: attention in one pass.
#pragma once

#include <optional>

#include "lockstep/backend/attention.h"
#include "lockstep/ops/random.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

struct AttentionOptions {
  double scale = 1;
  bool causal = false;
  std::int64_t position = 0;  // of query 0 among the keys
  double dropout_p = 0;       // in [0, 1)
  DropoutKey key = {};        // of a dropout_p > 0
  // [M, L or 1, S or 1] f32; see AttentionRule.
  Array mask = {};
  std::int64_t heads_of_mask = 1;
};

// Whether the device computes attention of this type in one pass.
bool fuses_attention(Device device, DType dtype);

struct AttentionResult {
  Array y;      // [B, L, V]
  Array stats;  // [2, B, L]
};
// q [B, L, E], k [H, S, E], v [H, S, V], none empty; see backend/attention.h.
AttentionResult attention(const Array& q, const Array& k, const Array& v, const AttentionOptions& options);

struct AttentionGradients {
  Array q, k, v;
};
// For position 0.
AttentionGradients attention_backward(const Array& q, const Array& k, const Array& v, const AttentionResult& result,
                                      const Array& dy, const AttentionOptions& options);

}  // namespace lockstep::ops
