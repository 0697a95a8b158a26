#include "lockstep/nn/layers.h"

namespace lockstep {

Embedding::Embedding(EmbeddingOptions options) : options_(options) {
  check(options.num_embeddings > 0 && options.embedding_dim > 0,
        "embedding: {} rows of {}, expected at least 1 of each", options.num_embeddings, options.embedding_dim);
  weight = add_parameter("weight", {.shape = {options.num_embeddings, options.embedding_dim}});
}

Tensor Embedding::forward(const Tensor& x) { return embedding(x, weight, options_.padding_idx); }

}  // namespace lockstep
