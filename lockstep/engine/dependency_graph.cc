#include "lockstep/engine/dependency_graph.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Returns whether the task must wait for the other one.
bool depends(const Task& task, const TaskNode& other) {
  return std::ranges::any_of(other.accesses, [&](const Access& access) {
    const auto same = [&](const Resource& wanted) { return wanted.state() == access.resource; };
    return std::ranges::any_of(task.writes, same) || (access.writes && std::ranges::any_of(task.reads, same));
  });
}

// Returns whether the task must wait for unfinished work on a stream.
bool depends(const Task& task, Ticket ticket) {
  return std::ranges::any_of(task.reads,
                             [&](const Resource& r) { return r.state()->uses && r.state()->uses->written(ticket); }) ||
         std::ranges::any_of(task.writes, [&](const Resource& r) {
           return r.state()->uses && r.state()->uses->read_or_written(ticket);
         });
}

// Notes the task that `next` has waited for: `holder`, or, if `holder` is a gate, the task that the gate waited for.
void note_wait(TaskNode& next, const TaskNode& holder) {
  const bool gate = holder.task.lane.index < 0;
  const int lane = gate ? holder.waited_lane : holder.task.lane.index;
  if (lane < 0 || lane == next.task.lane.index) return;
  next.waited_for = gate ? holder.waited_for : holder.order;
  next.waited_lane = lane;
}

}  // namespace

int DependencyGraph::add_lane(bool has_stream) {
  has_streams_ |= has_stream;
  lanes_.push_back(make_resource());
  lane_lengths_.push_back(0);
  return static_cast<int>(lanes_.size()) - 1;
}

Resource DependencyGraph::make_resource() { return Resource(new ResourceState(this)); }

Resource DependencyGraph::make_successor(const Resource& old) {
  const ResourceState* before = state(old, "make_successor");
  // If `old` still has a predecessor, nothing has used `old`, so the new resource succeeds that predecessor.
  const Resource& former = before->former ? before->former : old;
  Resource fresh = make_resource();
  if (former.state()->unused()) {
    fresh.state()->inherit_uses(*former.state());
  } else {
    fresh.state()->former = former;
  }
  return fresh;
}

LaneId DependencyGraph::choose_lane(std::span<const LaneId> lanes, const Task& task,
                                    std::span<const std::int64_t> launched) const {
  LaneId best;
  std::pair<bool, std::int64_t> least;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const LaneId lane = lanes[i];
    check(lane.index >= 0 && lane.index < static_cast<int>(lanes_.size()),
          "choose_lane: there is no lane {}, the engine has {}", lane.index, lanes_.size());
    const ResourceState& queue = *lanes_[lane.index].state();
    const TaskNode* last = queue.first_waiting ? queue.last_waiting->task : queue.writer;
    const bool behind = last ? depends(task, *last) : queue.uses && depends(task, queue.uses->last_written());
    const std::pair cost(!behind, lane_lengths_[lane.index] + (launched.empty() ? 0 : launched[i]));
    if (best.index < 0 || cost < least) {
      best = lane;
      least = cost;
    }
  }
  check(best.index >= 0, "choose_lane: no lanes to choose from");
  return best;
}

const Task& DependencyGraph::push(Task&& task) {
  check(task.lane.index >= 0 && task.lane.index < static_cast<int>(lanes_.size()),
        "push: task {} names lane {}, the engine has {}", task.name, task.lane.index, lanes_.size());
  check(static_cast<bool>(task.run), "push: task {} has no function", task.name);
  for (const Resource& resource : task.reads) {
    check(resource && resource.state()->graph == this, "push: task {} reads {}", task.name,
          resource ? "a resource of another engine" : "an empty resource");
  }
  for (const Resource& resource : task.writes) {
    check(resource && resource.state()->graph == this, "push: task {} writes {}", task.name,
          resource ? "a resource of another engine" : "an empty resource");
  }
  TaskNode* node = new_node();
  node->accesses.reserve(1 + task.reads.size() + task.writes.size());
  node->task = std::move(task);
  node->order = next_order_++;
  if (auto& group = node->task.group) {
    if (!group->graph) group->graph = this;
    if (group->graph != this) group = nullptr;
  }
  add_access(*node, lanes_[node->task.lane.index].state(), false, true);
  for (const Resource& resource : node->task.writes) {
    if (std::exchange(resource.state()->last_task, node->order) == node->order) continue;
    add_access(*node, resource.state(), false, true);
  }
  for (const Resource& resource : node->task.reads) {
    if (std::exchange(resource.state()->last_task, node->order) != node->order) {
      add_access(*node, resource.state(), true, false);
      continue;
    }
    for (Access& access : node->accesses) access.reads |= access.resource == resource.state();
  }
  for (const Resource& resource : node->task.writes) {
    if (resource.state()->former) succeed(*node, resource);
  }
  for (const Resource& resource : node->task.reads) {
    if (resource.state()->former) add_succession_gate(resource);
  }
  ++counters_.pushed;
  ++lane_lengths_[node->task.lane.index];
  claim(node);
  return node->task;
}

