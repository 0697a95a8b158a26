#include "lockstep/nn/feed_forward.h"

#include "lockstep/nn/sizes.h"

namespace lockstep {
namespace {

// Checks the sizes, and returns the options of a projection.
LinearOptions projection_of(const FeedForwardOptions& o, std::int64_t in, std::int64_t out) {
  check(o.dim > 0 && o.hidden_dim > 0, "feed forward: dim is {} and hidden_dim {}, expected at least 1 of each", o.dim,
        o.hidden_dim);
  return {.in_features = in, .out_features = out, .bias = o.bias};
}

}  // namespace

FeedForward::FeedForward(FeedForwardOptions options)
    : gate_proj(make<Linear>("gate_proj", projection_of(options, options.dim, options.hidden_dim))),
      up_proj(make<Linear>("up_proj", projection_of(options, options.dim, options.hidden_dim))),
      down_proj(make<Linear>("down_proj", projection_of(options, options.hidden_dim, options.dim))) {}

FeedForward::FeedForward(std::int64_t dim, std::int64_t hidden_dim, FeedForwardOptions more)
    : FeedForward((set_size("feed forward", "dim", more.dim, dim),
                   set_size("feed forward", "hidden_dim", more.hidden_dim, hidden_dim), more)) {}

}  // namespace lockstep
