// The engine's threads around the state machine of dependency_graph.h: one lock, one worker a lane.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/engine/adaptive_lock.h"
#include "lockstep/engine/dependency_graph.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/lane.h"
#include "lockstep/engine/parker.h"
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
  void sleep(SpinPolicy& policy);

 private:
  void opened() noexcept override { parker_.unpark(); }
  Parker parker_;
};

struct Engine::Impl {
  explicit Impl(EngineOptions engine_options);
  bool finished() const { return stopping && graph.unfinished() == 0; }

  using Lock = std::unique_lock<AdaptiveLock>;
  Lock lock() const { return Lock(mutex); }

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
  };
  // Runs the task, or skips it if there is a failure, and destroys its closure. Without the lock.
  Ending run(TaskNode& node, const Lane& lane, FailurePtr failed_read, TraceLane* trace) const noexcept;
  Ending fail(const TaskNode& node, const Lane& lane, std::exception_ptr cause) const noexcept;
  // With the lock. Returns what is to be cleared without it.
  NodeList complete(TaskNode* node, Ending& ending) noexcept;

  void push_serial(Task&& task);
  // Adds gates for `waiter` by `add`, under the lock, and returns, with the lock, when they are open.
  template <typename Add>
  Lock wait(HostWaiter& waiter, Add add) {
    Lock guard = lock();
    add();
    if (!waiter.open()) {
      guard.unlock();
      waiter.sleep(spin);
      // Also waits for whoever woke us, and may still be using the waiter.
      guard.lock();
    }
    return guard;
  }

  const EngineOptions options;
  SpinPolicy spin;
  // For a task that failed with no memory left to say how.
  const FailurePtr out_of_memory;

  std::mutex serial_mutex;  // the serial engine runs one task at a time, whoever pushes; taken before `mutex`

  mutable AdaptiveLock mutex;  // of all below
  DependencyGraph graph;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::shared_ptr<Trace> trace;
  bool stopping = false;
  bool pushers_wait = false;
  std::condition_variable_any room;
};

}  // namespace lockstep
