// Internal: the engine's state machine, without threads or locks: which task waits for which, and what has failed. The
// caller holds a lock around every call, runs the tasks that become ready, and reports how each one ended.
//
// A resource is a first-in-first-out queue of tasks: one writer or several consecutive readers hold it, and the other
// tasks wait in line. A lane is a resource that each of its tasks writes. A task is ready when it holds everything it
// named. A task waits only for tasks pushed earlier, so there is no deadlock.
//
// A task on a lane with a stream ends when it has queued its work on the stream. The graph then keeps its ticket in the
// resources that it read or wrote (see device_uses.h), and tells each task and waiter which tickets must finish first.
// The graph itself never waits.
//
// A resource's memory may pass to a successor while tasks still use it. The first task that writes the successor also
// waits for the former resource.
//
// A gate is a task without a lane and without a function. It passes as soon as it holds everything it named. The host
// waits with gates. If the first use of a successor is not a write, a gate hands it the memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/counters.h"
#include "lockstep/engine/device_uses.h"
#include "lockstep/engine/failure.h"
#include "lockstep/engine/failure_group.h"
#include "lockstep/engine/resource.h"
#include "lockstep/engine/task.h"

namespace lockstep {

class DependencyGraph;
struct TaskNode;

// An entry of the failure log, which holds the failures of tasks, by order, until a wait has reported them.
struct LoggedFailure {
  FailurePtr failure;
  std::shared_ptr<FailureGroup> group;  // of the task; may be null
  // Order of an earlier failure that is reported for this one, too, because a task was to read the data of both;
  // -1: none.
  std::int64_t settled_into = -1;
};
using FailureLog = std::map<std::int64_t, LoggedFailure>;
using FailureEntry = FailureLog::node_type;

// One task's claim to one resource.
struct Access {
  ResourceState* resource = nullptr;
  TaskNode* task = nullptr;
  Access* next = nullptr;  // in the resource's queue
  bool reads = false;
  bool writes = false;  // exclusively; a task that both reads and writes has one access
  bool held = false;
  bool succeeds = false;  // only waits for the former users of memory that the task writes
  // The failures that the task's end replaced. They are destroyed with the node, outside the caller's lock.
  FailurePtr replaced = {}, replaced_omission = {};
};

struct ResourceState {
  explicit ResourceState(const DependencyGraph* owner) : graph(owner) {}

  std::atomic<std::int64_t> handles{1};
  // Everything below belongs to the graph.
  const DependencyGraph* graph;
  TaskNode* writer = nullptr;  // holds the resource
  std::int64_t readers = 0;    // hold the resource
  Access* first_waiting = nullptr;
  Access* last_waiting = nullptr;
  // The last task that named it, so a task that names it twice gets one access.
  std::int64_t last_task = -1;
  // The resource that this one succeeds, if it was in use when this one was made. Reset at the first use of this one.
  Resource former;
  // The failure of the last finished writer. `torn`: a writer started and failed, and no writer has succeeded since.
  FailurePtr failure;
  bool torn = false;
  // A failure because of which an update of this data, or of data that it was computed from, was left out. The data is
  // good all the same. Ignored once a wait has reported the failure.
  FailurePtr omission;
  // Uses by streams; null if there were none since the CPU wrote it.
  std::unique_ptr<DeviceUses> uses;