FailurePtr DependencyGraph::reason_to_skip(const TaskNode& node) const {
  const bool cancelled = cancellation_ && node.order < cancellation_->order;
  const FailurePtr* first = cancelled ? &cancellation_ : nullptr;
  for (const Access& access : node.accesses) {
    const FailurePtr& failure = access.resource->failure;
    if (access.reads && failure && (!first || failure->order < (*first)->order)) first = &failure;
  }
  return first ? *first : nullptr;
}

void DependencyGraph::cancel_pending(const std::string& reason) {
  Failure failure{.message = "cancelled: " + reason, .order = next_order_++, .cancelled = true};
  failure.cause = std::make_exception_ptr(Error(failure.message));
  cancellation_ = std::make_shared<const Failure>(std::move(failure));
}

NodeList DependencyGraph::complete(TaskNode* node, Outcome outcome, FailurePtr failure, std::uint64_t ticket) noexcept {
  ++counters_.completed;
  --lane_lengths_[node->task.lane.index];
  counters_.failed += outcome == Outcome::kFailed;
  counters_.skipped += outcome == Outcome::kSkipped;
  end_writes(*node, outcome, failure);
  if (has_streams_ && (ticket > 0 || outcome == Outcome::kDone)) note_device_uses(*node, ticket);
  finish(*node);
  finished_.push_back(node);
  pass_gates();
  return std::exchange(finished_, {});
}

// A skipped task leaves its data unchanged. Data that it was to compute is then missing; data that it was to update is
// as good as before. A cancellation may hit only some tasks of an update, so it fails updated data, too.
void DependencyGraph::end_writes(TaskNode& node, Outcome outcome, const FailurePtr& failure) noexcept {
  const bool skipped = outcome == Outcome::kSkipped, keeps = skipped && node.task.updates && !failure->cancelled;
  const bool unreported = !failures_.empty();
  if (unreported && skipped) settle_failures(node, *failure);
  // The first access is the lane's, which never fails.
  for (std::size_t i = 1; i < node.accesses.size(); ++i) {
    Access& access = node.accesses[i];
    if (!access.writes || access.succeeds || (keeps && access.reads)) continue;
    ResourceState& resource = *access.resource;
    access.replaced = std::exchange(resource.failure, failure);
    if (!skipped) resource.torn = outcome == Outcome::kFailed;
  }
  if (unreported) note_omissions(node, keeps, failure);
}

// One bad batch may fail tasks of several shards. A task that joins the shards settles their failures into the first,
// which is reported for all. Tasks of a group do not: a group is reported as one, and its tasks may add up several
// batches, each with its own failure. The others stay in the log until a wait has thrown the first failure.
void DependencyGraph::settle_failures(TaskNode& node, const Failure& failure) noexcept {
  if (node.task.group || failure.cancelled) return;
  for (const Access& access : node.accesses) {
    const FailurePtr& other = access.resource->failure;
    if (access.reads && other) node.settled.merge(join(failure, *other));
  }
}

// Until a failure is reported, all data that lacks an update because of it carries the failure as its omission.
void DependencyGraph::note_omissions(TaskNode& node, bool keeps, const FailurePtr& failure) noexcept {
  FailurePtr first = keeps && unreported(*failure) ? failure : nullptr;
  for (std::size_t i = 1; i < node.accesses.size(); ++i) {
    const Access& access = node.accesses[i];
    if (!access.reads) continue;
    const FailurePtr& omission = access.resource->omission;
    if (omission && (!first || omission->order < first->order) && unreported(*omission)) first = omission;
  }
  for (std::size_t i = 1; i < node.accesses.size(); ++i) {
    Access& access = node.accesses[i];
    if (access.writes && !access.succeeds) access.replaced_omission = std::exchange(access.resource->omission, first);
  }
}

