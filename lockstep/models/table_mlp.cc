#include "lockstep/models/table_mlp.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/autograd/functions.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"

namespace lockstep {
namespace {

// Returns the largest whole number up to which the type represents all.
std::int64_t largest_exact(DType dtype) {
  if (dtype == DType::bf16) return 1 << 8;
  if (dtype == DType::f16) return 1 << 11;
  return std::int64_t{1} << 24;
}

}  // namespace

TableMlp::TableMlp(TableMlpOptions options) : options_(std::move(options)) {
  const auto& o = options_;
  check(o.classes >= 1, "table mlp: {} outputs, expected at least 1", o.classes);
  check(o.numbers >= 0 && o.numbers + std::ssize(o.vocabularies) >= 1, "table mlp: no features");
  check(o.missing.empty() || o.missing.size() == o.vocabularies.size(),
        "table mlp: `missing` for {} categories, expected {}", o.missing.size(), o.vocabularies.size());
  constexpr std::int64_t kWidestEmbedding = 32;
  std::int64_t width = o.numbers;
  for (std::size_t c = 0; c < o.vocabularies.size(); ++c) {
    const std::int64_t values = o.vocabularies[c];
    check(values >= 1, "table mlp: category {} has {} values, expected at least 1", c, values);
    const std::int64_t dim = std::min(kWidestEmbedding, (values + 1) / 2);
    const bool trained = o.missing.empty() || o.missing[c];
    embeddings_.append(EmbeddingOptions{.num_embeddings = values,
                                        .embedding_dim = dim,
                                        .padding_idx = trained ? std::nullopt : std::optional<std::int64_t>(0)});
    width += dim;
  }
  for (const std::int64_t units : o.hidden) {
    check(units >= 1, "table mlp: a hidden layer of {} units, expected at least 1", units);
    mlp_.append<Linear>(LinearOptions{.in_features = width, .out_features = units}).append<ReLU>();
    if (o.dropout > 0) mlp_.append<Dropout>(o.dropout);
    width = units;
  }
  mlp_.append<Linear>(LinearOptions{.in_features = width, .out_features = o.classes});
  if (!o.vocabularies.empty()) add("embeddings", embeddings_);
  add("mlp", mlp_);
}

Tensor TableMlp::forward(const Tensor& x) {
  const std::int64_t features = options_.numbers + std::ssize(options_.vocabularies);
  check(x.defined() && x.dim() == 2 && x.size(1) == features, "table mlp: input is {}, expected [N, {}]", x.describe(),
        features);
  if (options_.vocabularies.empty()) return mlp_(x);
  const std::int64_t most = std::ranges::max(options_.vocabularies) - 1;
  check(most <= largest_exact(x.dtype()), "table mlp: {} categories in a column, {} counts exactly to {}: use f32",
        most, name(x.dtype()), largest_exact(x.dtype()));
  std::vector<Tensor> parts;
  if (options_.numbers > 0) parts.push_back(x.narrow(1, 0, options_.numbers));
  const Tensor categories = x.narrow(1, options_.numbers, std::ssize(options_.vocabularies)).to(DType::i64);
  for (std::size_t c = 0; c < options_.vocabularies.size(); ++c) {
    parts.push_back(embeddings_[c](categories.select(1, static_cast<std::int64_t>(c))).to(x.dtype()));
  }
  return mlp_(parts.size() == 1 ? parts[0] : cat(parts, 1));
}

}  // namespace lockstep
