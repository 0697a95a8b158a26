// The engine. A task names the data that it reads and writes and the lane that it runs on; the engine starts
// it when that data is ready. Rules:
//
//   - The order of pushing is the order of effect: whatever runs at the same time, every task sees the data
//     as if all tasks had run one by one in the order in which they were pushed.
//   - Readers of a resource run together, a writer runs alone.
//   - A lane runs its tasks in the order in which they were pushed, like a CUDA stream, and holds back only
//     the first one whose data is not ready. Parallelism comes from several lanes.
//   - A task that throws fails what it writes. Whoever reads failed data is skipped and fails what it writes
//     in turn, with the first task's error. The error surfaces at every wait that needs the data, until a
//     task that does not read it writes it anew. See failure.h.
//   - A lane may have a stream: a queue of work that a device does beside the lane's worker. Its tasks only queue
//     their work there. Whoever uses their data then waits for the device: on its own stream, or, where there
//     is none, in its thread. What a device reports as failed is lost with all that the stream had not finished
//     by then: as if the first of these tasks had thrown and the others had read what it wrote.
//   - Pushing and waiting inside a task are errors: a task could wait for itself, and what it pushed would
//     have no place in the order.
//
// The serial engine (EngineOptions::serial) keeps all of these rules and runs each task inside push().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/engine/counters.h"
#include "lockstep/engine/failure.h"
#include "lockstep/engine/resource.h"
#include "lockstep/engine/task.h"

namespace LOCKSTEP_API lockstep {

class PushObserver;
class Stream;
class Trace;

struct EngineOptions {
  // Run each task inside push(), on the caller's thread.
  bool serial = false;
  // When this many tasks are unfinished, push() waits until an eighth of them have finished: bounds how far
  // the host can run ahead. Tasks that have queued their work on a stream count for that stream: its lane's worker
  // waits while an eighth of this number are unfinished.
  std::int64_t max_pending_tasks = 16384;
  // Whoever waits spins this long before it sleeps, while no more threads are awake than there are cores.
  std::int64_t spin_microseconds = 50;
  // Cores that the process may use; 0: those of its affinity mask.
  int cores = 0;
  // Whoever waits in vain for this long calls on_slow_wait with the pending_report(), and again each time
  // that the wait has doubled; the wait goes on. For debugging; 0: never. What the function throws is lost.
  std::chrono::nanoseconds slow_wait{0};
  std::function<void(std::chrono::nanoseconds waited, const std::string& report)> on_slow_wait = {};
};

// One per lane; everything is optional but the name.
struct LaneOptions {
  // As in the timeline: "compute 0", "copy in".
  std::string name = {};
  // The device that the lane belongs to, as in the timeline: "cpu:0".
  std::string device = {};
  // Cores that the lane's worker is bound to; none: wherever the process may run.
  std::vector<int> cpus = {};
  // Where the lane's tasks queue their work, and no other lane's do. A task counts as completed when its function
  // has returned: its closure goes then, and what its work still uses is whatever its resources stand for. The
  // timeline shows the device's times. The serial engine waits for the stream after each task.
  std::shared_ptr<Stream> stream = {};
  // Runs first on the lane's worker thread; in the serial engine, inside add_lane.
  std::function<void()> on_start = {};
  // Handed to the lane's tasks as TaskContext::lane_data.
  void* lane_data = nullptr;
  // Bytes in use on the device, for the timeline: read whenever a task begins.
  std::shared_ptr<const std::atomic<std::int64_t>> device_bytes = {};
};

class Engine {
 public:
  explicit Engine(EngineOptions options = {});
  // Waits for every task. A failure that no one waited for is lost here: call wait_all() to see it. A task
  // whose closure owned the engine cannot wait for itself: the workers then finish what was pushed and end by
  // themselves.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Returns when the lane's worker is bound and on_start has run. Throws what that threw, or an Error for
  // cores that the process may not use.
  LaneId add_lane(LaneOptions options);

  // A new resource that nobody uses yet.
  Resource make_resource();
  // A new resource for memory that `old` stood for: its first users wait for whoever still uses `old`, but do
  // not see old's failures.
  Resource make_successor(const Resource& old);

  // The one of `lanes` on which the task waits least, so that independent tasks spread and chains stay
  // together: behind an unfinished task that it depends on, if that is its lane's last one; else where the
  // fewest are unfinished. For tasks that may run on any of the lanes; task.lane is ignored.
  LaneId choose_lane(std::span<const LaneId> lanes, const Task& task) const;

  // From any thread but a worker. Blocks only at max_pending_tasks, and in the serial engine for the task
  // itself.
  void push(Task task);

  // Until every task pushed so far that writes the resource has finished. Throws the resource's failure.
  void wait_readable(const Resource& resource);
  // Until every task pushed so far that reads or writes the resource has finished. Throws nothing: the data
  // is about to be overwritten or freed.
  void wait_unused(const Resource& resource);
  // Until every task pushed so far has finished. Throws the first failure, in order of pushing, that no wait
  // has thrown yet, if there is one. A cancellation is no failure of a task, and not thrown here.
  void wait_all();

  // What was pushed so far and has not started is skipped, because nobody needs it any more: after an error
  // or an interruption. What it would have written fails with a CancelledError; nothing of it is torn. Tasks
  // that run, or have queued their work on a stream, finish. Returns at once; all waits end soon. What is pushed
  // from now on runs, once its data is written anew.
  void cancel_pending(const std::string& reason);

  // Whether all tasks that use the resource have finished, on the devices, too.
  bool unused(const Resource& resource) const;
  // The resource's failure, if its last finished writer failed; null otherwise. Does not wait.
  FailurePtr failure(const Resource& resource) const;
  // Waits until the resource is unused, then takes the old data of a skipped write as good. False, and
  // nothing changes, where the data is torn.
  bool forgive(const Resource& resource);

  EngineCounters counters() const;
  // By LaneId::index.
  std::vector<LaneCounters> lane_counters() const;
  // As in LaneCounters.
  std::chrono::nanoseconds busy(LaneId lane) const;
  // For Stopwatch. In a task of a lane with a stream: whether the device's time for the lane's next tasks is taken.
  void time_launches(LaneId lane, bool on);
  // The sum of these times, of tasks that have been waited for, since the last call. 0 for a lane without a stream.
  std::chrono::nanoseconds take_launched_time(LaneId lane);
  const EngineOptions& options() const;
  // "cpu:0 compute 0"
  std::string lane_name(LaneId lane) const;
  int lane_count() const;

  // The unfinished tasks by lane, at most `tasks_per_lane` of each, and what the first one of each waits for:
  // to see why nothing moves. Empty if all have finished.
  std::string pending_report(int tasks_per_lane = 8) const;

  // Records every task from now on until stop; null stops. The trace outlives the recording. Tasks of streams
  // come into it when they have finished and someone has waited for them, or for a later one.
  void set_trace(std::shared_ptr<Trace> trace);
  bool tracing() const;
  // Told of every push from now on until it is replaced; null: nobody. Returns the one before.
  std::shared_ptr<PushObserver> set_push_observer(std::shared_ptr<PushObserver> observer);

 private:
  struct Impl;
  // Shared with the workers.
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep
