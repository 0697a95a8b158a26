// The engine's threads around the state machine of dependency_graph.h: one lock, one worker a lane.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/engine/adaptive_lock.h"
#include "lockstep/engine/dependency_graph.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/lane.h"
#include "lockstep/engine/launched_tasks.h"
#include "lockstep/engine/parker.h"
#include "lockstep/engine/push_observer.h"
#include "lockstep/engine/trace.h"

namespace lockstep {

// What a thread runs now: waiting inside a task is an error and not a deadlock.
struct CurrentTask {
  const void* engine = nullptr;
  const std::string* name = nullptr;
};
CurrentTask& current_task();

// A host thread asleep until its gates are open.
class HostWaiter final : public Waiter {
 public:
  // False if the time was up first.
  bool sleep(SpinPolicy& policy, std::optional<std::chrono::nanoseconds> timeout);
  // Why a stream has lost the data that was waited for.
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
  // Gives the tasks that have become ready to their lanes, with the lock. Returns the lanes whose workers are
  // to be woken without it.
  Lane* dispatch() noexcept;
  static void wake(Lane* lanes) noexcept;
  // A lane's worker, until all is finished.
  void work(Lane& lane) noexcept;

  // How a task has ended.
  struct Ending {
    Outcome outcome = Outcome::kDone;
    FailurePtr failure;
    DependencyGraph::FailureEntry entry;
    std::uint64_t ticket = 0;  // of the work that it has queued on its lane's stream
  };
  // Runs the task, or skips it if there is a reason, and destroys its closure. Without the lock.
  Ending run(ReadyTask& task, Lane& lane) noexcept;
  void call(const ReadyTask& task, const Lane& lane, Ending& ending) const;
  // The same on a lane with a stream.
  void launch(const ReadyTask& task, Lane& lane, Ending& ending) noexcept;
  std::vector<LaunchedTasks::Part> trace_parts(const std::vector<TaskPart>& parts);
  // What streams have to do first: the lane's stream waits for it, or the caller. Returns a failure that is the task's,
  // too, if there is one.
  FailurePtr await_devices(TaskNode& node, Lane& lane);
  Ending fail(const TaskNode& node, const Lane& lane, std::exception_ptr cause) const noexcept;
  FailurePtr make_failure(const std::string& task, std::int64_t order, const std::string& lane,
                          std::exception_ptr cause) const noexcept;
  // With the lock. Returns what is to be cleared without it.
  NodeList complete(TaskNode* node, Lane& lane, Ending& ending) noexcept;

  void push_serial(Task&& task);
  // Waits, with the lock when it returns, until no more than the allowed number of tasks are pending.
  void wait_for_room(Lock& guard);
  // Calls wait_for(time limit) until it is true, and tells on_slow_wait each time that it is not. Without the
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
  // Adds gates for `waiter` by `add_gates`, under the lock, and returns, with the lock, when they are open.
  template <typename AddGates>
  Lock wait(HostWaiter& waiter, AddGates add_gates) {
    Lock guard = lock();
    add_gates();
    if (!waiter.open()) {
      guard.unlock();
      wait_patiently([&](auto timeout) { return waiter.sleep(spin, timeout); });
      // Also waits for whoever woke us, and may still be using the waiter.
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
  // Without the lock.
  void wait_for_devices(const std::vector<DeviceWait>& waits);
  // Of the failures known so far of what has written the data, the one pushed first; null: none. Without the lock.
  FailurePtr first_loss(const std::vector<DeviceWait>& waits) const;

  const EngineOptions options;
  SpinPolicy spin;
  // For a task that failed with no memory left to say how.
  const FailurePtr out_of_memory;

  std::mutex serial_mutex;  // the serial engine runs one task at a time, whoever pushes; taken before `mutex`

  // On a cache line of its own: who waits for it does not disturb who works on what it protects, all below.
  alignas(64) mutable AdaptiveLock mutex;
  alignas(64) DependencyGraph graph;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::shared_ptr<Trace> trace;
  std::shared_ptr<PushObserver> observer;
  bool stopping = false;
  bool pushers_wait = false;
  std::condition_variable_any room;

  // Goes first: streams finish while all else is there.
  LaunchedTasks launched;
};

}  // namespace lockstep
