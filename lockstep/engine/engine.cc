#include "lockstep/engine/engine.h"

#include <fmt/ranges.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/adaptive_lock.h"
#include "lockstep/engine/dependency_graph.h"
#include "lockstep/engine/lane.h"
#include "lockstep/engine/launched_tasks.h"
#include "lockstep/engine/parker.h"
#include "lockstep/engine/push_observer.h"
#include "lockstep/engine/trace.h"

namespace lockstep {
namespace {

int cores_of_process() {
  std::array<cpu_set_t, 8> mask{};  // one has room for 1,024 CPUs
  return sched_getaffinity(0, sizeof mask, mask.data()) == 0 ? CPU_COUNT_S(sizeof mask, mask.data()) : 1;
}

// A lane that has worked for time t counts as busy for kLinger * t more, at most kMostLinger, so that no helper of
// another lane takes its core in gaps between its tasks. Less than kLeastLinger is not worth a timer.
constexpr std::int64_t kLinger = 4, kMostLinger = 2'000'000, kLeastLinger = 50'000;  // nanoseconds

// The task that a thread runs now. With it, the engine reports a wait inside a task as an error instead of a deadlock.
struct CurrentTask {
  const void* engine = nullptr;
  const std::string* name = nullptr;
};

CurrentTask& current_task() {
  thread_local CurrentTask current;
  return current;
}

// A host thread asleep until its gates are open.
class HostWaiter final : public Waiter {
 public:
  // Returns false on timeout.
  bool sleep(SpinPolicy& policy, std::optional<std::chrono::nanoseconds> timeout) {
    policy.awake.fetch_add(1, std::memory_order_relaxed);
    const bool open = parker_.park(policy, timeout);
    policy.awake.fetch_sub(1, std::memory_order_relaxed);
    return open;
  }
  // Why a stream lost the awaited data.
  FailurePtr loss;

 private:
  void opened() noexcept override { parker_.unpark(); }
  Parker parker_;
};

void check_outside_tasks(const char* operation) {
  const std::string* task = current_task().name;
  check(!task, "{}: called inside task {}", operation, task ? *task : "");
}

// Number of fork() calls that led to this process. An engine that was made before a fork has no threads after it.
std::atomic<int> forks{0};

void count_forks() {
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
}

}  // namespace

// The threads around the state machine of dependency_graph.h: one lock, and one worker for each lane.
struct Engine::Impl {
  explicit Impl(EngineOptions engine_options);
  bool finished() const { return stopping && graph.unfinished() == 0; }
  bool has_threads() const { return options.serial || made_after == forks.load(std::memory_order_relaxed); }
  void check_threads(const char* operation) const {
    check(has_threads(),
          "{}: fork() made this process after the devices were made, and copied none of their threads: fork before "
          "anything needs a device",
          operation);
  }

  using Lock = std::unique_lock<AdaptiveLock>;
  Lock lock() const { return Lock(mutex); }

  // Call with the lock.
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
    std::uint64_t ticket = 0;  // follows the work queued on the lane's stream
  };
  // Runs the task, or skips it if there is a reason, and destroys its closure. Call without the lock.
  Ending run(ReadyTask& task, Lane& lane) noexcept;
  void call(const ReadyTask& task, const Lane& lane, Ending& ending) const;
  // call() on a lane with a stream: the task queues its work there.
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
  // `data`: roots of failure groups. Fails those that streams have lost, because they tell the graph whether their
  // groups are reported. Call with the lock; for the second overload, hold no other lock.
  void learn_losses(std::span<const Resource> data, const LaunchedTasks::LossOf& loss_of);
  void learn_losses(std::span<const Resource> data, Lock& guard);
  // Throws a failure and notes that it was thrown. Call with the lock.
  [[noreturn]] void report(FailurePtr failure, Lock guard);
  // Call without the lock.
  void wait_for_devices(const std::vector<DeviceWait>& waits);
  // Returns the earliest-pushed failure known so far among the tasks that wrote the data; null if none. Call without
  // the lock.
  FailurePtr first_loss(const std::vector<DeviceWait>& waits) const;

