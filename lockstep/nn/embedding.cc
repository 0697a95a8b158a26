#include "lockstep/nn/embedding.h"

#include "lockstep/nn/sizes.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"

namespace lockstep {

namespace {

ParameterOptions table(const EmbeddingOptions& options) {
  const std::int64_t rows = options.num_embeddings;
  check(rows > 0 && options.embedding_dim > 0, "embedding: {} rows of {}, expected at least 1 of each", rows,
        options.embedding_dim);
  ParameterOptions parameter{.shape = {rows, options.embedding_dim}, .default_initializer = Normal(1)};
  if (options.padding_idx) {
    const std::int64_t row = *options.padding_idx < 0 ? *options.padding_idx + rows : *options.padding_idx;
    check(row >= 0 && row < rows, "embedding: padding_idx {} of {} rows, expected one of them", *options.padding_idx,
          rows);
    parameter.after_initializer = [row](const Array& w) { ops::fill_(ops::narrow(w, row, 1), 0); };
  }
  return parameter;
}

}  // namespace

Embedding::Embedding(EmbeddingOptions options) : weight(add_parameter("weight", table(options))), options_(options) {}

Embedding::Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, EmbeddingOptions more)
    : Embedding((set_size("embedding", "num_embeddings", more.num_embeddings, num_embeddings),
                 set_size("embedding", "embedding_dim", more.embedding_dim, embedding_dim), more)) {}

Tensor Embedding::forward(const Tensor& x) { return embedding(x, weight, options_.padding_idx); }

EmbeddingBag::EmbeddingBag(EmbeddingBagLayerOptions options)
    : weight(add_parameter("weight", table({options.num_embeddings, options.embedding_dim, options.padding_idx}))),
      options_(options) {}

EmbeddingBag::EmbeddingBag(std::int64_t num_embeddings, std::int64_t embedding_dim, EmbeddingBagLayerOptions more)
    : EmbeddingBag((set_size("embedding_bag", "num_embeddings", more.num_embeddings, num_embeddings),
                    set_size("embedding_bag", "embedding_dim", more.embedding_dim, embedding_dim), more)) {}

Tensor EmbeddingBag::forward(const Tensor& x, const Tensor& offsets, const Tensor& per_sample_weights) {
  return embedding_bag(x, weight,
                       {.mode = options_.mode,
                        .padding_idx = options_.padding_idx,
                        .per_sample_weights = per_sample_weights,
                        .offsets = offsets,
                        .include_last_offset = options_.include_last_offset});
}

}  // namespace lockstep
