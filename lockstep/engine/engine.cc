#include "lockstep/engine/engine.h"

#include <algorithm>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/engine/engine_impl.h"
#include "lockstep/engine/push_observer.h"

namespace lockstep {
namespace {

void check_outside_tasks(const char* operation) {
  const std::string* task = current_task().name;
  check(!task, "{}: called inside task {}", operation, task ? *task : "");
}

}  // namespace

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

void Engine::wait_readable(const Resource& resource) {
  check_outside_tasks("wait_readable");
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
  HostWaiter waiter;
  impl_->wait(waiter, [&] { impl_->graph.wait_unused(resource, waiter); });
}

void Engine::wait_all() {
  check_outside_tasks("wait_all");
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
