// Internal: the keys of the random numbers of one operation that drops elements.
#pragma once

#include <optional>

#include "lockstep/autograd/lift.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/random.h"

namespace lockstep {

class DropoutKeys {
 public:
  explicit DropoutKeys(const Placed& placed)
      : replicated_(placed.kind == Kind::replicated), caller_(ops::ShardScope::current()) {}

  // The key for the part that `x` is the input of. Call it once for each part, in order.
  ops::DropoutKey next(const Array& x) {
    // A shard without samples draws no key in any process.
    if (!replicated_) return x.numel() > 0 ? ops::next_dropout_key(x.device()) : ops::DropoutKey{};
    // Replicas use one draw, so they stay equal.
    if (!once_) {
      ops::ShardScope scope(caller_);
      once_ = ops::next_dropout_key(x.device());
    }
    ops::DropoutKey key = *once_;
    // A recorded step reads the key from memory, because each run draws another key.
    if (key.in_memory.defined()) key.in_memory = ops::to_device(key.in_memory, x.device(), {.non_blocking = true});
    return key;
  }

 private:
  bool replicated_;
  int caller_;  // in per_shard(): that shard
  std::optional<ops::DropoutKey> once_;
};

}  // namespace lockstep