void DependencyGraph::clear(const NodeList& nodes) noexcept {
  for (TaskNode* node = nodes.first(); node; node = node->next) {
    node->accesses.clear();
    node->successions.clear();
    node->settled.clear();
    node->task.run.reset();
    node->task.group.reset();
    node->task.reads.clear();
    node->task.writes.clear();
  }
}

void DependencyGraph::wait_readable(const Resource& resource, Waiter& waiter) {
  ResourceState* s = state(resource, "wait_readable");
  if (s->former) add_succession_gate(resource);
  waiter.gates_ = 1;
  claim(new_gate(s, true, false, &waiter));
  pass_gates();
}

void DependencyGraph::wait_unused(const Resource& resource, Waiter& waiter) {
  ResourceState* s = state(resource, "wait_unused");
  if (s->former) add_succession_gate(resource);
  waiter.gates_ = 1;
  claim(new_gate(s, true, true, &waiter));
  pass_gates();
}

void DependencyGraph::wait_all(Waiter& waiter) {
  // One gate per lane: a single gate would hold idle lanes until the others are done.
  waiter.gates_ = 1 + static_cast<int>(lanes_.size());
  for (const Resource& lane : lanes_) claim(new_gate(lane.state(), true, false, &waiter));
  pass_gates();
  if (--waiter.gates_ == 0) waiter.opened();
}

bool DependencyGraph::unused(const Resource& resource) const { return state(resource, "unused")->unused(); }

bool DependencyGraph::at_rest(const Resource& resource) const {
  const ResourceState* s = state(resource, "at_rest");
  return s->unused() && !s->uses && !(s->former && s->former.state()->uses) && !s->failure && !s->omission;
}

FailurePtr DependencyGraph::failure(const Resource& resource) const { return state(resource, "failure")->failure; }

FailurePtr DependencyGraph::forgive(const Resource& resource) {
  ResourceState* s = state(resource, "forgive");
  return s->torn ? nullptr : std::exchange(s->failure, nullptr);
}

std::vector<DeviceWait> DependencyGraph::device_waits(const Resource& resource) const {
  std::vector<DeviceWait> waits;
  const ResourceState* s = state(resource, "device_waits");
  if (s->uses) s->uses->add_waits(true, true, waits);
  if (s->former && s->former.state()->uses) s->former.state()->uses->of_successor().add_waits(true, true, waits);
  return waits;
}

FailureEntry DependencyGraph::make_entry(FailurePtr failure, std::shared_ptr<FailureGroup> group) {
  FailureLog one;
  const std::int64_t order = failure->order;
  one.emplace(order, LoggedFailure{std::move(failure), std::move(group)});
  return one.extract(one.begin());
}

// A failure that has left the log was thrown. It also reports failures that are settled into it or start from its data.
bool DependencyGraph::reported(const LoggedFailure& logged) const {
  if (logged.settled_into >= 0 && !failures_.contains(logged.settled_into)) return true;
  if (!logged.group) return false;
  return logged.group->reported || std::ranges::any_of(logged.group->roots, [&](const Resource& root) {
           const FailurePtr failure = root.state()->graph == this ? root.state()->failure : nullptr;
           return failure && !failures_.contains(failure->order);
         });
}

bool DependencyGraph::unreported(const Failure& failure) const {
  const auto logged = failures_.find(failure.order);
  return logged != failures_.end() && !reported(logged->second);
}

FailurePtr DependencyGraph::first_unreported() const {
  const auto first = std::ranges::find_if_not(failures_, [&](const auto& entry) { return reported(entry.second); });
  return first == failures_.end() ? nullptr : first->second.failure;
}

FailureLog DependencyGraph::report(const Failure& failure) noexcept {
  FailureLog told;
  if (const auto thrown = failures_.find(failure.order); thrown != failures_.end()) {
    if (thrown->second.group) thrown->second.group->reported = true;
    told.insert(failures_.extract(thrown));
  }
  for (auto logged = failures_.begin(); logged != failures_.end();) {
    const auto entry = logged++;
    if (!reported(entry->second)) continue;
    if (entry->second.group) entry->second.group->reported = true;
    told.insert(failures_.extract(entry));
  }
  return told;
}

