// The engine's threads around the state machine of dependency_graph.h: one lock, and one worker per lane.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/adaptive_lock.h"
#include "lockstep/engine/dependency_graph.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/lane.h"
#include "lockstep/engine/launched_tasks.h"
#include "lockstep/engine/parker.h"
#include "lockstep/engine/push_observer.h"
#include "lockstep/engine/trace.h"

namespace lockstep {

// The task that a thread runs now. Because of it, waiting inside a task is an error instead of a deadlock.
struct CurrentTask {
  const void* engine = nullptr;
  const std::string* name = nullptr;
};
CurrentTask& current_task();

// A host thread asleep until its gates are open.
class HostWaiter final : public Waiter {
 public:
  // Returns false on timeout.
  bool sleep(SpinPolicy& policy, std::optional<std::chrono::nanoseconds> timeout);
  // Why a stream lost the awaited data.
  FailurePtr loss;

 private:
  void opened() noexcept override { parker_.unpark(); }
  Parker parker_;
};

struct Engine::Impl {
  explicit Impl(EngineOptions engine_options);
  bool finished() const { return stopping && graph.unfinished() == 0; }

  using Lock = std::unique_lock<AdaptiveLock>;
  Lock lock() const { return Lock(mutex); }

  // With the lock.
  void add(Task&& task);
  // Gives ready tasks to their lanes; call with the lock. Returns the lanes whose workers the caller wakes without the
  // lock.
  Lane* dispatch() noexcept;
  static void wake(Lane* lanes) noexcept;
  // Runs a lane's worker until everything has finished.
  void work(Lane& lane) noexcept;

  // How a task has ended.
  struct Ending {
    Outcome outcome = Outcome::kDone;
    FailurePtr failure;
    FailureEntry entry;
    std::uint64_t ticket = 0;  // behind the work queued on the lane's stream
  };
  // Runs the task, or skips it if there is a reason, and destroys its closure. Call without the lock.
  Ending run(ReadyTask& task, Lane& lane) noexcept;
  void call(const ReadyTask& task, const Lane& lane, Ending& ending) const;
  // The same on a lane with a stream.
  void launch(const ReadyTask& task, Lane& lane, Ending& ending) noexcept;
  std::vector<LaunchedTasks::Part> trace_parts(const std::vector<TaskPart>& parts);
  // Makes the lane's stream, or else the caller, wait for the stream work that must finish first. Returns a failure
  // that the task inherits, if there is one.
  FailurePtr await_devices(TaskNode& node, Lane& lane);
  Ending fail(const TaskNode& node, const Lane& lane, std::exception_ptr cause) const noexcept;
  FailurePtr make_failure(const std::string& task, std::int64_t order, const std::string& lane,
                          std::exception_ptr cause) const noexcept;
  // Tells a skipped task's function why.
  void tell(const ReadyTask& task, const Lane& lane) const noexcept;
  // Call with the lock. Returns the nodes that the caller clears without it.
  NodeList complete(TaskNode* node, Lane& lane, Ending& ending) noexcept;

  void push_serial(Task&& task);
  // Waits until at most the allowed number of tasks are pending. Holds the lock when it returns.
  void wait_for_room(Lock& guard);
  // Calls wait_for(time limit) until it returns true, and on_slow_wait each time it returns false. Call without the
  // lock.
  template <typename WaitFor>
  void wait_patiently(WaitFor wait_for) {
    if (options.slow_wait.count() <= 0 || !options.on_slow_wait) {
      wait_for(std::nullopt);
      return;
    }
    std::chrono::nanoseconds waited{0}, limit = options.slow_wait;
    while (!wait_for(limit)) {
      waited += limit;
      limit = waited;
      report_slow_wait(waited);
    }
  }
  void report_slow_wait(std::chrono::nanoseconds waited) noexcept;
  std::string pending_report(int tasks_per_lane);
  // Adds gates for `waiter` with `add_gates` under the lock. Returns with the lock held when the gates are open.
  template <typename AddGates>
  Lock wait(HostWaiter& waiter, AddGates add_gates) {
    Lock guard = lock();
    add_gates();
    if (!waiter.open()) {
      guard.unlock();
      wait_patiently([&](auto timeout) { return waiter.sleep(spin, timeout); });
      // This also waits for the thread that woke us, which may still be using the waiter.
      guard.lock();
    }
    if (!waiter.device_waits.empty()) {
      guard.unlock();
      wait_for_devices(waiter.device_waits);
      waiter.loss = first_loss(waiter.device_waits);
      guard.lock();
    }
    return guard;
  }
  // Throws a failure and notes that. Call with the lock.
  [[noreturn]] void report(FailurePtr failure, Lock guard);
  // Without the lock.
  void wait_for_devices(const std::vector<DeviceWait>& waits);
  // Returns the earliest-pushed failure known so far among the tasks that wrote the data; null if none. Call without
  // the lock.
  FailurePtr first_loss(const std::vector<DeviceWait>& waits) const;

  const EngineOptions options;
  SpinPolicy spin;
  std::atomic<std::uint64_t> reports{0};
  // Used when a task fails and there is no memory left to describe the failure.
  const FailurePtr out_of_memory;

  std::mutex serial_mutex;  // makes the serial engine run one task at a time; taken before `mutex`

  // On its own cache line, so waiting threads do not disturb the thread that works on the data it protects (everything
  // below).
  alignas(64) mutable AdaptiveLock mutex;
  alignas(64) DependencyGraph graph;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::shared_ptr<Trace> trace;
  std::shared_ptr<PushObserver> observer;
  bool stopping = false;
  bool pushers_wait = false;
  std::condition_variable_any room;

  // Destroyed first: streams finish while everything else still exists.
  LaunchedTasks launched;
};

}  // namespace lockstep