  bool unused() const { return !writer && readers == 0 && (!former || former.state()->unused()); }
  void inherit_uses(const ResourceState& from) {
    if (from.uses) uses = std::make_unique<DeviceUses>(from.uses->of_successor());
  }
};

// A host thread that waits for gates.
class Waiter {
 public:
  // The gate stores the resource's failure and omission here, and the tickets that streams must finish.
  FailurePtr failure, omission;
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
  // The last task of another lane that delayed this one, and that lane; -1: none.
  std::int64_t waited_for = -1;
  int waited_lane = -1;
  // Number of accesses that the task does not hold yet.
  int missing = 0;
  // The node holds no resources, whatever `accesses` says: another thread may be clearing it outside the lock.
  bool finished = true;
  Task task;  // task.lane is -1 in gates
  // In tasks, the lane's access comes first. The task's handles keep its resources alive.
  std::vector<Access> accesses;
  // Memory that the task is the first to write after it changed hands: its former resource, and the one in task.writes.
  struct Succession {
    Resource former;
    ResourceState* fresh;
  };
  std::vector<Succession> successions;
  Waiter* waiter = nullptr;
  TaskNode* next = nullptr;  // in its list: pool, ready, or finished
  // Stream work that must finish before the task may begin. Set when the task is ready, for the resources that it
  // holds.
  std::vector<DeviceWait> device_waits;
  // Entries that left the failure log when the task ended. They are destroyed with the node, outside the caller's lock.
  FailureLog settled;
};

// A linked list of nodes.
class NodeList {
 public:
  bool empty() const { return !first_; }
  TaskNode* first() const { return first_; }
  void push_back(TaskNode* node) {
    node->next = nullptr;
    (first_ ? last_->next : first_) = node;
    last_ = node;
  }
  TaskNode* pop_front() {
    TaskNode* node = first_;
    if (node) first_ = std::exchange(node->next, nullptr);
    return node;
  }
  // Moves all nodes of `other` to the end.
  void append(NodeList& other) {
    if (other.empty()) return;
    (first_ ? last_->next : first_) = other.first_;
    last_ = other.last_;
    other.first_ = nullptr;
  }

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

  // See Engine::choose_lane. `launched`: for each of `lanes`, the number of tasks that its stream has not finished;
  // empty means 0 for all.
  LaneId choose_lane(std::span<const LaneId> lanes, const Task& task,
                     std::span<const std::int64_t> launched = {}) const;
  // Throws Error and pushes nothing if the task has no function, its lane is unknown, or a resource is empty or belongs
  // to another graph. Returns the task at its new address.
  const Task& push(Task&& task);
  // Returns the next task that may run; null if there is none. Never returns two tasks of one lane at a time.
  TaskNode* pop_ready() {
    TaskNode* node = ready_.pop_front();
    if (node && has_streams_) gather_device_waits(*node);
    return node;
  }
  // Returns the reason to skip a ready task: the earliest-pushed failure among the data it reads, or a cancellation
  // after it was pushed. Null means run it.
  FailurePtr reason_to_skip(const TaskNode& node) const;
  // From now on, reason_to_skip() returns this reason for every task pushed so far.
  void cancel_pending(const std::string& reason);
  // Reports that a task from pop_ready has ended. `failure` is set if the task did not succeed; `ticket` is nonzero if
  // it queued work on its lane's stream. Returns the nodes that are no longer needed; the caller clears them outside
  // the lock and then recycles them.
  [[nodiscard]] NodeList complete(TaskNode* node, Outcome outcome, FailurePtr failure,
                                  std::uint64_t ticket = 0) noexcept;
  // Drops what the nodes hold. This may run any destructor, so the caller must hold no lock.
  static void clear(const NodeList& nodes) noexcept;
  void recycle(NodeList& cleared) noexcept { pool_.append(cleared); }

  // Calls waiter.opened() when the condition holds, which may be at once. The resource must outlive the wait.
  void wait_readable(const Resource& resource, Waiter& waiter);
  void wait_unused(const Resource& resource, Waiter& waiter);
  void wait_all(Waiter& waiter);

  bool unused(const Resource& resource) const;
  // Returns whether a wait for the resource would end at once and throw nothing; false after any use by a stream.
  bool at_rest(const Resource& resource) const;
  FailurePtr failure(const Resource& resource) const;
  // Returns the stream work that must finish before the resource may be written. `data` marks the work that wrote it.
  std::vector<DeviceWait> device_waits(const Resource& resource) const;
  // Removes the failure and returns it. Returns null and changes nothing if the data is torn.
  FailurePtr forgive(const Resource& resource);

