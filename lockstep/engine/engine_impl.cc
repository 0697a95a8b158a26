#include "lockstep/engine/engine_impl.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <exception>

namespace lockstep {
namespace {

int cores_of_process() {
  std::array<cpu_set_t, 8> mask{};  // one has room for 1,024 CPUs
  return sched_getaffinity(0, sizeof mask, mask.data()) == 0 ? CPU_COUNT_S(sizeof mask, mask.data()) : 1;
}

}  // namespace

CurrentTask& current_task() {
  thread_local CurrentTask current;
  return current;
}

bool HostWaiter::sleep(SpinPolicy& policy, std::optional<std::chrono::nanoseconds> timeout) {
  policy.awake.fetch_add(1, std::memory_order_relaxed);
  const bool open = parker_.park(policy, timeout);
  policy.awake.fetch_sub(1, std::memory_order_relaxed);
  return open;
}

Engine::Impl::Impl(EngineOptions engine_options)
    : options(std::move(engine_options)),
      out_of_memory(
          std::make_shared<Failure>(Failure{.task = "a task", .message = "a task ran out of memory", .order = -1})),
      launched([this](const LaunchedTasks::Launch& launch, const std::string& lane, std::exception_ptr cause) {
        FailurePtr failure = make_failure(launch.task, launch.order, lane, std::move(cause));
        FailureEntry entry = DependencyGraph::make_entry(failure, launch.group);
        const Lock guard = lock();
        graph.count_failure();
        graph.log(std::move(entry));
        return failure;
      }) {
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
      lane.parker.park(spin);
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

void Engine::Impl::report(FailurePtr failure, Lock guard) {
  ++reports;
  FailureLog told = graph.report(*failure);
  const auto thrown = told.find(failure->order);
  const auto group = thrown == told.end() ? nullptr : thrown->second.group;
  guard.unlock();
  if (group) {
    // The roots' failures are reported with this one.
    for (const Resource& root : group->roots) {
      HostWaiter waiter;
      guard = wait(waiter, [&] { graph.wait_unused(root, waiter); });
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

}  // namespace lockstep