  const EngineOptions options;
  const int made_after = forks.load(std::memory_order_relaxed);
  SpinPolicy spin;
  std::atomic<std::uint64_t> reports{0};
  // Used when a task fails and there is no memory left to describe the failure.
  const FailurePtr out_of_memory;

  std::mutex serial_mutex;  // makes the serial engine run one task at a time; taken before `mutex`

  // On its own cache line, so waiting threads do not disturb the thread that works on the data it protects (everything
  // below but `launched`).
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

Engine::Impl::Impl(EngineOptions engine_options)
    : options(std::move(engine_options)),
      out_of_memory(
          std::make_shared<Failure>(Failure{.task = "a task", .message = "a task ran out of memory", .order = -1})),
      launched(
          [this](const LaunchedTasks::Launch& launch, const std::string& lane, std::exception_ptr cause,
                 const LaunchedTasks::LossOf& loss_of) {
            FailurePtr failure = make_failure(launch.task, launch.order, lane, std::move(cause));
            FailureEntry entry = DependencyGraph::make_entry(failure, launch.group);
            const Lock guard = lock();
            if (launch.group) learn_losses(launch.group->roots, loss_of);
            graph.count_failure();
            graph.log(std::move(entry));
            return failure;
          },
          [this](const FailurePtr& first, const FailurePtr& other) {
            FailureLog told;  // destroyed after the lock
            const Lock guard = lock();
            told = graph.join(*first, *other);
          }) {
  count_forks();
  check(options.max_pending_tasks > 0, "engine: max_pending_tasks is {}", options.max_pending_tasks);
  spin.limit = std::chrono::microseconds(options.spin_microseconds);
  spin.cores = options.cores > 0 ? options.cores : cores_of_process();
}

void Engine::Impl::add(Task&& task) {
  if (!task.group) task.group = FailureScope::current();
  if (observer) observer->pushing(task);
  const Task& pushed = graph.push(std::move(task));
  if (observer) observer->pushed(pushed);
}

Lane* Engine::Impl::dispatch() noexcept {
  Lane* woken = nullptr;
  while (TaskNode* node = graph.pop_ready()) {
    Lane& lane = *lanes[node->task.lane.index];
    lane.ready = {node, graph.reason_to_skip(*node), lane.trace, graph.queued(node->task.lane.index)};
    if (std::exchange(lane.idle, false)) lane.next_woken = std::exchange(woken, &lane);
  }
  if (finished()) {
    for (const auto& lane : lanes) {
      if (std::exchange(lane->idle, false)) lane->next_woken = std::exchange(woken, lane.get());
    }
  }
  return woken;
}

void Engine::Impl::wake(Lane* lanes) noexcept {
  while (lanes) {
    // Read first: once awake, the lane may be put on a list again.
    Lane* lane = std::exchange(lanes, lanes->next_woken);
    lane->parker.unpark();
  }
}

void Engine::Impl::work(Lane& lane) noexcept {
  SpinPolicy::of_thread() = &spin;
  spin.awake.fetch_add(1, std::memory_order_relaxed);
  std::atomic<int>* const busy_lanes = lane.options.busy_lanes.get();
  if (busy_lanes) busy_lanes->fetch_add(1, std::memory_order_relaxed);
  // For how long the lane goes on counting as busy when it falls asleep, in nanoseconds.
  std::int64_t linger = 0, woken_at = Trace::steady_ns();
  lane.busy.begin();
  NodeList used;
  Lane* woken = nullptr;
  Lock guard = lock();
  while (true) {
    // One critical section ends a task and begins the next one.
    ReadyTask task = std::exchange(lane.ready, {});
    if (!task.node && finished()) break;
    lane.idle = !task.node;
    guard.unlock();

    wake(std::exchange(woken, nullptr));
    DependencyGraph::clear(used);
    if (!task.node) {
      lane.busy.end();
      if (busy_lanes) {
        const std::int64_t now = Trace::steady_ns();
        linger = std::min(kMostLinger, linger + kLinger * (now - woken_at));
        lane.parker.park(spin, {*busy_lanes, std::chrono::nanoseconds(linger < kLeastLinger ? 0 : linger)});
        woken_at = Trace::steady_ns();
        linger = std::max<std::int64_t>(0, linger - (woken_at - now));
      } else {
        lane.parker.park(spin);
      }
      lane.busy.begin();
      // If the lane was idle, only its worker touches the task that woke it, so no lock is needed.
      task = std::exchange(lane.ready, {});
    }
    Ending ending;
    if (task.node) ending = run(task, lane);

    guard.lock();
    graph.recycle(used);
    if (task.node) {
      used = complete(task.node, lane, ending);
      woken = dispatch();
    }
  }
  guard.unlock();
  wake(woken);
  DependencyGraph::clear(used);
  lane.busy.end();
  if (busy_lanes) busy_lanes->fetch_sub(1, std::memory_order_relaxed);
  spin.awake.fetch_sub(1, std::memory_order_relaxed);
}

Engine::Impl::Ending Engine::Impl::run(ReadyTask& task, Lane& lane) noexcept {
  TaskNode& node = *task.node;
  const CurrentTask outer = std::exchange(current_task(), {this, &node.task.name});
  Ending ending;
  try {
    if (!task.reason_to_skip && !node.device_waits.empty()) task.reason_to_skip = await_devices(node, lane);
    if (task.reason_to_skip) {
      if (node.task.told_if_skipped) tell(task, lane);
      ending = {Outcome::kSkipped, std::move(task.reason_to_skip), {}};
    } else if (lane.options.stream) {
      launch(task, lane, ending);
    } else {
      call(task, lane, ending);
    }
  } catch (...) {
    ending = fail(node, lane, std::current_exception());
  }
  // The closure's contents are destroyed before the task counts as finished.
  node.task.run.reset();
  current_task() = outer;
  return ending;
}

void Engine::Impl::call(const ReadyTask& task, const Lane& lane, Ending& ending) const {
  TaskNode& node = *task.node;
  const std::int64_t begin = task.trace ? Trace::steady_ns() : 0;
  const std::int64_t bytes = task.trace ? lane.device_bytes() : -1;
  try {
    node.task.run({.lane = node.task.lane, .lane_data = lane.options.lane_data});
  } catch (...) {
    ending = fail(node, lane, std::current_exception());
  }
  if (task.trace) {
    task.trace->add(node.task.name, {.begin_ns = begin,
                                     .end_ns = Trace::steady_ns(),
                                     .order = node.order,
                                     .waited_for = node.waited_for,
                                     .queued = task.queued,
                                     .device_bytes = bytes});
  }
}

void Engine::Impl::tell(const ReadyTask& task, const Lane& lane) const noexcept try {
  Task& skipped = task.node->task;
  skipped.run({.lane = skipped.lane, .lane_data = lane.options.lane_data, .skipped = task.reason_to_skip.get()});
} catch (...) {
  // The task has a failure already.
}

void Engine::Impl::launch(const ReadyTask& task, Lane& lane, Ending& ending) noexcept {
  TaskNode& node = *task.node;
  const int index = node.task.lane.index;
  Stream& stream = *lane.options.stream;
  LaunchedTasks::Launch launch{.order = node.order, .measured = lane.times_launches, .trace = task.trace};
  const bool timed = launch.measured || task.trace;
  try {
    launch.task = node.task.name;
    launch.group = node.task.group;
    for (const DeviceWait& wait : node.device_waits) {
      if (wait.data) launch.reads.push_back(wait.ticket);
    }
    launched.wait_for_room(index, std::max<std::int64_t>(1, options.max_pending_tasks / 8));
    if (task.trace) {
      launch.record = {.order = node.order,
                       .waited_for = node.waited_for,
                       .queued = task.queued + launched.count(index),
                       .device_bytes = lane.device_bytes()};
    }
    if (timed) launch.begin = stream.record(true);
    std::vector<TaskPart> parts;
    node.task.run({.lane = node.task.lane,
                   .lane_data = lane.options.lane_data,
                   .stream = &stream,
                   .parts = task.trace ? &parts : nullptr});
    launch.parts = trace_parts(parts);
  } catch (...) {
    ending = fail(node, lane, std::current_exception());
  }
  // A failed task gets a ticket too: it may have queued work before it failed.
  std::uint64_t ticket = 0;
  try {
    ticket = launch.ticket = stream.record(timed);
    launched.add(index, std::move(launch));
    ending.ticket = ticket;
    if (options.serial) launched.wait({index, ticket});
  } catch (...) {
    if (ticket > 0) stream.synchronize(ticket);
    if (ending.outcome == Outcome::kDone) ending = fail(node, lane, std::current_exception());
  }
}

std::vector<LaunchedTasks::Part> Engine::Impl::trace_parts(const std::vector<TaskPart>& parts) {
  std::vector<LaunchedTasks::Part> traced;
  if (parts.empty()) return traced;
  const Lock guard = lock();
  for (const TaskPart& part : parts) traced.push_back({lanes[part.lane.index]->trace, part});
  return traced;
}

FailurePtr Engine::Impl::await_devices(TaskNode& node, Lane& lane) {
  if (FailurePtr loss = first_loss(node.device_waits)) return loss;
  Stream* stream = lane.options.stream.get();
  for (const auto& [ticket, data] : node.device_waits) {
    const std::int64_t task = launched.unfinished_task(ticket);
    if (task < 0 || ticket.lane == node.task.lane.index) continue;
    node.waited_for = std::max(node.waited_for, task);
    if (!stream) {
      lane.busy.end();
      launched.wait(ticket);
      lane.busy.begin();
    } else if (lane.awaits(ticket)) {
      stream->wait(launched.stream(ticket.lane), ticket.number);
    }
  }
  return first_loss(node.device_waits);
}

FailurePtr Engine::Impl::first_loss(const std::vector<DeviceWait>& waits) const {
  FailurePtr first;
  for (const DeviceWait& wait : waits) {
    FailurePtr loss = wait.data ? launched.failure(wait.ticket) : nullptr;
    if (loss && (!first || loss->order < first->order)) first = std::move(loss);
  }
  return first;
}

Engine::Impl::Ending Engine::Impl::fail(const TaskNode& node, const Lane& lane, std::exception_ptr cause) const noexcept
    try {
  FailurePtr failure = make_failure(node.task.name, node.order, lane.full_name(), std::move(cause));
  FailureEntry entry = DependencyGraph::make_entry(failure, node.task.group);
  return {Outcome::kFailed, std::move(failure), std::move(entry)};
} catch (...) {
  return {Outcome::kFailed, out_of_memory, {}};
}

FailurePtr Engine::Impl::make_failure(const std::string& task, std::int64_t order, const std::string& lane,
                                      std::exception_ptr cause) const noexcept try {
  std::string what = "an exception that is not a std::exception";
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  return std::make_shared<const Failure>(Failure{.task = task,
                                                 .cause = std::move(cause),
                                                 .message = fmt::format("{} on {}: {}", task, lane, what),
                                                 .order = order});
} catch (...) {
  return out_of_memory;
}

NodeList Engine::Impl::complete(TaskNode* node, Lane& lane, Ending& ending) noexcept {
  ++lane.completed;
  if (ending.entry) graph.log(std::move(ending.entry));
  NodeList finished = graph.complete(node, ending.outcome, std::move(ending.failure), ending.ticket);
  const std::int64_t enough = options.max_pending_tasks - std::max<std::int64_t>(1, options.max_pending_tasks / 8);
  if (pushers_wait && graph.unfinished() <= enough) {
    pushers_wait = false;
    room.notify_all();
  }
  return finished;
}

void Engine::Impl::push_serial(Task&& task) {
  const std::lock_guard serial(serial_mutex);
  Lock guard = lock();
  const int index = task.lane.index;
  add(std::move(task));
  // No other task runs, so this one is ready.
  dispatch();
  Lane& lane = *lanes[index];
  ReadyTask ready = std::exchange(lane.ready, {});
  guard.unlock();
  lane.busy.begin();
  Ending ending = run(ready, lane);
  lane.busy.end();
  guard.lock();
  NodeList finished = complete(ready.node, lane, ending);
  guard.unlock();
  DependencyGraph::clear(finished);
  guard.lock();
  graph.recycle(finished);
}

void Engine::Impl::wait_for_room(Lock& guard) {
  const auto room_left = [this] {
    const bool left = graph.unfinished() < options.max_pending_tasks;
    pushers_wait |= !left;
    return left;
  };
  if (room_left()) return;
  guard.unlock();
  wait_patiently([&](std::optional<std::chrono::nanoseconds> timeout) {
    guard.lock();
    if (!timeout) {
      room.wait(guard, room_left);
    } else if (!room.wait_for(guard, *timeout, room_left)) {
      guard.unlock();
      return false;
    }
    return true;
  });
}

void Engine::Impl::learn_losses(std::span<const Resource> data, const LaunchedTasks::LossOf& loss_of) {
  for (const Resource& each : data) {
    if (const auto ticket = graph.last_written(each)) graph.lose(each, *ticket, loss_of(*ticket));
  }
}

void Engine::Impl::learn_losses(std::span<const Resource> data, Lock& guard) {
  std::vector<std::pair<Ticket, FailurePtr>> losses;
  for (const Resource& each : data) {
    if (const auto ticket = graph.last_written(each)) losses.emplace_back(*ticket, nullptr);
  }
  guard.unlock();
  for (auto& [ticket, loss] : losses) loss = launched.failure(ticket);
  guard.lock();
  learn_losses(data, [&](Ticket ticket) {
    const auto known = std::ranges::find(losses, ticket, &std::pair<Ticket, FailurePtr>::first);
    return known == losses.end() ? nullptr : known->second;
  });
}

void Engine::Impl::report(FailurePtr failure, Lock guard) {
  const std::vector<Resource> started = graph.roots_of_failures();  // destroyed after the lock
  learn_losses(started, guard);
  ++reports;
  FailureLog told = graph.report(*failure);
  const auto thrown = told.find(failure->order);
  const auto group = thrown == told.end() ? nullptr : thrown->second.group;
  guard.unlock();
  if (group) {
    // The roots' failures are reported with this one.
    for (const Resource& root : group->roots) {
      if (root.state()->graph != &graph) continue;  // another engine's root, whose failures that engine reports
      HostWaiter waiter;
      guard = wait(waiter, [&] { graph.wait_unused(root, waiter); });
      learn_losses(std::span(&root, 1), guard);
      told.merge(graph.take_failure_of(root));
      guard.unlock();
    }
  }
  told.clear();
  throw_failure(std::move(failure));
}

void Engine::Impl::wait_for_devices(const std::vector<DeviceWait>& waits) {
  for (const DeviceWait& wait : waits) {
    wait_patiently([&](auto timeout) { return launched.wait(wait.ticket, timeout); });
  }
}

void Engine::Impl::report_slow_wait(std::chrono::nanoseconds waited) noexcept try {
  options.on_slow_wait(waited, pending_report(8));
} catch (...) {
  // As documented, exceptions of on_slow_wait are ignored.
}

std::string Engine::Impl::pending_report(int tasks_per_lane) {
  const auto most = static_cast<std::size_t>(std::max(1, tasks_per_lane));
  // "a, b and 3 more"
  const auto list = [](const std::vector<std::string>& names, std::size_t listed) {
    listed = std::min(listed, names.size());
    std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + listed, ", "));
    if (names.size() > listed) text += fmt::format(" and {} more", names.size() - listed);
    return text;
  };
  const std::vector<std::vector<std::string>> on_devices = launched.unfinished();
  const Lock guard = lock();
  std::string report;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (i < on_devices.size() && !on_devices[i].empty()) {
      const std::vector<std::string>& tasks = on_devices[i];
      report += fmt::format("{}: on the device, {} is running or about to run", lanes[i]->full_name(), tasks.front());
      if (tasks.size() > 1 && most > 1) report += "; then " + list({tasks.begin() + 1, tasks.end()}, most - 1);
      report += '\n';
    }
    const std::vector<const TaskNode*> tasks = graph.lane_tasks(static_cast<int>(i));
    if (tasks.empty()) continue;
    const TaskNode& head = *tasks.front();
    report += fmt::format("{}: {} {}", lanes[i]->full_name(), head.task.name,
                          head.missing ? "waits for" : "is running or about to run");
    std::vector<std::string> blockers;
    for (const TaskNode* blocker : graph.blockers(head)) {
      const int lane = blocker->task.lane.index;
      std::string name =
          lane < 0 ? "the last users of its memory" : blocker->task.name + " on " + lanes[lane]->full_name();
      if (std::ranges::find(blockers, name) == blockers.end()) blockers.push_back(std::move(name));
    }
    if (!blockers.empty()) report += " " + list(blockers, most);
    std::vector<std::string> behind;
    for (std::size_t k = 1; k < tasks.size(); ++k) behind.push_back(tasks[k]->task.name);
    // The lane's first task counts toward `most`.
    if (!behind.empty() && most > 1) report += "; then " + list(behind, most - 1);
    report += '\n';
  }
  return report;
}

