// Cuts a global batch into shards and assigns them to devices: in equal shares, by weights, or by measured speed.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

class Communicator;  // parallel/job.h
class Stopwatch;     // engine/stopwatch.h

struct SplitOptions {
  // V of the recipe: the number of shards; 0: one for each device. The bits depend on V, not on the devices.
  int shards = 0;
  // Weights of the devices: {2, 1} gives the first one twice as many shards. Empty: equal shares. Balancer sets shares
  // by measured speed.
  std::vector<double> balance{};
};

// The default V: the largest power of two from 1 to 8 that leaves at least 16 samples per shard. It depends on the
// batch alone, so training has the same bits on one device and on eight. default_shards(128) is 8, default_shards(100)
// is 4.
int default_shards(std::int64_t batch_size);

// Cuts axis 0 into chunks of ceil(n / V) samples (the last ones may be short or missing) and copies each to its device.
// Each device gets consecutive shards; without weights, shard s goes to devices[floor(s * D / V)], where D is the
// number of devices. x may be in host memory or on any device. Copies are asynchronous: they keep the host memory
// alive; do not change it until they are done. Differentiable. Throws if there are no devices, if x has no samples or
// is cut or replicated already, if `shards` is negative, or if the weights are not one positive number per device.
Tensor split_and_load(const Tensor& x, std::span<const Device> devices, SplitOptions options = {});

// The sizes of the chunks that n samples are cut into: split_sizes(10, 3) is 4 4 2, split_sizes(10, 8) is 2 2 2 2 2.
// Throws if n is negative or `shards` is below 1.
std::vector<std::int64_t> split_sizes(std::int64_t n, int shards);

// Decides how many shards each device computes. This affects the time of a step, never the bits.

// How to divide the shards among the devices. Each device gets consecutive shards.
struct Balance {
  // True: each device gets shards in proportion to its measured speed.
  bool automatic = false;
  // One weight for each device, which gets shards in proportion to it. With several ranks, the devices of rank 0 come
  // first. Empty: equal shares. With `automatic`, the weights decide the shares at the beginning.
  std::vector<double> weights{};

  // Parses "auto", "equal", or "2,1". Throws an Error for other text: `found '-1', expected auto, equal, or ...`.
  static Balance parse(std::string_view text);
  bool operator==(const Balance&) const = default;
};

// The time a device takes for a shard, and the number of shards it computes at a time.
struct ShardCost {
  double seconds = 0;  // 0: unknown
  int lanes = 1;
};

// Shares are numbers of shards, one for each device. equal_shares: they differ by at most one. If there are fewer
// shards than devices, some devices get none.
std::vector<int> equal_shares(int shards, std::size_t devices);
// Shares in proportion to the weights, as closely as whole shards allow, with at least one for each device.
std::vector<int> weighted_shares(int shards, std::span<const double> weights);
// The shares that make a step shortest. Each device gets at least one shard, so that its speed can be measured. A
// device of unknown speed counts as the fastest.
std::vector<int> fastest_shares(int shards, std::span<const ShardCost> costs);
// The seconds that the slowest device takes for its share.
double step_seconds(std::span<const int> shares, std::span<const ShardCost> costs);
// The fastest shares if they make a step at least 5 % shorter than `shares`, otherwise `shares`. Small variations of
// the measurements therefore move no shards.
std::vector<int> rebalanced_shares(std::span<const int> shares, std::span<const ShardCost> costs);

// The index in `shares` of the device that computes the shard.
std::size_t device_of_shard(int shard, std::span<const int> shares);

// The shares of all devices of a job, by rank.
class JobShares {
 public:
  JobShares() = default;
  explicit JobShares(std::vector<std::vector<int>> by_rank);
  // Without weights, the ranks' numbers of shards differ by at most one, and so do those of the devices within a rank.
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
  // The same devices with these shares.
  JobShares with(std::span<const int> all) const;
  bool operator==(const JobShares&) const = default;

 private:
  std::vector<std::vector<int>> by_rank_;
  std::vector<int> first_{0};  // first shard of each rank, then the number of shards
};

struct BalancerOptions {
  // Steps between two decisions.
  int every = 20;
  // Returns the seconds that each device of this process takes for a shard. Empty: the engine measures them. For
  // programs that measure speeds themselves, and for tests.
  std::function<std::vector<double>()> seconds_per_shard{};
};

// Shares by measured speed: a device that computes faster gets more shards. The engine measures how long each device is
// busy with its shards, and every 20 steps the shards may move.
//
//   Balancer balancer(devices, shards);
//   for (Example& batch : loader) {
//     SplitOptions split{.shards = shards, .balance = balancer.weights()};
//     const Tensor x = split_and_load(batch[0], devices, split), labels = split_and_load(batch[1], devices, split);
//     cross_entropy(net(x), labels).backward();
//     optimizer.step();
//     balancer.step();
//   }
//
// Trainer does this with Balance{.automatic = true}.
class Balancer {
 public:
  // Begins with equal shares, for a process without other ranks.
  Balancer(const std::vector<Device>& devices, int shards, BalancerOptions options = {});
  // Collective. Begins with these shares of the devices of all ranks. A null communicator means that this process is
  // alone.
  Balancer(std::vector<Device> devices, JobShares shares, std::shared_ptr<Communicator> communicator,
           BalancerOptions options = {});

  ~Balancer();
  Balancer(const Balancer&) = delete;
  Balancer& operator=(const Balancer&) = delete;

  // Call it after each step. Returns true if the shares change from the next step on. Collective: ranks agree on the
  // shares here, so all must call it the same number of times.
  bool step();
  // Work described between pause() and resume(), such as an evaluation, is not measured.
  void pause();
  void resume();

  const JobShares& shares() const { return shares_; }
  // The shares of this process's devices, for SplitOptions.
  std::vector<double> weights() const;

 private:
  void start_or_stop();
  std::vector<double> measure();
  std::vector<double> gather(const std::vector<double>& mine, const char* what) const;
  int rank() const;

  std::vector<Device> devices_;
  JobShares shares_;
  std::shared_ptr<Communicator> communicator_;
  BalancerOptions options_;
  std::vector<double> lanes_;           // compute lanes of all devices of the job
  std::vector<Stopwatch> stopwatches_;  // of each device of this process
  int steps_ = 0;                       // steps since the last decision
  int measured_ = 0;                    // measured ones among them
  bool running_ = false, paused_ = false;
};

}  // namespace lockstep
