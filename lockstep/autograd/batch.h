// A global batch, cut into shards along axis 0.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/shard_exchange.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// The shards of the batch that are in this process: shards[i], whose number is shards[i].shard(), holds counts[i] of the
// samples. What a model makes of a Batch is one again, with the same counts: outputs, losses. parallel/split.h makes them.
struct Batch {
  std::vector<Tensor> shards;
  std::vector<std::int64_t> counts;
  // Null where all shards of the batch are here.
  std::shared_ptr<ShardExchange> exchange = {};

  std::size_t size() const { return shards.size(); }
  const Tensor& operator[](std::size_t i) const { return shards[i]; }
  auto begin() const { return shards.begin(); }
  auto end() const { return shards.end(); }
  // Samples of the whole batch, of all processes.
  std::int64_t total() const;
  // Shard i's share of the samples: the weight of its mean loss in the batch's.
  double weight(std::size_t i) const;
  // The same counts around other tensors, one for each shard.
  Batch with(std::vector<Tensor> tensors) const;
};

// A loss for each shard: the mean over its samples.
Batch cross_entropy(const Batch& logits, const Batch& labels, const CrossEntropyOptions& options = {});
Batch mse_loss(const Batch& x, const Batch& targets);

// Gradients of the mean loss over the whole batch, all shards in one walk: each shard's loss is weighted by its true
// share of the samples, so uneven shards are right. `share`: of the batch in what the step is over, where that is several
// (accumulation over micro-batches). `scales`: none, or for each device an f32 [1] that its losses are multiplied by (loss
// scaling).
void backward(const Batch& losses, double share = 1, std::span<const Tensor> scales = {});

// All shards of all processes, the same on each of them: values, without history. Several batches with the same shards
// travel as one. `what` they are, for errors: "losses".
std::vector<Batch> gather_shards(std::span<const Batch> batches, std::string_view what);

// The mean loss over the whole batch, of all processes: weighted, added in the shards' tree in f64. Waits. Where there are
// several processes, all have to call it.
double mean_loss(const Batch& losses);

}  // namespace lockstep