Engine::Engine(EngineOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}

Engine::~Engine() {
  Impl& impl = *impl_;
  const bool inside_own_task = current_task().engine == &impl;
  if (!inside_own_task) {
    HostWaiter waiter;
    impl.wait(waiter, [&] { impl.graph.wait_all(waiter); });
  }
  Impl::Lock guard = impl.lock();
  impl.stopping = true;
  Lane* woken = impl.dispatch();
  guard.unlock();
  Impl::wake(woken);
  for (const auto& lane : impl.lanes) {
    if (!lane->worker.joinable()) continue;
    if (inside_own_task) {
      lane->worker.detach();
    } else {
      lane->worker.join();
    }
  }
}

LaneId Engine::add_lane(LaneOptions options) {
  check_outside_tasks("add_lane");
  auto lane = std::make_unique<Lane>(std::move(options));
  if (!impl_->options.serial) {
    std::promise<void> started;
    const auto work = [impl = impl_, &lane = *lane, &started] {
      try {
        lane.start_worker();
      } catch (...) {
        return started.set_exception(std::current_exception());
      }
      started.set_value();
      impl->work(lane);
    };
    try {
      lane->worker = std::thread(work);
    } catch (const std::system_error& error) {
      fail("engine: cannot make the thread of lane {}: {}", lane->full_name(), error.code().message());
    }
    try {
      started.get_future().get();
    } catch (...) {
      lane->worker.join();
      throw;
    }
  }
  Impl::Lock guard = impl_->lock();
  if (impl_->trace) lane->trace = impl_->trace->add_lane(lane->options.device, lane->options.name);
  const std::shared_ptr<Stream> stream = lane->options.stream;
  const std::string name = lane->full_name();
  impl_->lanes.push_back(std::move(lane));
  const int index = impl_->graph.add_lane(stream != nullptr);
  guard.unlock();
  if (stream) impl_->launched.add_lane(index, stream, name);
  return {index};
}

