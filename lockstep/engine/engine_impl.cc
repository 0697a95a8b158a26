#include "lockstep/engine/engine_impl.h"

#include <sched.h>

#include <algorithm>
#include <exception>

namespace lockstep {
namespace {

int cores_of_process() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

}  // namespace

CurrentTask& current_task() {
  thread_local CurrentTask current;
  return current;
}

void HostWaiter::sleep(SpinPolicy& policy) {
  policy.awake.fetch_add(1, std::memory_order_relaxed);
  parker_.park(policy);
  policy.awake.fetch_sub(1, std::memory_order_relaxed);
}

Engine::Impl::Impl(EngineOptions engine_options)
    : options(engine_options),
      out_of_memory(std::make_shared<Failure>(
          Failure{.task = "a task", .message = "a task ran out of memory", .order = -1})) {
  check(options.max_pending_tasks > 0, "engine: max_pending_tasks is {}", options.max_pending_tasks);
  spin.limit = std::chrono::microseconds(options.spin_microseconds);
  spin.cores = options.cores > 0 ? options.cores : cores_of_process();
}

Lane* Engine::Impl::dispatch() noexcept {
  Lane* woken = nullptr;
  while (TaskNode* node = graph.pop_ready()) {
    Lane& lane = *lanes[node->task.lane.index];
    lane.ready = node;
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
  spin.awake.fetch_add(1, std::memory_order_relaxed);
  NodeList used;
  Lane* woken = nullptr;
  Lock guard = lock();
  while (true) {
    // One critical section ends a task and begins the next one.
    TaskNode* node = std::exchange(lane.ready, nullptr);
    if (!node && finished()) break;
    lane.idle = !node;
    FailurePtr failed_read = node ? graph.failed_read(*node) : nullptr;
    const std::shared_ptr<TraceLane> lane_trace = lane.trace;
    guard.unlock();

    wake(std::exchange(woken, nullptr));
    DependencyGraph::clear(used);
    Ending ending;
    if (node) {
      ending = run(*node, lane, std::move(failed_read), lane_trace.get());
    } else {
      lane.parker.park(spin);
    }

    guard.lock();
    graph.recycle(used);
    if (node) {
      used = complete(node, ending);
      woken = dispatch();
    }
  }
  guard.unlock();
  wake(woken);
  DependencyGraph::clear(used);
  spin.awake.fetch_sub(1, std::memory_order_relaxed);
}

Engine::Impl::Ending Engine::Impl::run(TaskNode& node, const Lane& lane, FailurePtr failed_read,
                                       TraceLane* trace) const noexcept {
  const CurrentTask outer = std::exchange(current_task(), {this, &node.task.name});
  Ending ending;
  if (failed_read) {
    ending = {Outcome::kSkipped, std::move(failed_read), {}};
  } else {
    const std::int64_t begin = trace ? Trace::steady_ns() : 0;
    try {
      node.task.run({.lane = node.task.lane, .lane_data = lane.options.lane_data});
    } catch (...) {
      ending = fail(node, lane, std::current_exception());
    }
    if (trace) trace->add(node.task.name, begin, Trace::steady_ns());
  }
  // What the closure owns is gone before the task counts as finished.
  node.task.run.reset();
  current_task() = outer;
  return ending;
}

Engine::Impl::Ending Engine::Impl::fail(const TaskNode& node, const Lane& lane,
                                        std::exception_ptr cause) const noexcept try {
  std::string what = "an exception that is not a std::exception";
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  Failure failure{.task = node.task.name, .cause = std::move(cause), .order = node.order};
  failure.message = fmt::format("{} on {}: {}", node.task.name, lane.full_name(), what);
  auto shared = std::make_shared<const Failure>(std::move(failure));
  return {Outcome::kFailed, shared, DependencyGraph::make_entry(shared)};
} catch (...) {
  return {Outcome::kFailed, out_of_memory, {}};
}

NodeList Engine::Impl::complete(TaskNode* node, Ending& ending) noexcept {
  if (ending.entry) graph.log(std::move(ending.entry));
  NodeList finished = graph.complete(node, ending.outcome, std::move(ending.failure));
  const std::int64_t enough =
      options.max_pending_tasks - std::max<std::int64_t>(1, options.max_pending_tasks / 8);
  if (pushers_wait && graph.unfinished() <= enough) {
    pushers_wait = false;
    room.notify_all();
  }
  return finished;
}

void Engine::Impl::push_serial(Task&& task) {
  const std::lock_guard serial(serial_mutex);
  Lock guard = lock();
  graph.push(std::move(task));
  // Nothing else runs, so the task is ready.
  TaskNode* node = graph.pop_ready();
  const Lane& lane = *lanes[node->task.lane.index];
  FailurePtr failed_read = graph.failed_read(*node);
  std::shared_ptr<TraceLane> lane_trace = lane.trace;
  guard.unlock();
  Ending ending = run(*node, lane, std::move(failed_read), lane_trace.get());
  guard.lock();
  NodeList finished = complete(node, ending);
  guard.unlock();
  DependencyGraph::clear(finished);
  guard.lock();
  graph.recycle(finished);
}

}  // namespace lockstep
