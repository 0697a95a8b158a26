// The dependency engine. A task names the data that it reads and writes and the lane that it runs on; the engine
// starts it when that data is ready. Rules:
//
//   - The order of pushing is the order of effect: whatever runs at the same time, every task sees the data as if
//     all tasks had run one by one in the order in which they were pushed.
//   - Readers of a resource run together, a writer runs alone.
//   - A lane runs its tasks in the order in which they were pushed, like a CUDA stream, and holds back only the
//     first one whose data is not ready. Parallelism comes from several lanes.
//   - A task that throws fails what it writes. Whoever reads failed data is skipped and fails what it writes in
//     turn, with the first task's error. The error surfaces at every wait that needs the data, until a task that
//     does not read it writes it anew. See failure.h.
//   - Waiting inside a task is an error, since it could wait for itself.
//
// The serial engine (EngineOptions::serial) keeps all of these rules and runs each task inside push().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/engine/failure.h"
#include "lockstep/engine/resource.h"
#include "lockstep/engine/task.h"

namespace lockstep {

class Trace;

struct EngineOptions {
  // Run each task inside push(), on the caller's thread.
  bool serial = false;
  // push() waits while this many tasks are unfinished: bounds how far the host can run ahead.
  std::int64_t max_pending_tasks = 16384;
  // A worker without work spins this long before it sleeps, if there are no more workers than cores.
  std::int64_t spin_microseconds = 50;
};

// One per lane; everything is optional but the name.
struct LaneOptions {
  // As in the timeline: "compute 0", "copy in".
  std::string name;
  // The device that the lane belongs to, as in the timeline: "cpu:0".
  std::string device;
  // Cores that the lane's worker is bound to; none: wherever the process may run.
  std::vector<int> cpus;
  // Runs first on the lane's worker thread.
  std::function<void()> on_start;
  // Handed to the lane's tasks as TaskContext::lane_data.
  void* lane_data = nullptr;
};

struct EngineCounters {
  std::int64_t pushed = 0;
  std::int64_t completed = 0;  // including failed and skipped ones
  std::int64_t failed = 0;
  std::int64_t skipped = 0;
};

class Engine {
 public:
  explicit Engine(EngineOptions options = {});
  // Waits for every task. A failure that no one waited for is lost here: call wait_all() to see it.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  LaneId add_lane(LaneOptions options);

  // A new resource that nobody uses yet.
  Resource make_resource();
  // A new resource for memory that `old` stood for: its first users wait for whoever still uses `old`, but do
  // not see old's failures.
  Resource make_successor(const Resource& old);

  // From any thread but a worker. Blocks only while max_pending_tasks are unfinished.
  void push(Task task);

  // Until every task pushed so far that writes the resource has finished. Throws the resource's failure.
  void wait_readable(const Resource& resource);
  // Until every task pushed so far that reads or writes the resource has finished. Throws nothing: the data is
  // about to be overwritten or freed.
  void wait_unused(const Resource& resource);
  // Until every task pushed so far has finished. Throws the first failure, in order of pushing, that no wait has
  // thrown yet, if there is one.
  void wait_all();

  // Whether all tasks that use the resource have finished.
  bool unused(const Resource& resource) const;
  // The resource's failure, if its last finished writer failed; null otherwise. Does not wait.
  std::shared_ptr<const Failure> failure(const Resource& resource) const;
  // Takes the old data of a skipped write as good. False, and nothing changes, where the data is torn.
  bool forgive(const Resource& resource);

  EngineCounters counters() const;
  const EngineOptions& options() const;
  // "cpu:0 compute 0"
  std::string lane_name(LaneId lane) const;
  int lane_count() const;

  // Records every task from now on until stop; null stops. The trace outlives the recording.
  void set_trace(std::shared_ptr<Trace> trace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