Resource Engine::make_resource() { return impl_->graph.make_resource(); }

Resource Engine::make_successor(const Resource& old) {
  const Impl::Lock guard = impl_->lock();
  Resource fresh = impl_->graph.make_successor(old);
  if (impl_->observer) impl_->observer->succeeded(old, fresh);
  return fresh;
}

LaneId Engine::choose_lane(std::span<const LaneId> lanes, const Task& task) const {
  const std::vector<std::int64_t> launched = impl_->launched.counts(lanes);
  const Impl::Lock guard = impl_->lock();
  return impl_->graph.choose_lane(lanes, task, launched);
}

void Engine::push(Task&& task) {
  check_outside_tasks("push");
  impl_->check_threads("push");
  if (impl_->options.serial) {
    // The task's closure may own the engine.
    const std::shared_ptr<Impl> impl = impl_;
    return impl->push_serial(std::move(task));
  }
  Impl& impl = *impl_;
  Impl::Lock guard = impl.lock();
  impl.wait_for_room(guard);
  impl.add(std::move(task));
  Lane* woken = impl.dispatch();
  guard.unlock();
  Impl::wake(woken);
}

bool Engine::run_here(Task& task, void* lane_data) {
  check_outside_tasks("run_here");
  if (impl_->options.serial || task.updates || task.group || FailureScope::current()) return false;
  bool at_rest = false;
  {
    const Impl::Lock guard = impl_->lock();
    if (impl_->trace || impl_->observer) return false;
    const auto rests = [&](const Resource& r) { return impl_->graph.at_rest(r); };
    at_rest = std::ranges::all_of(task.reads, rests) && std::ranges::all_of(task.writes, rests);
  }
  if (!at_rest) {
    for (const Resource& r : task.reads) wait_readable(r);
    for (const Resource& r : task.writes) wait_unused(r);
    for (const Resource& r : task.writes) {
      if (failure(r)) return false;
    }
  }
  const CurrentTask outer = std::exchange(current_task(), {impl_.get(), &task.name});
  try {
    task.run({.lane = task.lane, .lane_data = lane_data});
    current_task() = outer;
  } catch (...) {
    current_task() = outer;
    throw TaskError(impl_->make_failure(task.name, 0, lane_name(task.lane), std::current_exception()));
  }
  return true;
}

