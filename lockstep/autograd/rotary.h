// Rotary position embeddings (Su et al. 2021): each pair of features turns by an angle that grows with the position, so
// that the product of a query and a key depends on their distance alone. nn/rotary.h has the layer.
//
//   const RotaryTables at = rotary_tables(64, 2048);
//   Tensor q = rotary_embedding(query, at.cos, at.sin);  // [.., 2048, 64]
#pragma once

#include <cstdint>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

struct RotaryOptions {
  // Which features are a pair (a, b): x[2 i] and x[2 i + 1], as in the paper, in Meta's Llama, and in torchtune; or, if
  // false, x[i] and x[i + D / 2], as in Hugging Face's Llama. Weights of one kind need their rows reordered for the
  // other.
  bool interleaved = true;
};

struct RotaryTables {
  Tensor cos, sin;  // [positions, dim / 2], f32 in host memory
};

// The cosine and the sine of p base^(-2 i / dim) for positions p from 0 on. They are computed in f64 and rounded once,
// with the same bits on every machine. Libraries that compute angles in f32 differ from them in later digits, the more,
// the larger p is. Throws unless dim is even and positive, there is a position, and base is from 1 to 1e300.
RotaryTables rotary_tables(std::int64_t dim, std::int64_t positions, double base = 10000);

// Replaces each pair (a, b) of the last axis by (a cos - b sin, a sin + b cos): x [.., D], cos and sin [.., D / 2],
// which broadcast to the pairs. x with heads before positions, [N, heads, L, D], takes tables [L, D / 2]; with
// positions before heads, [N, L, heads, D], tables [L, 1, D / 2]. bf16 and f16 are rotated in the type of the tables,
// and the result has x's type. Throws if x is not floating or D is odd, and if the tables do not fit.
Tensor rotary_embedding(const Tensor& x, const Tensor& cos, const Tensor& sin, const RotaryOptions& options = {});

}  // namespace lockstep
