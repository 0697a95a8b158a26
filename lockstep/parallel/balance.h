// How many shards each device computes. Only where shards run depends on it, and so only the time of a step: shards and
// the tree that sums them stay the same, and so do the bits.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// The user's choice: each device gets a run of consecutive shards,
struct Balance {
  // as many as its measured speed deserves,
  bool automatic = false;
  // or in proportion to its weight. One weight for each device; of several ranks, the devices of rank 0 come first. Empty:
  // equal shares. With `automatic`: the shares to begin with.
  std::vector<double> weights{};

  // "auto", "equal" or "2,1". The error names what was found: `found '-1', expected auto, equal, or ...`.
  static Balance parse(std::string_view text);
  bool operator==(const Balance&) const = default;
};

// The time that a device needs for a shard, and how many shards it computes at a time.
struct ShardCost {
  double seconds = 0;  // 0: not known
  int lanes = 1;
};

// Shares whose sizes differ by one at most. Fewer shards than devices leave devices without one.
std::vector<int> equal_shares(int shards, std::size_t devices);
// In proportion to the weights, as closely as whole shards allow, and at least one for each device.
std::vector<int> weighted_shares(int shards, std::span<const double> weights);
// The shares that make the step shortest, at least one for each device: without one its speed could not be measured.
// A device whose speed is unknown counts as fast as the fastest.
std::vector<int> fastest_shares(int shards, std::span<const ShardCost> costs);
// How long the slowest device takes for its share.
double step_seconds(std::span<const int> shares, std::span<const ShardCost> costs);
// The fastest shares if they make a step at least 5 % shorter than `shares`; else `shares`. So measurements that vary a
// little move nothing.
std::vector<int> rebalanced_shares(std::span<const int> shares, std::span<const ShardCost> costs);

// The place in `shares` of the device that computes the shard.
std::size_t device_of_shard(int shard, std::span<const int> shares);

// The shares of all devices of a job, by rank.
class JobShares {
 public:
  JobShares() = default;
  explicit JobShares(std::vector<std::vector<int>> by_rank);
  // Without weights: the same number of shards for each rank, up to one, and within a rank for each device. Throws where the
  // number of weights is not that of the devices.
  JobShares(int shards, std::span<const int> devices_of_rank, std::span<const double> weights = {});

  int shards() const { return first_.back(); }
  int ranks() const { return static_cast<int>(by_rank_.size()); }
  // A rank's shards: [first, last).
  std::pair<int, int> of_rank(int rank) const {
    return {first_[static_cast<std::size_t>(rank)], first_[static_cast<std::size_t>(rank) + 1]};
  }
  // A rank's devices: how many shards each has.
  const std::vector<int>& devices_of(int rank) const { return by_rank_[static_cast<std::size_t>(rank)]; }
  std::vector<int> devices_of_ranks() const;
  // One for each device, rank 0's first.
  std::vector<int> all() const;
  // The same devices with these shares.
  JobShares with(std::span<const int> all) const;
  bool operator==(const JobShares&) const = default;

 private:
  std::vector<std::vector<int>> by_rank_;
  std::vector<int> first_{0};  // shard of each rank; behind them, the number of shards
};

}  // namespace lockstep
