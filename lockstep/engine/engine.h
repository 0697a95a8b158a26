// Internal: the engine. A task names the data that it reads and writes and the lane that it runs on. The engine starts
// the task when its data is ready. Rules:
//
//   - The order of pushing is the order of effect: every task sees the data as if all tasks had run one by one in the
//     order in which they were pushed, whatever runs at the same time.
//   - Readers of a resource may run together; a writer runs alone.
//   - A lane runs its tasks in the order in which they were pushed, like a CUDA stream. A task whose data is not ready
//     holds up its own lane only. Parallelism comes from several lanes.
//   - A task that throws fails what it writes. A task that reads failed data is skipped and fails what it writes in
//     turn, with the first task's error. Every wait that needs the data throws that error, until a task that does not
//     read the data writes it anew. See Failure in failure.h.
//   - Data that a skipped task was to update (Task::updates: it both reads and writes the data) keeps its value and
//     stays good: the weights after a batch with an invalid label are those before it. A failure is never silent: until
//     a wait has thrown it, the first wait for such data, or for data computed from it, throws it once.
//   - A lane may have a stream: a queue of work that a device runs beside the lane's worker. The lane's tasks only
//     queue their work there. A later user of their data waits for the device: on its own stream, or, if it has none,
//     in its thread. When a device reports a failure, all unfinished work of the stream is lost, as if the first of
//     these tasks had thrown and the others had read what it wrote.
//   - Pushing and waiting inside a task are errors: a task could wait for itself, and a task pushed there would have no
//     place in the order.
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
#include <vector>

#include "lockstep/engine/counters.h"
#include "lockstep/engine/failure.h"
#include "lockstep/engine/resource.h"
#include "lockstep/engine/task.h"

namespace lockstep {

class PushObserver;
class Stream;
class Trace;

struct EngineOptions {
  // Runs each task inside push(), on the caller's thread.
  bool serial = false;
  // When this many tasks are unfinished, push() waits until an eighth of them have finished. This limits how far the
  // host runs ahead. Tasks that have queued their work on a stream do not count here: when an eighth of this number are
  // unfinished on a stream, the lane's worker waits.
  std::int64_t max_pending_tasks = 16384;
  // A waiting thread spins this long before it sleeps, as long as no more threads are awake than there are cores.
  std::int64_t spin_microseconds = 50;
  // Number of cores that the process may use; 0: all cores of its affinity mask.
  int cores = 0;
  // For debugging: a wait that takes this long calls on_slow_wait with the pending_report(), again whenever the time
  // has doubled, and goes on. 0: never. Exceptions of the function are ignored.
  std::chrono::nanoseconds slow_wait{0};
  std::function<void(std::chrono::nanoseconds waited, const std::string& report)> on_slow_wait = {};
};

// Options of one lane. Only the name is required.
struct LaneOptions {
  // The name in the timeline: "compute 0", "copy in".
  std::string name = {};
  // The lane's device in the timeline: "cpu:0".
  std::string device = {};
  // Cores that the lane's worker is bound to; empty: any core that the process may use.
  std::vector<int> cpus = {};
  // The stream on which the lane's tasks, and no others, queue their work. A task is complete when its function
  // returns. Its closure is destroyed then, so its pending work may use only memory that its resources stand for. The
  // timeline shows the device's times. The serial engine waits for the stream after each task.
  std::shared_ptr<Stream> stream = {};
  // The lane's tasks get this as TaskContext::lane_data.
  void* lane_data = nullptr;
  // Counts the lanes of a device whose workers are awake: each worker that works or spins adds one.
  std::shared_ptr<std::atomic<int>> busy_lanes = {};
  // Bytes in use on the device. The timeline reads it whenever a task begins.
  std::shared_ptr<const std::atomic<std::int64_t>> device_bytes = {};
};

class Engine {
 public:
  explicit Engine(EngineOptions options = {});
  // Waits for every task. A failure that no wait has thrown is lost here: call wait_all() to see it. If a task's
  // closure holds the last reference to the engine, the destructor does not wait, because the task would wait for
  // itself: the workers finish what was pushed and end by themselves.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Returns when the lane's worker is bound. Throws for cores that the process may not use.
  LaneId add_lane(LaneOptions options);

  // Returns a new, unused resource.
  Resource make_resource();
  // Returns a new resource for the memory that `old` stood for. Its first users wait for all users of `old`, but do not
  // see old's failures.
  Resource make_successor(const Resource& old);