  // Call it without the lock, because it allocates.
  static FailureEntry make_entry(FailurePtr failure, std::shared_ptr<FailureGroup> group = {});
  void log(FailureEntry entry) noexcept { failures_.insert(std::move(entry)); }
  void count_failure() noexcept { ++counters_.failed; }
  // Returns whether the failure is in the log and no wait has reported it, alone or together with others.
  bool unreported(const Failure& failure) const;
  // Returns the first unreported failure; null if there is none.
  FailurePtr first_unreported() const;
  // Notes that a wait throws the failure. Returns the entries that leave the log; destroy them outside the lock.
  [[nodiscard]] FailureLog report(const Failure& failure) noexcept;
  // Makes a wait that reports `first` report `other`, too, because a task has read data of both. Returns the entry that
  // leaves the log if `first` has been reported already.
  [[nodiscard]] FailureLog join(const Failure& first, const Failure& other) noexcept;
  // Returns the roots of unreported groups that have failures in the log.
  std::vector<Resource> roots_of_failures() const;
  // Returns the ticket of the stream work that last wrote the data; none if the CPU did, or for data of another graph.
  std::optional<Ticket> last_written(const Resource& resource) const;
  // Fails data that a stream wrote and then lost, as if the task that wrote it had failed. Does nothing if `loss` is
  // null or if the data has been written since.
  void lose(const Resource& resource, Ticket written, const FailurePtr& loss) noexcept;
  // Removes the failure of the resource from the log.
  [[nodiscard]] FailureLog take_failure_of(const Resource& resource) noexcept;

  const EngineCounters& counters() const { return counters_; }
  // Number of unfinished tasks of a lane.
  std::int64_t queued(int lane) const { return lane_lengths_[lane]; }
  std::int64_t unfinished() const { return counters_.pushed - counters_.completed; }

  // Returns the lane's unfinished tasks in order. The first one runs, or waits for resources that it does not hold yet.
  std::vector<const TaskNode*> lane_tasks(int lane) const;
  // Returns the tasks that hold what `node` waits for, in order of pushing.
  std::vector<const TaskNode*> blockers(const TaskNode& node) const;

 private:
  ResourceState* state(const Resource& resource, const char* operation) const;
  TaskNode* new_node();
  TaskNode* new_gate(ResourceState* resource, bool reads, bool writes, Waiter* waiter);
  void add_access(TaskNode& node, ResourceState* resource, bool reads, bool writes);
  void succeed(TaskNode& node, const Resource& fresh);
  void add_succession_gate(const Resource& fresh);
  void claim(TaskNode* node);
  void hold(Access& access);
  void release(Access& access);
  void finish(TaskNode& node);
  void make_ready(TaskNode* node);
  void pass_gates();
  void end_writes(TaskNode& node, Outcome outcome, const FailurePtr& failure) noexcept;
  bool reported(const LoggedFailure& logged) const;
  void settle_failures(TaskNode& node, const Failure& failure) noexcept;
  void note_omissions(TaskNode& node, bool keeps, const FailurePtr& failure) noexcept;
  static void gather_device_waits(TaskNode& node);
  static void note_device_uses(const TaskNode& node, std::uint64_t ticket);

  std::vector<Resource> lanes_;
  std::vector<std::int64_t> lane_lengths_;  // unfinished tasks
  std::vector<std::unique_ptr<TaskNode>> nodes_;
  NodeList pool_;
  NodeList ready_;
  NodeList ready_gates_;
  NodeList finished_;  // until the next complete()
  FailureLog failures_;
  FailurePtr cancellation_;  // the last one
  EngineCounters counters_;
  std::int64_t next_order_ = 0;
  bool has_streams_ = false;
};

}  // namespace lockstep
