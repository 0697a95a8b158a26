// Internal: threads that help the lanes of a device with their loops.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/futex.h"

namespace lockstep {

struct SpinPolicy;
class ThreadTeam;

// Number of a device's lanes whose workers are awake, plus the number of other threads that compute for the device. The
// engine counts the lanes; see LaneOptions::busy_lanes.
using BusyLanes = std::shared_ptr<std::atomic<int>>;

// A device of c cores has c lanes and c - 1 helpers. One lane alone gets all helpers; if all lanes are busy, none
// helps. So any number of shards uses all cores, and nobody chooses how many threads compute a shard.
class HelperPool {
 public:
  // With `busy`, helpers compute only on cores that no lane needs; without, the pool belongs to one thread. Helpers
  // start with the first loop: on `cpus`, or on the cores of the thread that runs this loop.
  explicit HelperPool(int helpers, BusyLanes busy = nullptr, std::vector<int> cpus = {});
  // The teams must still exist, and run no loop.
  ~HelperPool();
  HelperPool(const HelperPool&) = delete;
  HelperPool& operator=(const HelperPool&) = delete;

  // How many threads may compute a loop of one lane now, its worker included: a fair part of the cores.
  int width() const {
    const int cores = helpers_wanted_ + 1, lanes = busy_ ? busy_->load(std::memory_order_relaxed) : 1;
    return lanes <= 1 ? cores : lanes >= cores ? 1 : (cores + lanes - 1) / lanes;
  }

  // Any thread may call it.
  void add(ThreadTeam& team);
  // Counts the calling thread, which is no lane's worker, as computing for the device until end_caller().
  void begin_caller() { count_caller(1); }
  void end_caller() { count_caller(-1); }
  // Calls helpers to the teams that have parts left. Wakes at most `most` of the sleeping helpers.
  void call(int most);

 private:
  void count_caller(int by) {
    if (busy_) busy_->fetch_add(by, std::memory_order_relaxed);
  }
  void start();
  void help(SpinPolicy* policy);
  // Takes a core for this helper until leave(). Returns false if no core is free.
  bool join();
  void leave();

  const int helpers_wanted_;
  const BusyLanes busy_;
  const std::vector<int> cpus_;
  std::mutex mutex_;  // protects helpers_, and additions to the list of teams
  std::vector<std::thread> helpers_;
  std::atomic<bool> started_{false};
  // A list that only grows.
  std::atomic<ThreadTeam*> teams_{nullptr};
  // Changes with each loop. Helpers sleep on it.
  alignas(64) FutexWord loop_{0};
  std::atomic<int> sleeping_{0};
  std::atomic<bool> stopping_{false};
  // Helpers that compute.
  std::atomic<int> active_{0};
};

}  // namespace lockstep
