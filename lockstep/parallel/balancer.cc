#include "lockstep/parallel/balancer.h"

#include <algorithm>
#include <cmath>

#include "lockstep/engine/stopwatch.h"
#include "lockstep/parallel/communicator.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {
namespace {

JobShares alone(std::size_t devices, int shards) {
  const int count = static_cast<int>(devices);
  return JobShares(shards, {&count, 1});
}

}  // namespace

Balancer::Balancer(const std::vector<Device>& devices, int shards, BalancerOptions options)
    : Balancer(devices, alone(devices.size(), shards), nullptr, std::move(options)) {}

Balancer::Balancer(std::vector<Device> devices, JobShares shares, std::shared_ptr<Communicator> communicator,
                   BalancerOptions options)
    : devices_(std::move(devices)), shares_(std::move(shares)), communicator_(std::move(communicator)),
      options_(std::move(options)) {
  check(options_.every >= 1, "balancer: {} steps between decisions, expected at least 1", options_.every);
  check(rank() < shares_.ranks() && shares_.devices_of(rank()).size() == devices_.size(),
        "balancer: shares of other devices, expected those of {} devices", devices_.size());
  check(shares_.shards() >= std::ssize(shares_.all()),
        "balancer: {} shards for {} devices, expected at least one for each", shares_.shards(), shares_.all().size());
  std::vector<double> lanes;
  for (const Device device : devices_) {
    const DeviceState& state = state_of(device, "balancer");
    lanes.push_back(static_cast<double>(state.compute_lanes.size()));
    stopwatches_.emplace_back(state.engine, state.compute_lanes);
  }
  lanes_ = gather(lanes, "compute lanes");
  start_or_stop();
}

Balancer::~Balancer() = default;

int Balancer::rank() const { return communicator_ ? communicator_->rank() : 0; }

// Measures neither the first steps after a change, which allocate memory and choose algorithms, nor the last ones
// before a decision: the host runs ahead, so these steps are still being computed when the decision reads the times.
void Balancer::start_or_stop() {
  const int margin = options_.every / 5;
  const bool run = !paused_ && steps_ >= margin && steps_ < options_.every - margin && !options_.seconds_per_shard;
  if (run == std::exchange(running_, run)) return;
  for (Stopwatch& stopwatch : stopwatches_) run ? stopwatch.start() : stopwatch.stop();
}

bool Balancer::step() {
  measured_ += running_;
  ++steps_;
  start_or_stop();
  if (steps_ < options_.every) return false;
  const std::vector<double> seconds = gather(measure(), "speeds of devices");
  steps_ = measured_ = 0;
  start_or_stop();
  std::vector<ShardCost> costs;
  for (std::size_t d = 0; d < seconds.size(); ++d) costs.push_back({seconds[d], static_cast<int>(lanes_[d])});
  const std::vector<int> before = shares_.all(), after = rebalanced_shares(before, costs);
  if (after == before) return false;
  shares_ = shares_.with(after);
  return true;
}

void Balancer::pause() {
  paused_ = true;
  start_or_stop();
}

void Balancer::resume() {
  paused_ = false;
  start_or_stop();
}

// A device finishes when its busiest lane does.
std::vector<double> Balancer::measure() {
  if (options_.seconds_per_shard) {
    std::vector<double> seconds = options_.seconds_per_shard();
    check(seconds.size() == devices_.size(), "balancer: seconds of {} devices, expected {}", seconds.size(),
          devices_.size());
    return seconds;
  }
  std::vector<double> seconds;
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    const auto times = stopwatches_[d].take();
    const auto lanes = static_cast<int>(times.size()), shares = shares_.devices_of(rank())[d];
    const double busiest = std::chrono::duration<double>(std::ranges::max(times)).count() / std::max(measured_, 1);
    seconds.push_back(shares > 0 ? busiest / ((shares + lanes - 1) / lanes) : 0);
  }
  return seconds;
}

// Returns one number for each device of the job. The numbers travel as integers, in units of 1e-9.
std::vector<double> Balancer::gather(const std::vector<double>& mine, const char* what) const {
  if (!communicator_ || communicator_->alone()) return mine;
  constexpr double kUnit = 1e9;
  std::vector<std::vector<double>> by_rank(static_cast<std::size_t>(shares_.ranks()));
  const std::vector<int> devices = shares_.devices_of_ranks();
  for (int d = 0; d < std::ranges::max(devices); ++d) {
    const bool has = d < std::ssize(mine);
    const auto number = has ? std::llround(kUnit * mine[static_cast<std::size_t>(d)]) : 0;
    const std::vector<std::int64_t> all = communicator_->gather_on_host(number, what);
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (d < devices[r]) by_rank[r].push_back(static_cast<double>(all[r]) / kUnit);
    }
  }
  std::vector<double> flat;
  for (const auto& rank : by_rank) flat.insert(flat.end(), rank.begin(), rank.end());
  return flat;
}

}  // namespace lockstep
