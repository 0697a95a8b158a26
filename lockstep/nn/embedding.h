// A table of vectors, looked up by number.
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

// Looks up rows of the weight by number: i64 of any shape -> [input's shape, embedding_dim]. A number outside
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

}  // namespace lockstep
