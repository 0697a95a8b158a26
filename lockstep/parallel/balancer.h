// Shares by measured speed: a device that computes faster gets more shards. The engine measures how long each device is
// busy with its shards, and every 20 steps the shards may move.
//
//   Balancer balancer(devices, shards);
//   for (Example& batch : loader) {
//     SplitOptions split{.shards = shards, .balance = balancer.weights()};
//     cross_entropy(net(split_and_load(batch[0], devices, split)), split_and_load(batch[1], devices, split)).backward();
//     optimizer.step();
//     balancer.step();
//   }
//
// Trainer does it with Balance{.automatic = true}.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/engine/stopwatch.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/communicator.h"

namespace LOCKSTEP_API lockstep {

struct BalancerOptions {
  // Steps between two decisions.
  int every = 20;
  // The seconds that each device of this process takes for a shard, in place of the engine's measurement: for a program
  // that knows better, and for tests.
  std::function<std::vector<double>()> seconds_per_shard{};
};

class Balancer {
 public:
  // Begins with equal shares.
  Balancer(const std::vector<Device>& devices, int shards, BalancerOptions options = {});
  // Collective: with these shares, of the devices of all ranks. Null: this process is alone.
  Balancer(std::vector<Device> devices, JobShares shares, std::shared_ptr<Communicator> communicator,
           BalancerOptions options = {});

  // When a step has been described. True if shares are others from the next step on. Ranks then have agreed on them:
  // each has to call it as often as the others.
  bool step();
  // Tasks that are described between the two are not measured: evaluation, say.
  void pause();
  void resume();

  const JobShares& shares() const { return shares_; }
  // The shares of this process's devices, for SplitOptions.
  std::vector<double> weights() const;

 private:
  void start_or_stop();
  std::vector<double> measure();
  std::vector<double> gather(const std::vector<double>& mine, const char* what) const;
  int rank() const { return communicator_ ? communicator_->rank() : 0; }

  std::vector<Device> devices_;
  JobShares shares_;
  std::shared_ptr<Communicator> communicator_;
  BalancerOptions options_;
  std::vector<double> lanes_;  // compute lanes of all devices of the job
  std::vector<Stopwatch> stopwatches_;  // of each device of this process
  int steps_ = 0;                       // since the last decision,
  int measured_ = 0;                    // and those of them that were measured
  bool running_ = false, paused_ = false;
};

}  // namespace lockstep
