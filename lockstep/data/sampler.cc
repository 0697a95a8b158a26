#include "lockstep/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/runtime/living_runtimes.h"

namespace lockstep {
namespace {

// Seed of the loader that asks for an order.
thread_local std::optional<std::uint64_t> loader_seed;

std::uint64_t chosen_seed(std::optional<std::uint64_t> own) {
  if (own) return *own;
  return loader_seed ? *loader_seed : default_seed("sampler");
}

std::vector<std::int64_t> in_order(std::int64_t size) {
  check(size >= 0, "sampler: {} examples, expected at least 0", size);
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<std::int64_t> shuffled(std::int64_t size, std::optional<std::uint64_t> seed, std::int64_t epoch) {
  std::vector<std::int64_t> order = in_order(size);
  RandomKey key = random_key(chosen_seed(seed), {hash_name("order of examples"), static_cast<std::uint64_t>(epoch)});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_below(key, i, i)]);
  return order;
}

}  // namespace

std::vector<std::int64_t> Sampler::order_for(std::optional<std::uint64_t> seed, std::int64_t epoch) const {
  struct Restore {
    std::optional<std::uint64_t> before;
    ~Restore() { loader_seed = before; }
  };
  const Restore restore{std::exchange(loader_seed, seed)};
  return order(epoch);
}

SequentialSampler::SequentialSampler(std::int64_t size) : size_(size) {}
std::vector<std::int64_t> SequentialSampler::order(std::int64_t) const { return in_order(size_); }

RandomSampler::RandomSampler(std::int64_t size, std::optional<std::uint64_t> seed) : size_(size), seed_(seed) {}
std::vector<std::int64_t> RandomSampler::order(std::int64_t epoch) const { return shuffled(size_, seed_, epoch); }

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, std::int64_t samples,
                                             WeightedRandomSamplerOptions options)
    : weights_(std::move(weights)), samples_(samples), options_(options) {
  check(samples >= 0, "weighted random sampler: {} draws, expected at least 0", samples);
  std::int64_t usable = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    check(std::isfinite(weights_[i]) && weights_[i] >= 0,
          "weighted random sampler: weight {} of example {}, expected at "
          "least 0",
          weights_[i], i);
    usable += weights_[i] > 0;
  }
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  check(std::isfinite(sum), "weighted random sampler: the weights add up to {}, expected a finite sum", sum);
  check(samples == 0 || usable > 0, "weighted random sampler: no weight is above 0");
  check(options.replacement || samples <= usable,
        "weighted random sampler: {} draws without replacement from {} examples of a weight above 0", samples, usable);
}

std::vector<std::int64_t> WeightedRandomSampler::order(std::int64_t epoch) const {
  const RandomKey key =
      random_key(chosen_seed(options_.seed), {hash_name("weighted examples"), static_cast<std::uint64_t>(epoch)});
  // Sums in a binary tree whose last nodes, the leaves, are the weights, so that a drawn example can be taken out.
  std::size_t leaves = 1;
  while (leaves < weights_.size()) leaves *= 2;
  std::vector<double> sums(2 * leaves, 0);
  std::ranges::copy(weights_, sums.begin() + static_cast<std::ptrdiff_t>(leaves));
  for (std::size_t node = leaves; --node > 0;) sums[node] = sums[2 * node] + sums[2 * node + 1];
  std::vector<std::int64_t> drawn;
  for (std::int64_t draw = 0; draw < samples_; ++draw) {
    double point = random_uniform(key, static_cast<std::uint64_t>(draw)) * sums[1];
    std::size_t node = 1;
    while (node < leaves) {
      node *= 2;
      // Goes left if the right sum is 0, because rounding may place the point past the last weight.
      if (point >= sums[node] && sums[node + 1] > 0) point -= sums[node++];
    }
    drawn.push_back(static_cast<std::int64_t>(node - leaves));
    if (options_.replacement) continue;
    sums[node] = 0;
    while ((node /= 2) > 0) sums[node] = sums[2 * node] + sums[2 * node + 1];
  }
  return drawn;
}

DistributedSampler::DistributedSampler(std::int64_t size, DistributedSamplerOptions options)
    : size_(size), options_(options) {
  const auto& o = options;
  check(o.world_size >= 1 && o.rank >= 0 && o.rank < o.world_size,
        "distributed sampler: rank {} of {}, expected a rank from 0 to the world size - 1", o.rank, o.world_size);
  check(!o.pad || !o.drop_last, "distributed sampler: pad and drop_last are both set, expected at most one of them");
}

std::vector<std::int64_t> DistributedSampler::order(std::int64_t epoch) const {
  const auto& o = options_;
  // Ignores the loader's seed, which may differ between ranks, because all ranks must cut one order.
  const std::uint64_t seed = o.seed ? *o.seed : default_seed("sampler");
  std::vector<std::int64_t> all = o.shuffle ? shuffled(size_, seed, epoch) : in_order(size_);
  auto world = static_cast<std::size_t>(o.world_size);
  std::size_t n = all.size();
  if (o.drop_last) n -= n % world;
  if (o.pad && n > 0) n += (world - n % world) % world;
  std::vector<std::int64_t> mine;
  for (auto i = static_cast<std::size_t>(o.rank); i < n; i += world) mine.push_back(all[i % all.size()]);
  return mine;
}

std::optional<Sampler::RankSizes> DistributedSampler::rank_sizes() const {
  const std::int64_t least = size_ / options_.world_size,
                     most = (size_ + options_.world_size - 1) / options_.world_size;
  if (options_.drop_last) return RankSizes{least, least};
  if (options_.pad) return RankSizes{most, most};
  return RankSizes{least, most};
}

}  // namespace lockstep