FailureLog DependencyGraph::join(const Failure& first, const Failure& other) noexcept {
  FailureLog told;
  const auto logged = failures_.find(other.order);
  if (logged == failures_.end() || other.order == first.order) return told;
  if (!failures_.contains(first.order)) {
    told.insert(failures_.extract(logged));
  } else if (logged->second.settled_into < 0) {
    logged->second.settled_into = first.order;
  }
  return told;
}

std::vector<Resource> DependencyGraph::roots_of_failures() const {
  std::vector<Resource> roots;
  for (const auto& [order, logged] : failures_) {
    if (!logged.group || logged.group->reported) continue;
    for (const Resource& root : logged.group->roots) {
      if (root.state()->graph == this && std::ranges::find(roots, root) == roots.end()) roots.push_back(root);
    }
  }
  return roots;
}

std::optional<Ticket> DependencyGraph::last_written(const Resource& resource) const {
  const ResourceState& data = *resource.state();
  if (data.graph != this || !data.uses || data.uses->last_written().number == 0) return std::nullopt;
  return data.uses->last_written();
}

void DependencyGraph::lose(const Resource& resource, Ticket written, const FailurePtr& loss) noexcept {
  ResourceState& data = *resource.state();
  if (!loss || data.failure || data.writer || !data.uses || !data.uses->written(written)) return;
  data.failure = loss;
  data.torn = true;
}

FailureLog DependencyGraph::take_failure_of(const Resource& resource) noexcept {
  FailureLog taken;
  const ResourceState& data = *resource.state();
  if (data.graph == this && data.failure) taken.insert(failures_.extract(data.failure->order));
  return taken;
}

std::vector<const TaskNode*> DependencyGraph::lane_tasks(int lane) const {
  const ResourceState& queue = *lanes_.at(lane).state();
  std::vector<const TaskNode*> tasks;
  if (queue.writer) tasks.push_back(queue.writer);
  for (const Access* access = queue.first_waiting; access; access = access->next) {
    if (!access->task->waiter) tasks.push_back(access->task);
  }
  return tasks;
}

std::vector<const TaskNode*> DependencyGraph::blockers(const TaskNode& node) const {
  std::vector<const TaskNode*> found;
  const auto blocks = [&](const Access& held) {
    return held.held && std::ranges::any_of(node.accesses, [&](const Access& wanted) {
             return !wanted.held && wanted.resource == held.resource;
           });
  };
  for (const auto& other : nodes_) {
    if (other.get() != &node && !other->finished && std::ranges::any_of(other->accesses, blocks))
      found.push_back(other.get());
  }
  std::ranges::sort(found, {}, &TaskNode::order);
  return found;
}

ResourceState* DependencyGraph::state(const Resource& resource, const char* operation) const {
  check(static_cast<bool>(resource), "{}: the resource is empty", operation);
  check(resource.state()->graph == this, "{}: the resource belongs to another engine", operation);
  return resource.state();
}

TaskNode* DependencyGraph::new_node() {
  if (TaskNode* node = pool_.pop_front()) return node;
  return nodes_.emplace_back(std::make_unique<TaskNode>()).get();
}

TaskNode* DependencyGraph::new_gate(ResourceState* resource, bool reads, bool writes, Waiter* waiter) {
  TaskNode* gate = new_node();
  gate->accesses.reserve(2);
  gate->task.lane = {};
  gate->order = next_order_;
  gate->waiter = waiter;
  add_access(*gate, resource, reads, writes);
  return gate;
}

void DependencyGraph::add_access(TaskNode& node, ResourceState* resource, bool reads, bool writes) {
  node.accesses.push_back({.resource = resource, .task = &node, .reads = reads, .writes = writes});
}

// Makes the first task that writes `fresh` wait for the users of the resource that `fresh` succeeds. The task has all
// its other accesses already.
void DependencyGraph::succeed(TaskNode& node, const Resource& fresh) {
  ResourceState* successor = fresh.state();
  ResourceState* former = successor->former.state();
  if (former->unused()) {
    successor->inherit_uses(*former);
  } else {
    // A task that names the former resource itself cannot also wait for its release.
    if (std::exchange(former->last_task, node.order) == node.order) return add_succession_gate(fresh);
    add_access(node, former, false, true);
    node.accesses.back().succeeds = true;
  }
  // The node keeps the handle: dropping it here could run any destructor.
  node.successions.push_back({std::move(successor->former), successor});
}

