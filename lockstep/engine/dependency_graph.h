// Who waits for whom, and what has failed: the state machine of the engine, without threads and locks. The
// caller holds a lock around every call, runs the tasks that become ready, and says how each has ended.
//
// A resource is a first-in-first-out queue of those who want it: one writer or several readers in a row hold
// it, the others wait behind them. A lane is a resource that each of its tasks writes. A task is ready when
// it holds all that it named. Whoever waits, waits for something pushed before it, so there is no deadlock.
//
// A task of a lane with a stream ends when it has queued its work on the stream. The graph then keeps its ticket
// where it has read or written (see device_uses.h), and says for each task and each waiter what has to be over.
// It never waits.
//
// A gate is a task without a lane that has nothing to run: it passes as soon as it holds what it named, and
// that is how the host waits, and how a resource hands its memory on to another.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/engine/counters.h"
#include "lockstep/engine/device_uses.h"
#include "lockstep/engine/failure.h"
#include "lockstep/engine/resource.h"
#include "lockstep/engine/task.h"

namespace lockstep {

class DependencyGraph;
struct TaskNode;

// One task's claim to one resource.
struct Access {
  ResourceState* resource = nullptr;
  TaskNode* task = nullptr;
  Access* next = nullptr;  // in the resource's queue
  bool reads = false;
  bool writes = false;  // alone; a task that both reads and writes has one access
  bool held = false;
  // The failure that the write has replaced: destroyed with the node, outside the caller's lock.
  FailurePtr replaced = {};
};

struct ResourceState {
  explicit ResourceState(const DependencyGraph* owner) : graph(owner) {}

  std::atomic<std::int64_t> handles{1};
  // All below is the graph's.
  const DependencyGraph* graph;
  TaskNode* writer = nullptr;  // holds the resource
  std::int64_t readers = 0;    // hold the resource
  Access* first_waiting = nullptr;
  Access* last_waiting = nullptr;
  // The last task that named it, so that one that names it twice has one access.
  std::int64_t last_task = -1;
  // The failure of the last finished writer. Torn: a writer had started and failed, and none succeeded since.
  FailurePtr failure;
  bool torn = false;
  // By streams; null if there were none since the CPU wrote it.
  std::unique_ptr<DeviceUses> uses;

  bool unused() const { return !writer && readers == 0; }
};

// A host thread that waits for gates.
class Waiter {
 public:
  // The gate leaves the resource's failure here, and what streams have to finish.
  FailurePtr failure;
  std::vector<DeviceWait> device_waits;
  bool open() const { return gates_ == 0; }

 protected:
  ~Waiter() = default;

 private:
  friend class DependencyGraph;
  virtual void opened() noexcept = 0;
  int gates_ = 0;
};

struct TaskNode {
  std::int64_t order = 0;
  // The last task of another lane that held it up, and that lane; -1: none.
  std::int64_t waited_for = -1;
  int waited_lane = -1;
  // Accesses that the task does not hold yet.
  int missing = 0;
  // Holds nothing any more, whatever `accesses` says: it may be being cleared outside the lock.
  bool finished = true;
  Task task;  // task.lane is -1 in gates
  // The lane's first, in tasks; task's resources are kept alive by its handles.
  std::vector<Access> accesses;
  Waiter* waiter = nullptr;
  TaskNode* next = nullptr;  // in the one list that it is in: pool, ready, finished
  // What streams have to finish before it may begin: of the resources that it holds, since it is ready.
  std::vector<DeviceWait> device_waits;
};

// Nodes in a row.
class NodeList {
 public:
  bool empty() const { return !first_; }
  TaskNode* first() const { return first_; }
  void push_back(TaskNode* node);
  TaskNode* pop_front();
  // Moves all nodes of `other` to the end.
  void append(NodeList& other);

 private:
  TaskNode* first_ = nullptr;
  TaskNode* last_ = nullptr;
};

enum class Outcome { kDone, kFailed, kSkipped };

class DependencyGraph {
 public:
  DependencyGraph() = default;
  DependencyGraph(const DependencyGraph&) = delete;
  DependencyGraph& operator=(const DependencyGraph&) = delete;

  int add_lane(bool has_stream = false);
  Resource make_resource();
  Resource make_successor(const Resource& old);

