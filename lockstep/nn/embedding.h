// Rows of a table by number.
#pragma once

#include <optional>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct EmbeddingOptions {
  std::int64_t num_embeddings = 0;
  std::int64_t embedding_dim = 0;
  std::optional<std::int64_t> padding_idx = {};  // a row without a gradient
};

// Rows of the weight by number: i64 of any shape -> [input's shape, embedding_dim].
class Embedding : public Module {
 public:
  using Options = EmbeddingOptions;
  explicit Embedding(EmbeddingOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [num_embeddings, embedding_dim]

 protected:
  std::string extra_repr() const override;

 private:
  EmbeddingOptions options_;
};

}  // namespace lockstep