void Engine::wait_readable(const Resource& resource) {
  check_outside_tasks("wait_readable");
  impl_->check_threads("wait_readable");
  HostWaiter waiter;
  Impl::Lock guard = impl_->wait(waiter, [&] {
    if (impl_->observer) impl_->observer->waiting();
    impl_->graph.wait_readable(resource, waiter);
  });
  if (!waiter.failure) waiter.failure = waiter.loss;
  // The data is good, but the reader must learn once that it lacks an update.
  const FailurePtr& omission = waiter.omission;
  if (!waiter.failure && omission && impl_->graph.unreported(*omission)) waiter.failure = omission;
  if (waiter.failure) impl_->report(std::move(waiter.failure), std::move(guard));
}

void Engine::wait_unused(const Resource& resource) {
  check_outside_tasks("wait_unused");
  if (!impl_->has_threads()) return;
  HostWaiter waiter;
  impl_->wait(waiter, [&] { impl_->graph.wait_unused(resource, waiter); });
}

void Engine::wait_all() {
  check_outside_tasks("wait_all");
  impl_->check_threads("wait_all");
  HostWaiter waiter;
  Impl::Lock guard = impl_->wait(waiter, [&] { impl_->graph.wait_all(waiter); });
  if (FailurePtr first = impl_->graph.first_unreported()) impl_->report(std::move(first), std::move(guard));
}

