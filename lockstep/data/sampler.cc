#include "lockstep/data/sampler.h"

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/runtime/living_runtimes.h"

namespace lockstep {
namespace {

std::vector<std::int64_t> in_order(std::int64_t size) {
  check(size >= 0, "sampler: {} examples, expected at least 0", size);
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<std::int64_t> shuffled(std::int64_t size, std::optional<std::uint64_t> seed, std::int64_t epoch) {
  std::vector<std::int64_t> order = in_order(size);
  RandomKey key = random_key(seed ? *seed : default_seed("sampler"),
                             {hash_name("order of examples"), static_cast<std::uint64_t>(epoch)});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_below(key, i, i)]);
  return order;
}

}  // namespace

SequentialSampler::SequentialSampler(std::int64_t size) : size_(size) {}
std::vector<std::int64_t> SequentialSampler::order(std::int64_t) const { return in_order(size_); }

RandomSampler::RandomSampler(std::int64_t size, std::optional<std::uint64_t> seed) : size_(size), seed_(seed) {}
std::vector<std::int64_t> RandomSampler::order(std::int64_t epoch) const { return shuffled(size_, seed_, epoch); }

DistributedSampler::DistributedSampler(std::int64_t size, DistributedSamplerOptions options)
    : size_(size), options_(options) {
  const auto& o = options;
  check(o.world_size >= 1 && o.rank >= 0 && o.rank < o.world_size,
        "distributed sampler: rank {} of {}, expected a rank from 0 to the world size - 1", o.rank, o.world_size);
  check(!o.pad || !o.drop_last, "distributed sampler: pad and drop_last are both set, expected at most one of them");
}

std::vector<std::int64_t> DistributedSampler::order(std::int64_t epoch) const {
  const auto& o = options_;
  std::vector<std::int64_t> all = o.shuffle ? shuffled(size_, o.seed, epoch) : in_order(size_);
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
