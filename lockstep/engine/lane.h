// A lane of an engine: what it is called, its worker, and the one task of it that may run now.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/engine/counters.h"
#include "lockstep/engine/dependency_graph.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/parker.h"
#include "lockstep/engine/trace.h"

namespace lockstep {

// A task that is to run, and what was known of it under the engine's lock.
struct ReadyTask {
  TaskNode* node = nullptr;
  FailurePtr reason_to_skip = {};
  std::shared_ptr<TraceLane> trace = {};
  std::int64_t queued = 0;
};

// Time between begin() and end(), in all. One thread calls both; any thread may read.
class BusyClock {
 public:
  void begin() { add(-Trace::steady_ns()); }
  void end() { add(Trace::steady_ns()); }
  std::chrono::nanoseconds total() const {
    const std::int64_t balance = balance_.load(std::memory_order_relaxed);
    return std::chrono::nanoseconds(balance < 0 ? balance + Trace::steady_ns() : balance);
  }

 private:
  void add(std::int64_t ns) {
    balance_.store(balance_.load(std::memory_order_relaxed) + ns, std::memory_order_relaxed);
  }
  // Less the time of begin() in between, which is more than all that was counted.
  std::atomic<std::int64_t> balance_{0};
};

struct Lane {
  explicit Lane(LaneOptions lane_options);
  // "cpu:0 compute 0"
  std::string full_name() const;
  // Names the calling thread after the lane, binds it to the lane's cores and runs on_start. Throws.
  void start_worker() const;
  // Bytes in use on the device; -1: unknown.
  std::int64_t device_bytes() const {
    return options.device_bytes ? options.device_bytes->load(std::memory_order_relaxed) : -1;
  }
  // Whether the lane's stream has yet to be told to wait for this. The worker's.
  bool awaits(Ticket ticket);

  const LaneOptions options;

  // The worker's: whether the device's time for each task is taken.
  bool times_launches = false;
  // The worker's. By lane: up to which ticket this lane's stream waits for that one's already.
  std::vector<std::uint64_t> awaited;
  // The worker's when it has been woken, until it ends the task; otherwise under the engine's lock.
  ReadyTask ready;
  // Under the engine's lock.
  bool idle = false;           // its worker parks, or is about to
  Lane* next_woken = nullptr;  // of those that one critical section wakes
  std::shared_ptr<TraceLane> trace;
  std::int64_t completed = 0;

  BusyClock busy;
  // Its worker looks at it while it spins: on a cache line of its own.
  alignas(64) Parker parker;
  std::thread worker;  // none in the serial engine
};

}  // namespace lockstep
