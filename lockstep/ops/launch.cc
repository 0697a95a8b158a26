#include "lockstep/ops/launch.h"

#include <vector>

#include "lockstep/ops/inter_op_parallel_guard.h"
#include "lockstep/runtime/step_recorder.h"
#include "lockstep/tensor/storage.h"

namespace lockstep::ops {
namespace {

thread_local int current_shard = -1;
thread_local UpdateScope* current_update = nullptr;
thread_local CallerScope* current_caller = nullptr;

// The lane that is likely to use a new array, for the allocator. Without a known lane, the allocator takes no block
// that a lane still uses, because that would make independent tasks wait for one another.
LaneId likely_lane(const DeviceState& state) {
  const bool unknown = InterOpParallelGuard::active() || CallerScope::context(state) != nullptr;
  return unknown ? LaneId() : state.compute_lane(current_shard);
}

}  // namespace

ShardScope::ShardScope(int shard) : previous_(current_shard) { current_shard = shard; }
ShardScope::~ShardScope() { current_shard = previous_; }
int ShardScope::current() { return current_shard; }

UpdateScope::UpdateScope(std::span<const Resource> needed, Resource* done)
    : previous_(std::exchange(current_update, this)), needed_(needed), done_(done) {}
UpdateScope::~UpdateScope() { current_update = previous_; }

void UpdateScope::join(Task& task) {
  if (!current_update) return;
  task.updates = true;
  for (const Resource& needed : current_update->needed_) task.reads.push_back(needed);
  Resource* const done = current_update->done_;
  if (done && *done) task.writes.push_back(std::exchange(*done, {}));
}

CallerScope::CallerScope(DeviceState& device) : context_(device), previous_(std::exchange(current_caller, this)) {}
CallerScope::~CallerScope() { current_caller = previous_; }

KernelContext* CallerScope::context(const DeviceState& device) {
  const CallerScope* const scope = current_caller;
  return scope && &scope->context_.device() == &device ? &scope->context_.get() : nullptr;
}

void push_task(DeviceState& device, Task&& task) {
  KernelContext* const caller = CallerScope::context(device);
  if (!caller || !device.engine->run_here(task, caller)) device.engine->push(std::move(task));
}

LaneId compute_lane(const DeviceState& device, const Task& task) {
  return InterOpParallelGuard::active() ? device.engine->choose_lane(device.compute_lanes, task)
                                        : device.compute_lane(current_shard);
}

Array empty(const Shape& shape, DType dtype, Device device, Layout layout) {
  if (!layout_fits(layout, shape)) fail("array: shape {} cannot be {}", shape.str(), name(layout));
  View view{nullptr, dtype, layout, shape};
  if (device.is_host()) {
    auto storage = make_host_storage(view.bytes());
    view.data = storage->data;
    return Array(std::move(storage), view).with_shard(current_shard);
  }
  DeviceState& state = state_of(device, "empty");
  StepRecorder* const recorder = StepRecorder::current();
  Block block = recorder ? recorder->allocate(state, view.bytes(), likely_lane(state))
                         : state.allocator->allocate(view.bytes(), likely_lane(state));
  view.data = block.data;
  // Shares ownership of the device's state, so the storage keeps the whole device alive.
  std::shared_ptr<CachingAllocator> allocator(state.shared_from_this(), state.allocator.get());
  auto storage = make_block_storage(std::move(allocator), std::move(block), view.bytes(), device, state.engine);
  return Array(std::move(storage), view).with_shard(current_shard);
}

Array empty_or(const Array& into, std::string_view what, const Shape& shape, DType dtype, Device device) {
  if (!into.defined()) return empty(shape, dtype, device);
  check(into.shape() == shape && into.dtype() == dtype && into.device() == device && into.layout() == Layout::plain,
        "{}: the result's memory is {}, expected a plain {} {} on {}", what, into, shape, name(dtype), device.name());
  return into.with_shard(current_shard);
}

Array empty_like(const Array& x) { return empty(x.shape(), x.dtype(), x.device(), x.layout()); }

void count_write(const Array& t) {
  if (t.defined()) t.storage()->count_write();
}

template <typename A>
void enter_host(std::string_view name, std::span<const A> reads, std::span<const A> writes) {
  if (StepRecorder* const recorder = StepRecorder::current())
    recorder->refuse(fmt::format("{} computes in host memory", name));
  const auto check_place = [&](const Array& t, std::string_view which) {
    check(t.device().is_host(), "{}: an {} is on {}, expected it in host memory", name, which, t.device().name());
  };
  for (const Array& t : reads) {
    if (!t.defined()) continue;
    check_place(t, "input");
    t.wait();
  }
  for (const Array& t : writes) {
    if (!t.defined()) continue;
    check_place(t, "output");
    t.storage()->check_writable();
    t.storage()->wait_writable(t.view().bytes() == t.storage()->bytes);
  }
}
template void enter_host(std::string_view, std::span<const Array>, std::span<const Array>);
template void enter_host(std::string_view, std::span<const Operand>, std::span<const Operand>);

template <typename A>
Task make_task(std::string_view name, DeviceState& device, std::span<const A> reads, std::span<const A> writes,
               const LaunchOptions& options, std::shared_ptr<const void>& held) {
  Task task;
  const auto hold = [&](const Array& t) {
    const std::shared_ptr<Storage>& host = t.storage()->host;
    if (!host) return;
    host->adopt(device.engine);
    if (!held) {
      held = host;
    } else if (held != host) {
      held = std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<Storage>>>(held, host);
    }
  };
  task.name = name;
  auto readable = [&](const Array& t) {
    if (t.device().info() == &device) return true;
    if (!options.foreign_reads || device.memory_domain < 0 || t.device().is_host()) return false;
    return state_of(t.device(), name).memory_domain == device.memory_domain;
  };
  for (const Array& t : reads) {
    if (!t.defined()) continue;
    if (!readable(t)) {
      fail("{}: an input is on {}{}, expected it on {}", name, t.device().name(),
           t.device().name() == device.name ? " of another Runtime" : "", device.name);
    }
    hold(t);
    task.reads.push_back(t.resource());
  }
  for (const Array& t : writes) {
    if (!t.defined()) continue;
    check(t.device().info() == &device, "{}: an output is on {}, expected it on {}", name, t.device().name(),
          device.name);
    t.storage()->check_writable();
    hold(t);
    task.writes.push_back(t.resource());
    // If the array is a part of its storage, the rest keeps its data, so the task also counts as a reader.
    if (t.view().bytes() < t.storage()->bytes) task.reads.push_back(t.resource());
  }
  task.updates = options.updates;
  UpdateScope::join(task);
  if (StepRecorder* const recorder = StepRecorder::current()) {
    for (const Array& t : reads) recorder->use(t);
    for (const Array& t : writes) {
      recorder->use(t);
      recorder->writes(t);
    }
  }
  task.lane = options.lane ? *options.lane : compute_lane(device, task);
  return task;
}
template Task make_task(std::string_view, DeviceState&, std::span<const Array>, std::span<const Array>,
                        const LaunchOptions&, std::shared_ptr<const void>&);
template Task make_task(std::string_view, DeviceState&, std::span<const Operand>, std::span<const Operand>,
                        const LaunchOptions&, std::shared_ptr<const void>&);

template <typename A>
LaunchObserver* tell_launching(std::string_view name, std::span<const A> reads, std::span<const A> writes) {
  LaunchObserver* const observer = LaunchObserver::current();
  if (observer) [[unlikely]] {
    observer->launching(name, std::vector<Array>(reads.begin(), reads.end()),
                        std::vector<Array>(writes.begin(), writes.end()));
  }
  return observer;
}
template LaunchObserver* tell_launching(std::string_view, std::span<const Array>, std::span<const Array>);
template LaunchObserver* tell_launching(std::string_view, std::span<const Operand>, std::span<const Operand>);

template <typename A>
void tell_launched(LaunchObserver& observer, std::string_view name, std::span<const A> writes) {
  observer.launched(name, std::vector<Array>(writes.begin(), writes.end()));
}
template void tell_launched(LaunchObserver&, std::string_view, std::span<const Array>);
template void tell_launched(LaunchObserver&, std::string_view, std::span<const Operand>);

void check_defined(std::string_view what, const Array& t) { check(t.defined(), "{}: an input is undefined", what); }

void check_same(std::string_view what, const Array& a, const Array& b) {
  check(a.shape() == b.shape() && a.dtype() == b.dtype(), "{}: {} and {}, expected the same shape and type", what, a,
        b);
}

void check_dim(std::string_view what, std::string_view which, const Array& t, int dims, std::string_view axes) {
  check(t.defined(), "{}: {} is undefined", what, which);
  check(t.shape().dim() == dims, "{}: {} is {}, expected {} {} {}", what, which, t.shape(), dims,
        dims == 1 ? "axis" : "axes", axes);
}

void check_window(std::string_view what, std::initializer_list<std::int64_t> numbers) {
  for (const std::int64_t number : numbers) {
    check(std::in_range<std::int32_t>(number), "{}: an option is {}, expected a number within int32", what, number);
  }
}

}  // namespace lockstep::ops
