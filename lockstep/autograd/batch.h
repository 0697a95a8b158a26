// A global batch, cut into shards along axis 0.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/autograd/functions.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// Shard i of the batch is shards[i]; it holds counts[i] of the samples, all of them together total(). What a model
// makes of a Batch is one again, with the same counts: outputs, losses. parallel/split.h makes them.
struct Batch {
  std::vector<Tensor> shards;
  std::vector<std::int64_t> counts;

  std::size_t size() const { return shards.size(); }
  const Tensor& operator[](std::size_t i) const { return shards[i]; }
  auto begin() const { return shards.begin(); }
  auto end() const { return shards.end(); }
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
// share of the samples, so uneven shards are right.
void backward(const Batch& losses);

// The mean loss over the whole batch: the shards' losses, weighted, added in the shards' tree in f64. Waits.
double mean_loss(const Batch& losses);

}  // namespace lockstep
