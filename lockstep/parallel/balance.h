// Decides how many shards each device computes. This affects the time of a step, never the bits.
//
//   const Balance balance = Balance::parse("2,1");                        // twice as many shards for the first device
//   const std::vector<int> shares = weighted_shares(8, balance.weights);  // 5, 3
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// How to divide the shards among the devices. Each device gets consecutive shards.
struct Balance {
  // True: each device gets shards in proportion to its measured speed.
  bool automatic = false;
  // One weight for each device, which gets shards in proportion to it. With several ranks, the devices of rank 0 come
  // first. Empty: equal shares. With `automatic`, the weights decide the shares at the beginning.
  std::vector<double> weights{};

  // Parses "auto", "equal", or "2,1". Throws an Error for other text: `found '-1', expected auto, equal, or ...`.
  static Balance parse(std::string_view text);
  // Returns the weights. Throws an Error that names the caller if the shares are automatic.
  const std::vector<double>& fixed_weights(std::string_view caller) const;
  bool operator==(const Balance&) const = default;
};

// The time a device takes for a shard, and the number of shards it computes at a time.
struct ShardCost {
  double seconds = 0;  // 0: unknown
  int lanes = 1;
};

// Returns shares, the number of shards of each device, that differ by at most one. If there are fewer shards than
// devices, some devices get none.
std::vector<int> equal_shares(int shards, std::size_t devices);
// Returns shares in proportion to the weights, as closely as whole shards allow, with at least one for each device.
std::vector<int> weighted_shares(int shards, std::span<const double> weights);
// Returns the shares that make a step shortest. Each device gets at least one shard, so that its speed can be measured.
// A device of unknown speed counts as the fastest.
std::vector<int> fastest_shares(int shards, std::span<const ShardCost> costs);
// Returns the seconds that the slowest device takes for its share.
double step_seconds(std::span<const int> shares, std::span<const ShardCost> costs);
// Returns the fastest shares if they make a step at least 5 % shorter than `shares`, or if a device has no shard yet,
// otherwise `shares`. Small variations of the measurements therefore move no shards.
std::vector<int> rebalanced_shares(std::span<const int> shares, std::span<const ShardCost> costs);

// Returns the index in `shares` of the device that computes the shard.
std::size_t device_of_shard(int shard, std::span<const int> shares);

// The shares of all devices of a job, by rank.
class JobShares {
 public:
  JobShares() = default;
  explicit JobShares(std::vector<std::vector<int>> by_rank);
  // Without weights, the shard counts of the ranks differ by at most one, and so do those of the devices within a rank.
  // Throws if the number of weights differs from the number of devices.
  JobShares(int shards, std::span<const int> devices_of_rank, std::span<const double> weights = {});

  int shards() const { return first_.back(); }
  int ranks() const { return static_cast<int>(by_rank_.size()); }
  // A rank's shards: [first, last).
  std::pair<int, int> of_rank(int rank) const {
    return {first_[static_cast<std::size_t>(rank)], first_[static_cast<std::size_t>(rank) + 1]};
  }
  // The number of shards of each of a rank's devices.
  const std::vector<int>& devices_of(int rank) const { return by_rank_[static_cast<std::size_t>(rank)]; }
  std::vector<int> devices_of_ranks() const;
  // The share of each device, rank 0's first.
  std::vector<int> all() const;
  // Returns the same devices with these shares, in the order of all().
  JobShares with(std::span<const int> all) const;
  bool operator==(const JobShares&) const = default;

 private:
  std::vector<std::vector<int>> by_rank_;
  std::vector<int> first_{0};  // first shard of each rank, then the number of shards
};

}  // namespace lockstep
