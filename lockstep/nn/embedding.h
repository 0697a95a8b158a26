// A table of vectors, looked up by index.
//
//   Embedding& tokens = make<Embedding>("tokens", 65, 128);
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct EmbeddingOptions {
  std::int64_t num_embeddings = 0;
  std::int64_t embedding_dim = 0;
  // This row starts as zeros and gets no gradient.
  std::optional<std::int64_t> padding_idx = {};
};

// Looks up rows of the weight by index: i64 of any shape -> [input's shape, embedding_dim]. An index outside
// [0, num_embeddings) fails the task, so the error appears where the result is read.
class Embedding : public Module {
 public:
  using Options = EmbeddingOptions;
  explicit Embedding(EmbeddingOptions options);
  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, EmbeddingOptions more = {});
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [num_embeddings, embedding_dim]

 protected:
  std::string extra_repr() const override;

 private:
  EmbeddingOptions options_;
};

struct EmbeddingBagLayerOptions {
  std::int64_t num_embeddings = 0;
  std::int64_t embedding_dim = 0;
  BagMode mode = BagMode::mean;
  // Index that fills short bags. Its row starts as zeros, gets no gradient, and does not count.
  std::optional<std::int64_t> padding_idx = {};
  // The last offset is where the last bag ends.
  bool include_last_offset = false;
};

// The sum, the mean, or the largest elements of each bag's rows: i64 [bags, indices] -> [bags, embedding_dim]. Bags of
// different lengths are given as all their indices and the offset of each bag; see embedding_bag().
//
//   Tensor y = bag(indices, offsets);
class EmbeddingBag : public Module {
 public:
  using Options = EmbeddingBagLayerOptions;
  explicit EmbeddingBag(EmbeddingBagLayerOptions options);
  EmbeddingBag(std::int64_t num_embeddings, std::int64_t embedding_dim, EmbeddingBagLayerOptions more = {});
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()); }
  // With BagMode::sum, per_sample_weights, of x's shape, multiply the rows. Undefined offsets: the rows of x are bags.
  Tensor forward(const Tensor& x, const Tensor& offsets, const Tensor& per_sample_weights = {});
  using Module::operator();
  Tensor operator()(const Tensor& x, const Tensor& offsets, const Tensor& per_sample_weights = {}) {
    return forward(x, offsets, per_sample_weights);
  }

  const Parameter weight;  // [num_embeddings, embedding_dim]

 protected:
  std::string extra_repr() const override;

 private:
  EmbeddingBagLayerOptions options_;
};

}  // namespace lockstep
