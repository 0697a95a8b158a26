// Shares by measured speed.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/parallel/balance.h"

namespace LOCKSTEP_API lockstep {

class Communicator;  // parallel/communicator.h
class Stopwatch;     // engine/stopwatch.h

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
//     const std::vector<int>& shares = balancer.own_shares();
//     const Tensor x = split_and_load(batch[0], devices, shares), labels = split_and_load(batch[1], devices, shares);
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
  // The shares of this process's devices, for split_and_load().
  const std::vector<int>& own_shares() const { return shares_.devices_of(rank()); }

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
  int measured_ = 0;                    // measured steps among them
  bool running_ = false, paused_ = false;
};

}  // namespace lockstep