// Holds `fresh` until the users of the resource that it succeeds are done.
void DependencyGraph::add_succession_gate(const Resource& fresh) {
  ResourceState* successor = fresh.state();
  TaskNode* gate = new_gate(successor->former.state(), false, true, nullptr);
  add_access(*gate, successor, false, true);
  gate->task.writes.push_back(fresh);
  gate->successions.push_back({std::move(successor->former), successor});
  claim(gate);
  pass_gates();
}

// Puts the node into all its queues.
void DependencyGraph::claim(TaskNode* node) {
  node->missing = 0;
  node->finished = false;
  node->waited_for = -1;
  node->waited_lane = -1;
  for (Access& access : node->accesses) {
    ResourceState& resource = *access.resource;
    if (!resource.first_waiting && !resource.writer && !(access.writes && resource.readers)) {
      hold(access);
    } else {
      (resource.first_waiting ? resource.last_waiting->next : resource.first_waiting) = &access;
      resource.last_waiting = &access;
      ++node->missing;
    }
  }
  if (node->missing == 0) make_ready(node);
}

void DependencyGraph::hold(Access& access) {
  access.held = true;
  if (access.writes) {
    access.resource->writer = access.task;
  } else {
    ++access.resource->readers;
  }
}

// Gives the resource to the next writer or to the next consecutive readers.
void DependencyGraph::release(Access& access) {
  ResourceState& resource = *access.resource;
  const TaskNode& holder = *access.task;
  if (access.writes) {
    resource.writer = nullptr;
  } else if (--resource.readers > 0) {
    return;
  }
  while (Access* first = resource.first_waiting) {
    if (first->writes && resource.readers) return;
    resource.first_waiting = std::exchange(first->next, nullptr);
    hold(*first);
    TaskNode& next = *first->task;
    note_wait(next, holder);
    if (--next.missing == 0) make_ready(&next);
    if (first->writes) return;
  }
}

void DependencyGraph::finish(TaskNode& node) {
  node.finished = true;
  for (Access& access : node.accesses) release(access);
}

void DependencyGraph::make_ready(TaskNode* node) {
  (node->task.lane.index < 0 ? ready_gates_ : ready_).push_back(node);
}

// A gate that passes may let another one pass. This is a loop because such chains can be long.
void DependencyGraph::pass_gates() {
  while (TaskNode* gate = ready_gates_.pop_front()) {
    Waiter* waiter = std::exchange(gate->waiter, nullptr);
    const Access& access = gate->accesses[0];
    const auto& uses = access.resource->uses;
    if (waiter) {
      waiter->failure = access.resource->failure;
      waiter->omission = access.resource->omission;
      if (uses) uses->add_waits(access.reads, access.writes, waiter->device_waits);
    } else {
      gate->accesses[1].resource->inherit_uses(*access.resource);
    }
    finish(*gate);
    if (waiter) {
      gate->accesses.clear();
      pool_.push_back(gate);
      if (--waiter->gates_ == 0) waiter->opened();
    } else {
      finished_.push_back(gate);
    }
  }
}

// On the task's own stream, earlier work finishes first anyway, so only data that the task reads, and may lose, counts.
void DependencyGraph::gather_device_waits(TaskNode& node) {
  for (const auto& [former, fresh] : node.successions) fresh->inherit_uses(*former.state());
  node.device_waits.clear();
  for (std::size_t i = 1; i < node.accesses.size(); ++i) {
    const Access& access = node.accesses[i];
    const auto& uses = access.resource->uses;
    if (uses && !access.succeeds) uses->add_waits(access.reads, access.writes, node.device_waits);
  }
  std::erase_if(node.device_waits,
                [&](const DeviceWait& wait) { return !wait.data && wait.ticket.lane == node.task.lane.index; });
}

// The task has waited for everything it depends on. Without a ticket, nothing has to wait for what it wrote.
void DependencyGraph::note_device_uses(const TaskNode& node, std::uint64_t ticket) {
  for (const Access& access : node.accesses) {
    if (access.succeeds) continue;
    auto& uses = access.resource->uses;
    if (ticket == 0) {
      if (access.writes) uses.reset();
      continue;
    }
    if (!uses) uses = std::make_unique<DeviceUses>();
    const Ticket by{node.task.lane.index, ticket};
    access.writes ? uses->write(by) : uses->read(by);
  }
}

}  // namespace lockstep
