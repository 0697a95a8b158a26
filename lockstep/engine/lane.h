// Internal: a lane of an engine: its name, its worker, and its one task that may run now.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/engine/counters.h"
#include "lockstep/engine/dependency_graph.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/failure.h"
#include "lockstep/engine/parker.h"
#include "lockstep/engine/trace.h"

namespace lockstep {

// A task about to run, with what was known about it under the engine's lock.
struct ReadyTask {
  TaskNode* node = nullptr;
  FailurePtr reason_to_skip = {};
  std::shared_ptr<TraceLane> trace = {};
  std::int64_t queued = 0;
};

// Total time between begin() and end(). One thread calls both; any thread may read.
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
  // Between begin() and end(), the time of begin() is subtracted. That exceeds every total, so the balance is negative.
  std::atomic<std::int64_t> balance_{0};
};

struct Lane {
  explicit Lane(LaneOptions lane_options);
  // "cpu:0 compute 0"
  std::string full_name() const;
  // Names the calling thread after the lane and binds it to the lane's cores. Throws.
  void start_worker() const;
  // Bytes in use on the device; -1: unknown.
  std::int64_t device_bytes() const {
    return options.device_bytes ? options.device_bytes->load(std::memory_order_relaxed) : -1;
  }
  // Returns whether the lane's stream must still be told to wait for the ticket, and notes that. For the worker only.
  bool awaits(Ticket ticket);

  const LaneOptions options;

  // Whether the device's time for each task is measured. Belongs to the worker.
  bool times_launches = false;
  // By lane: the last ticket of that lane that this lane's stream already waits for. Belongs to the worker.
  std::vector<std::uint64_t> awaited;
  // Belongs to the worker from when it is woken until it ends the task; otherwise protected by the engine's lock.
  ReadyTask ready;
  // Protected by the engine's lock.
  bool idle = false;           // its worker is parked or about to park
  Lane* next_woken = nullptr;  // list of lanes that one critical section wakes
  std::shared_ptr<TraceLane> trace;
  std::int64_t completed = 0;

  BusyClock busy;
  // On its own cache line, because the spinning worker reads it.
  alignas(64) Parker parker;
  std::thread worker;  // none in the serial engine
};

}  // namespace lockstep
