#include "lockstep/data/subset.h"

#include <cmath>
#include <numeric>

#include "lockstep/base/random.h"
#include "lockstep/runtime/living_runtimes.h"

namespace lockstep {

Subset::Subset(std::shared_ptr<const Dataset> inner, std::vector<std::int64_t> indices)
    : inner_(std::move(inner)), indices_(std::move(indices)) {
  check(inner_ != nullptr, "subset: no data set");
  const std::int64_t size = inner_->size();
  for (const std::int64_t index : indices_) {
    check(index >= 0 && index < size, "subset: example {} of a data set of {} examples", index, size);
  }
}

std::int64_t Subset::inner_index(std::int64_t index) const {
  check(index >= 0 && index < size(), "subset: example {} is out of range [0, {})", index, size());
  return indices_[static_cast<std::size_t>(index)];
}

Example Subset::get(std::int64_t index) const { return inner_->get(inner_index(index)); }
Example Subset::get(std::int64_t index, RandomKey key) const { return inner_->get(inner_index(index), key); }
Example Subset::raw(std::int64_t index) const { return inner_->raw(inner_index(index)); }

Example Subset::batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const {
  std::vector<std::int64_t> of_inner;
  for (const std::int64_t index : indices) of_inner.push_back(inner_index(index));
  return inner_->batch(of_inner, keys);
}

namespace {

// Returns the number of examples of each part.
std::vector<std::int64_t> split_lengths(std::int64_t size, const std::vector<double>& lengths) {
  check(!lengths.empty(), "random_split: no lengths");
  double sum = 0;
  for (const double length : lengths) {
    check(std::isfinite(length) && length >= 0, "random_split: a length of {}, expected at least 0", length);
    sum += length;
  }
  std::vector<std::int64_t> counts;
  if (std::abs(sum - 1) < 1e-9) {
    std::int64_t rest = size;
    for (const double share : lengths) {
      counts.push_back(static_cast<std::int64_t>(std::floor(share * static_cast<double>(size))));
      rest -= counts.back();
    }
    for (std::size_t i = 0; rest > 0; --rest, i = (i + 1) % counts.size()) ++counts[i];
    return counts;
  }
  for (const double count : lengths) {
    check(count == std::floor(count), "random_split: lengths that add up to {}, expected shares that add up to 1", sum);
    counts.push_back(static_cast<std::int64_t>(count));
  }
  check(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == size,
        "random_split: lengths that add up to {}, expected {}, the number of examples, or 1", sum, size);
  return counts;
}

}  // namespace

std::vector<Subset> random_split(const std::shared_ptr<const Dataset>& data, const std::vector<double>& lengths,
                                 std::optional<std::uint64_t> seed) {
  check(data != nullptr, "random_split: no data set");
  const std::vector<std::int64_t> counts = split_lengths(data->size(), lengths);
  std::vector<std::int64_t> order(static_cast<std::size_t>(data->size()));
  std::iota(order.begin(), order.end(), 0);
  const RandomKey key = random_key(seed ? *seed : default_seed("random_split"), {hash_name("random_split")});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_below(key, i, i)]);
  std::vector<Subset> parts;
  auto next = order.begin();
  for (const std::int64_t count : counts) {
    parts.emplace_back(data, std::vector(next, next + count));
    next += count;
  }
  return parts;
}

}  // namespace lockstep
