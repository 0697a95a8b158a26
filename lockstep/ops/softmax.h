// Internal: softmax and losses. For the samples of a shard, mse() returns the mean [1], cross_entropy() sums [3].
#pragma once

#include <optional>

#include "lockstep/engine/task.h"

#include "lockstep/backend/softmax.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// Softmax over the last axis.
Array softmax(const Array& x);
Array softmax_backward(const Array& y, const Array& dy);
Array log_softmax(const Array& x);
Array log_softmax_backward(const Array& y, const Array& dy);

// logits [n, classes], labels i64 [n]; see backend/softmax.h. Returns the sums [3] of one shard.
Array cross_entropy(const Array& logits, const Array& labels, const LabelRules& rules = {});
// The loss [1] from the sums of all shards; runs on `lane`, or else on a compute lane.
Array cross_entropy_mean(const Array& sums, std::optional<LaneId> lane = {});
Array cross_entropy_backward(const Array& logits, const Array& labels, const LabelRules& rules, const Array& sums,
                             const Array& dloss);

Array mse(const Array& x, const Array& target);
Array mse_backward(const Array& x, const Array& target, const Array& dloss);

}  // namespace lockstep::ops