  // See Engine::choose_lane. `launched`: for each of `lanes` the tasks that its stream has not finished; none: 0.
  LaneId choose_lane(std::span<const LaneId> lanes, const Task& task,
                     std::span<const std::int64_t> launched = {}) const;
  // Throws Error, and pushes nothing, for a task without a function, an unknown lane, an empty resource or
  // one of another graph. Returns the task where it is now.
  const Task& push(Task&& task);
  // The next task that may run; null if there is none. Never two of one lane at a time.
  TaskNode* pop_ready() {
    TaskNode* node = ready_.pop_front();
    if (node && has_streams_) gather_device_waits(*node);
    return node;
  }
  // The reason to skip a ready task: of the failures that it reads, the one pushed first, or a cancellation
  // that came after it was pushed. Null: run it.
  FailurePtr reason_to_skip(const TaskNode& node) const;
  // There is a reason to skip every task pushed so far.
  void cancel_pending(const std::string& reason);
  // A task that pop_ready gave has ended. `failure` is what it leaves behind, if it was not done; `ticket` is what is
  // to be waited for, if it has queued work on its lane's stream. Returns the nodes that are of no more use, to be
  // cleared outside the lock and then recycled.
  [[nodiscard]] NodeList complete(TaskNode* node, Outcome outcome, FailurePtr failure,
                                  std::uint64_t ticket = 0) noexcept;
  // Drops what the nodes hold. This may run any destructor: no lock is to be held.
  static void clear(const NodeList& nodes) noexcept;
  void recycle(NodeList& cleared) noexcept { pool_.append(cleared); }

  // waiter.opened() is called as soon as it holds; at once if it holds already. The resource outlives the
  // wait.
  void wait_readable(const Resource& resource, Waiter& waiter);
  void wait_unused(const Resource& resource, Waiter& waiter);
  void wait_all(Waiter& waiter);

  bool unused(const Resource& resource) const;
  FailurePtr failure(const Resource& resource) const;
  // What streams have to finish before the resource may be written; `data`: what has written it.
  std::vector<DeviceWait> device_waits(const Resource& resource) const;
  // Takes the failure away and returns it; null, and nothing changes, where the data is torn.
  FailurePtr forgive(const Resource& resource);

  // Failures of tasks, by order, until someone has been told.
  using FailureLog = std::map<std::int64_t, FailurePtr>;
  using FailureEntry = FailureLog::node_type;
  // Made outside the lock.
  static FailureEntry make_entry(FailurePtr failure);
  void log(FailureEntry entry) noexcept { failures_.insert(std::move(entry)); }
  // Takes an entry out, to be destroyed outside the lock: the given one, or the first. Empty if there is
  // none.
  FailureEntry take_logged(const Failure& failure) { return failures_.extract(failure.order); }
  void count_failure() noexcept { ++counters_.failed; }
  FailureEntry take_first_logged() {
    return failures_.empty() ? FailureEntry{} : failures_.extract(failures_.begin());
  }

  const EngineCounters& counters() const { return counters_; }
  // Unfinished tasks of a lane.
  std::int64_t queued(int lane) const { return lane_lengths_[lane]; }
  std::int64_t unfinished() const { return counters_.pushed - counters_.completed; }

  // The lane's unfinished tasks in order; the first one runs or waits for what it does not hold yet.
  std::vector<const TaskNode*> lane_tasks(int lane) const;
  // Those that hold what `node` waits for, in order of pushing.
  std::vector<const TaskNode*> blockers(const TaskNode& node) const;

 private:
  ResourceState* state(const Resource& resource, const char* operation) const;
  TaskNode* new_node();
  TaskNode* new_gate(ResourceState* resource, bool reads, bool writes, Waiter* waiter);
  void add_access(TaskNode& node, ResourceState* resource, bool reads, bool writes);
  void claim(TaskNode* node);
  void hold(Access& access);
  void release(Access& access);
  void finish(TaskNode& node);
  void make_ready(TaskNode* node);
  void pass_gates();
  static void gather_device_waits(TaskNode& node);
  static void note_device_uses(const TaskNode& node, std::uint64_t ticket);

  std::vector<Resource> lanes_;
  std::vector<std::int64_t> lane_lengths_;  // unfinished tasks
  std::vector<std::unique_ptr<TaskNode>> nodes_;
  NodeList pool_;
  NodeList ready_;
  NodeList ready_gates_;
  NodeList finished_;  // during complete()
  FailureLog failures_;
  FailurePtr cancellation_;  // the last one
  EngineCounters counters_;
  std::int64_t next_order_ = 0;
  bool has_streams_ = false;
};

}  // namespace lockstep