void Engine::cancel_pending(const std::string& reason) {
  const Impl::Lock guard = impl_->lock();
  impl_->graph.cancel_pending(reason);
}

bool Engine::unused(const Resource& resource) const {
  std::vector<DeviceWait> waits;
  {
    const Impl::Lock guard = impl_->lock();
    if (!impl_->graph.unused(resource)) return false;
    waits = impl_->graph.device_waits(resource);
  }
  return std::ranges::all_of(waits, [&](const DeviceWait& w) { return impl_->launched.finished(w.ticket); });
}

FailurePtr Engine::failure(const Resource& resource) const {
  std::vector<DeviceWait> waits;
  {
    const Impl::Lock guard = impl_->lock();
    if (FailurePtr failure = impl_->graph.failure(resource)) return failure;
    waits = impl_->graph.device_waits(resource);
  }
  for (const DeviceWait& wait : waits) impl_->launched.finished(wait.ticket);
  return impl_->first_loss(waits);
}

bool Engine::forgive(const Resource& resource) {
  check_outside_tasks("forgive");
  HostWaiter waiter;
  FailurePtr forgiven;  // destroyed after the lock
  const Impl::Lock guard = impl_->wait(waiter, [&] { impl_->graph.wait_unused(resource, waiter); });
  if (waiter.loss) return false;
  forgiven = impl_->graph.forgive(resource);
  return !impl_->graph.failure(resource);
}

