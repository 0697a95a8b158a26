#include "lockstep/autograd/batch.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "lockstep/autograd/node.h"
#include "lockstep/base/tree.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

template <typename Loss>
Batch each(std::string_view what, const Batch& x, const Batch& y, Loss loss) {
  check(x.size() == y.size(), "{}: {} shards and {} shards of targets", what, x.size(), y.size());
  std::vector<Tensor> losses;
  for (std::size_t i = 0; i < x.size(); ++i) losses.push_back(loss(x[i], y[i]));
  return x.with(std::move(losses));
}

}  // namespace

std::int64_t Batch::total() const {
  const auto& all = exchange ? exchange->counts() : counts;
  return std::accumulate(all.begin(), all.end(), std::int64_t{0});
}

double Batch::weight(std::size_t i) const {
  std::int64_t n = total();
  return n == 0 ? 0 : static_cast<double>(counts[i]) / static_cast<double>(n);
}

Batch Batch::with(std::vector<Tensor> tensors) const {
  check(tensors.size() == counts.size(), "batch: {} tensors for {} shards", tensors.size(), counts.size());
  return {std::move(tensors), counts, exchange};
}

Batch cross_entropy(const Batch& logits, const Batch& labels, const CrossEntropyOptions& options) {
  return each("cross_entropy", logits, labels,
              [&](const Tensor& x, const Tensor& y) { return cross_entropy(x, y, options); });
}

Batch mse_loss(const Batch& x, const Batch& targets) {
  return each("mse_loss", x, targets, [](const Tensor& a, const Tensor& b) { return mse_loss(a, b); });
}

void backward(const Batch& losses, double share, std::span<const Tensor> scales) {
  std::vector<Tensor> seeds;
  std::vector<int> missing;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const Tensor& loss = losses[i];
    check(loss.numel() == 1, "backward: the loss of shard {} is {}, expected a scalar", i, loss.describe());
    ops::ShardScope scope(loss.shard());
    const double weight = share * losses.weight(i);
    Tensor seed;
    if (scales.empty()) {
      seed = ops::empty(loss.shape(), loss.dtype(), loss.device());
      ops::fill_(seed, weight);
    } else {
      const auto scale = std::ranges::find(scales, loss.device(), &Tensor::device);
      check(scale != scales.end(), "backward: there is no loss scale on {}", loss.device().name());
      seed = ops::convert(ops::affine(*scale, weight, 0), loss.dtype(), Layout::plain).reshape(loss.shape());
    }
    seeds.push_back(std::move(seed));
    if (losses.counts[i] == 0) missing.push_back(loss.shard());
  }
  const auto walk = [&] { backward(losses.shards, seeds, missing); };
  losses.exchange ? losses.exchange->backward(walk) : walk();
}

std::vector<Batch> gather_shards(std::span<const Batch> batches, std::string_view what) {
  std::vector<Batch> all(batches.size());
  if (batches.empty()) return all;
  const auto& exchange = batches[0].exchange;
  if (!exchange) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (const Tensor& t : batches[i]) all[i].shards.push_back(t.detach());
      all[i].counts = batches[i].counts;
    }
    return all;
  }
  std::vector<std::vector<Tensor>> parts(exchange->counts().size());
  for (const Batch& batch : batches) {
    for (const Tensor& t : batch) parts[static_cast<std::size_t>(t.shard())].push_back(t.detach());
  }
  parts = exchange->gather(std::move(parts), what);
  for (std::size_t s = 0; s < parts.size(); ++s) {
    for (std::size_t i = 0; i < parts[s].size(); ++i) {
      all[i].shards.push_back(parts[s][i]);
      all[i].counts.push_back(exchange->counts()[s]);
    }
  }
  return all;
}

double mean_loss(const Batch& here) {
  const Batch losses = gather_shards({&here, 1}, "losses")[0];
  auto leaf = [&](std::size_t i) -> std::optional<double> {
    const Tensor& loss = losses[i];
    return losses.weight(i) * (loss.dtype() == DType::f64 ? loss.item<double>() : double{loss.item<float>()});
  };
  return tree_fold(0, losses.size(), leaf, [](double a, double b) { return std::optional(a + b); }).value_or(0);
}

}  // namespace lockstep
