// The feed-forward layer of Llama.
//
//   FeedForward& mlp = make<FeedForward>("mlp", 512, 1376);
#pragma once

#include <cstdint>

#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct FeedForwardOptions {
  std::int64_t dim = 0;
  std::int64_t hidden_dim = 0;
  bool bias = false;  // of all three projections
};

// SwiGLU (Shazeer 2020), down_proj(silu(gate_proj(x)) * up_proj(x)): [.., dim] -> [.., dim]. Parameters have the names
// of Hugging Face's LlamaMLP. Throws if a size is not given.
class FeedForward : public Module {
 public:
  using Options = FeedForwardOptions;
  explicit FeedForward(FeedForwardOptions options);
  FeedForward(std::int64_t dim, std::int64_t hidden_dim, FeedForwardOptions more = {});
  Tensor forward(const Tensor& x) override { return down_proj(silu(gate_proj(x)) * up_proj(x)); }

  Linear &gate_proj, &up_proj;  // [hidden_dim, dim]
  Linear& down_proj;            // [dim, hidden_dim]
};

}  // namespace lockstep