bool Engine::unreported(const Failure& failure) const {
  const Impl::Lock guard = impl_->lock();
  return impl_->graph.unreported(failure);
}

bool Engine::reported(const FailureGroup& group) {
  const auto thrown = [&](const Resource& root) {
    if (root.state()->graph != &impl_->graph) return false;
    wait_unused(root);
    const FailurePtr why = failure(root);
    return why && !unreported(*why);
  };
  if (std::ranges::any_of(group.roots, thrown)) return true;
  const Impl::Lock guard = impl_->lock();
  return group.reported;
}

void Engine::report_again(const FailurePtr& failure) {
  FailureEntry entry = DependencyGraph::make_entry(failure);
  const Impl::Lock guard = impl_->lock();
  impl_->graph.log(std::move(entry));
}

std::uint64_t Engine::reports() const { return impl_->reports.load(std::memory_order_relaxed); }

EngineCounters Engine::counters() const {
  const Impl::Lock guard = impl_->lock();
  return impl_->graph.counters();
}

std::vector<LaneCounters> Engine::lane_counters() const {
  const std::vector<std::vector<std::string>> launched = impl_->launched.unfinished();
  const Impl::Lock guard = impl_->lock();
  std::vector<LaneCounters> all;
  for (std::size_t i = 0; i < impl_->lanes.size(); ++i) {
    const Lane& lane = *impl_->lanes[i];
    all.push_back({.device = lane.options.device,
                   .name = lane.options.name,
                   .completed = lane.completed,
                   .queued = impl_->graph.queued(static_cast<int>(i)) +
                             static_cast<std::int64_t>(i < launched.size() ? launched[i].size() : 0),
                   .busy = lane.busy.total()});
  }
  return all;
}

