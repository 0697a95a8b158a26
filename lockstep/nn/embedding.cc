#include "lockstep/nn/embedding.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"

namespace lockstep {

Embedding::Embedding(EmbeddingOptions options) : options_(options) {
  const std::int64_t rows = options.num_embeddings;
  check(rows > 0 && options.embedding_dim > 0, "embedding: {} rows of {}, expected at least 1 of each", rows,
        options.embedding_dim);
  ParameterOptions parameter{.shape = {rows, options.embedding_dim}};
  if (options.padding_idx) {
    const std::int64_t row = *options.padding_idx < 0 ? *options.padding_idx + rows : *options.padding_idx;
    check(row >= 0 && row < rows, "embedding: padding_idx {} of {} rows, expected one of them", *options.padding_idx,
          rows);
    parameter.after_initializer = [row](const Array& w) { ops::fill_(ops::narrow(w, row, 1), 0); };
  }
  weight = add_parameter("weight", std::move(parameter));
}

Tensor Embedding::forward(const Tensor& x) { return embedding(x, weight, options_.padding_idx); }

}  // namespace lockstep
