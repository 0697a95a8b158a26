#include "lockstep/parallel/balance.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

double seconds_for(int shards, const ShardCost& cost) {
  return cost.seconds * ((shards + cost.lanes - 1) / cost.lanes);
}

// A device of unknown speed gets the speed of the fastest.
std::vector<ShardCost> all_known(std::span<const ShardCost> costs) {
  double fastest = 0;
  for (const ShardCost& cost : costs) {
    if (cost.seconds > 0 && (fastest == 0 || cost.seconds < fastest)) fastest = cost.seconds;
  }
  std::vector<ShardCost> known(costs.begin(), costs.end());
  for (ShardCost& cost : known) {
    if (!(cost.seconds > 0)) cost.seconds = fastest > 0 ? fastest : 1;
  }
  return known;
}

}  // namespace

Balance Balance::parse(std::string_view text) {
  if (text == "auto") return {.automatic = true};
  if (text == "equal") return {};
  Balance balance;
  std::string_view rest = text;
  while (true) {
    const std::string_view word = rest.substr(0, rest.find(','));
    double weight = 0;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), weight);
    check(parsed.ec == std::errc() && parsed.ptr == word.data() + word.size() && std::isfinite(weight) && weight > 0,
          "found '{}', expected auto, equal, or a list of weights above 0, such as 2,1", word);
    balance.weights.push_back(weight);
    if (word.size() == rest.size()) return balance;
    rest.remove_prefix(word.size() + 1);
  }
}

const std::vector<double>& Balance::fixed_weights(std::string_view caller) const {
  check(!automatic, "{}: automatic shares, expected equal ones or weights: Trainer and Balancer measure speeds",
        caller);
  return weights;
}

std::vector<int> equal_shares(int shards, std::size_t devices) {
  const auto count = static_cast<std::int64_t>(devices);
  // Shard s belongs to device s * devices / shards.
  const auto first = [&](std::int64_t device) { return (device * shards + count - 1) / count; };
  std::vector<int> shares;
  for (std::int64_t d = 0; d < count; ++d) shares.push_back(static_cast<int>(first(d + 1) - first(d)));
  return shares;
}

std::vector<int> weighted_shares(int shards, std::span<const double> weights) {
  std::vector<ShardCost> costs;
  for (const double weight : weights) {
    check(std::isfinite(weight) && weight > 0, "balance: weight {}, expected a number above 0", weight);
    costs.push_back({1 / weight});
  }
  return fastest_shares(shards, costs);
}

// Each further shard goes to the device that finishes it first; no other shares have a shorter step. If several devices
// would finish it first, the slowest of them gets it: 8 shards at weights 2,1 become 5 and 3, which is as fast as 6 and
// 2, and closer to the weights.
std::vector<int> fastest_shares(int shards, std::span<const ShardCost> costs) {
  check(!costs.empty() && shards >= std::ssize(costs),
        "balance: {} shards for {} devices, expected at least one for each", shards, costs.size());
  const std::vector<ShardCost> known = all_known(costs);
  std::vector<int> shares(costs.size(), 1);
  for (int s = static_cast<int>(costs.size()); s < shards; ++s) {
    std::size_t best = 0;
    const auto order = [&](std::size_t d) {
      return std::pair(seconds_for(shares[d] + 1, known[d]), -known[d].seconds);
    };
    for (std::size_t d = 1; d < shares.size(); ++d) {
      if (order(d) < order(best)) best = d;
    }
    ++shares[best];
  }
  return shares;
}

double step_seconds(std::span<const int> shares, std::span<const ShardCost> costs) {
  check(shares.size() == costs.size(), "balance: shares of {} devices, expected {}", shares.size(), costs.size());
  double slowest = 0;
  for (std::size_t d = 0; d < shares.size(); ++d) slowest = std::max(slowest, seconds_for(shares[d], costs[d]));
  return slowest;
}

std::vector<int> rebalanced_shares(std::span<const int> shares, std::span<const ShardCost> costs) {
  constexpr double kWorthIt = 0.95;
  const std::vector<ShardCost> known = all_known(costs);
  const std::vector<int> fastest = fastest_shares(std::accumulate(shares.begin(), shares.end(), 0), known);
  // A device without a shard never gets a measured speed.
  const bool untried = std::ranges::find(shares, 0) != shares.end();
  const bool measured = std::ranges::any_of(costs, [](const ShardCost& cost) { return cost.seconds > 0; });
  if (untried || (measured && step_seconds(fastest, known) <= kWorthIt * step_seconds(shares, known))) return fastest;
  return {shares.begin(), shares.end()};
}

std::size_t device_of_shard(int shard, std::span<const int> shares) {
  std::size_t device = 0;
  for (int last = shares[0]; shard >= last; last += shares[device]) ++device;
  return device;
}

JobShares::JobShares(std::vector<std::vector<int>> by_rank) : by_rank_(std::move(by_rank)) {
  for (const std::vector<int>& rank : by_rank_)
    first_.push_back(std::accumulate(rank.begin(), rank.end(), first_.back()));
}

JobShares::JobShares(int shards, std::span<const int> devices_of_rank, std::span<const double> weights) {
  std::vector<std::vector<int>> by_rank;
  if (weights.empty()) {
    const std::vector<int> of_ranks = equal_shares(shards, devices_of_rank.size());
    for (std::size_t r = 0; r < devices_of_rank.size(); ++r) {
      by_rank.push_back(equal_shares(of_ranks[r], static_cast<std::size_t>(devices_of_rank[r])));
    }
    *this = JobShares(std::move(by_rank));
    return;
  }
  const auto devices = std::accumulate(devices_of_rank.begin(), devices_of_rank.end(), std::size_t{0});
  check(weights.size() == devices, "balance {}: {} weight{} for {} device{}{}, expected one for each",
        fmt::join(weights, ","), weights.size(), weights.size() == 1 ? "" : "s", devices, devices == 1 ? "" : "s",
        devices_of_rank.size() > 1 ? fmt::format(" of {} ranks", devices_of_rank.size()) : "");
  for (const int count : devices_of_rank) by_rank.emplace_back(static_cast<std::size_t>(count));
  *this = JobShares(std::move(by_rank)).with(weighted_shares(shards, weights));
}

std::vector<int> JobShares::devices_of_ranks() const {
  std::vector<int> devices;
  for (const std::vector<int>& rank : by_rank_) devices.push_back(static_cast<int>(rank.size()));
  return devices;
}

std::vector<int> JobShares::all() const {
  std::vector<int> all;
  for (const std::vector<int>& rank : by_rank_) all.insert(all.end(), rank.begin(), rank.end());
  return all;
}

JobShares JobShares::with(std::span<const int> all) const {
  std::vector<std::vector<int>> by_rank = by_rank_;
  std::size_t next = 0;
  for (std::vector<int>& rank : by_rank) {
    for (int& share : rank) share = all[next++];
  }
  return JobShares(std::move(by_rank));
}

}  // namespace lockstep