std::chrono::nanoseconds Engine::busy(LaneId lane) const {
  const Impl::Lock guard = impl_->lock();
  return impl_->lanes.at(static_cast<std::size_t>(lane.index))->busy.total();
}

void Engine::time_launches(LaneId lane, bool on) {
  const Impl::Lock guard = impl_->lock();
  impl_->lanes.at(static_cast<std::size_t>(lane.index))->times_launches = on;
}

std::chrono::nanoseconds Engine::take_launched_time(LaneId lane) { return impl_->launched.take_time(lane.index); }

const EngineOptions& Engine::options() const { return impl_->options; }

std::string Engine::lane_name(LaneId lane) const {
  const Impl::Lock guard = impl_->lock();
  check(lane.index >= 0 && lane.index < static_cast<int>(impl_->lanes.size()),
        "lane_name: there is no lane {}, the engine has {}", lane.index, impl_->lanes.size());
  return impl_->lanes[lane.index]->full_name();
}

int Engine::lane_count() const {
  const Impl::Lock guard = impl_->lock();
  return static_cast<int>(impl_->lanes.size());
}

std::string Engine::pending_report(int tasks_per_lane) const { return impl_->pending_report(tasks_per_lane); }

void Engine::set_trace(std::shared_ptr<Trace> trace) {
  const Impl::Lock guard = impl_->lock();
  for (const auto& lane : impl_->lanes) {
    lane->trace = trace ? trace->add_lane(lane->options.device, lane->options.name) : nullptr;
  }
  impl_->trace.swap(trace);  // the old one is destroyed after the lock
}

bool Engine::tracing() const {
  const Impl::Lock guard = impl_->lock();
  return impl_->trace != nullptr;
}

std::shared_ptr<PushObserver> Engine::set_push_observer(std::shared_ptr<PushObserver> observer) {
  const Impl::Lock guard = impl_->lock();
  return std::exchange(impl_->observer, std::move(observer));
}

bool Engine::try_set_push_observer(std::shared_ptr<PushObserver> observer) {
  const Impl::Lock guard = impl_->lock();
  if (impl_->observer) return false;
  impl_->observer = std::move(observer);
  return true;
}

}  // namespace lockstep