  // Chooses one of `lanes` for a task that may run on any of them, so that independent tasks spread and chains stay
  // together: a lane whose last task may be unfinished and is one that `task` depends on; otherwise the lane with the
  // fewest unfinished tasks. Ignores task.lane.
  LaneId choose_lane(std::span<const LaneId> lanes, const Task& task) const;

  // Call it from any thread except a worker. It blocks only at max_pending_tasks and, in the serial engine, while the
  // task runs.
  void push(Task&& task);

  // Runs a task at once, on the calling thread and with `lane_data` in place of its lane's, after the tasks pushed so
  // far whose data it uses. Throws failures of data that it reads, and its own. The engine does not know of the task,
  // so until the call returns, no other thread may use what it writes or write what it reads. Returns false without
  // running the task if the engine is serial, traced, or observed, or if the task is an update, belongs to a
  // FailureGroup, or writes data that has failed. Call it from any thread except a worker.
  bool run_here(Task& task, void* lane_data);

  // Waits until every task pushed so far that writes the resource has finished. Throws the resource's failure; also,
  // once, a failure that no wait has thrown yet and because of which an update of this data was left out.
  void wait_readable(const Resource& resource);
  // Waits until every task pushed so far that reads or writes the resource has finished. Throws nothing: the data is
  // about to be overwritten or freed.
  void wait_unused(const Resource& resource);
  // Waits until every task pushed so far has finished. Throws the first failure, in order of pushing, that no wait has
  // thrown yet, if there is one. A thrown failure also covers later failures of data that a task read together with its
  // data, and the other failures of its FailureGroup. Cancellations are not thrown here.
  void wait_all();

  // Skips every task that was pushed and has not started. Use it after an error or an interruption, when the results
  // are no longer needed. Data that these tasks would have written or updated fails with a CancelledError but is not
  // torn. Tasks that run, or have queued their work on a stream, finish. Returns at once; all waits end soon. Tasks
  // pushed later run, except those that read such data before it is written anew.
  void cancel_pending(const std::string& reason);

  // Returns whether all tasks that use the resource have finished, including their work on devices.
  bool unused(const Resource& resource) const;
  // Returns the resource's failure if its last finished writer failed, otherwise null. Does not wait.
  FailurePtr failure(const Resource& resource) const;
  // Waits until the resource is unused, then accepts the data from before a skipped write as valid. Returns false and
  // changes nothing if the data is torn.
  bool forgive(const Resource& resource);

  // Returns whether a wait has yet to throw the failure.
  bool unreported(const Failure& failure) const;
  // Waits for the group's roots. Returns whether a wait has thrown a failure of them or of the group's tasks.
  bool reported(const FailureGroup& group);
  // Makes the failure count as not thrown yet, because more data is lost than the wait that threw it could report.
  void report_again(const FailurePtr& failure);
  // Number of failures that waits have thrown so far. When it changes, code that keeps data between steps looks for
  // failed data.
  std::uint64_t reports() const;
  EngineCounters counters() const;
  // Indexed by LaneId::index.
  std::vector<LaneCounters> lane_counters() const;
  // LaneCounters::busy of one lane.
  std::chrono::nanoseconds busy(LaneId lane) const;
  // Turns the device timing of the lane's next tasks on or off. For Stopwatch, which calls it in a task of a lane with
  // a stream.
  void time_launches(LaneId lane, bool on);
  // Returns the sum of the measured times since the last call, for tasks that have been waited for; 0 for a lane
  // without a stream.
  std::chrono::nanoseconds take_launched_time(LaneId lane);
  const EngineOptions& options() const;
  // "cpu:0 compute 0"
  std::string lane_name(LaneId lane) const;
  int lane_count() const;

  // Describes why nothing moves: the unfinished tasks by lane, at most `tasks_per_lane` of each, and what the first one
  // of each lane waits for. Empty if all have finished.
  std::string pending_report(int tasks_per_lane = 8) const;

  // Records every task from now on; null stops recording. The engine shares ownership of the trace. A task on a stream
  // is recorded when it has finished and something has waited for it or for a later one.
  void set_trace(std::shared_ptr<Trace> trace);
  bool tracing() const;
  // Sets the observer of every push from now on; null removes it. Returns the previous one.
  std::shared_ptr<PushObserver> set_push_observer(std::shared_ptr<PushObserver> observer);
  // Sets the observer unless there is one. Returns whether it did.
  bool try_set_push_observer(std::shared_ptr<PushObserver> observer);

 private:
  struct Impl;
  // The workers share it.
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep
