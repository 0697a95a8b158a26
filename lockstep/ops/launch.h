// Internal: how an operation becomes a task: allocate what it returns, name what it reads and writes, push ONE task.
#pragma once

#include <concepts>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/ops/launch_observer.h"
#include "lockstep/runtime/caller_contexts.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/host_compute.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// Within a scope, new arrays belong to `shard` and tasks run on its lane. Autograd opens a scope around each operation,
// for its inputs' shard; code that calls ops directly gets shard 0's lane.
class ShardScope {
 public:
  explicit ShardScope(int shard);
  ~ShardScope();
  ShardScope(const ShardScope&) = delete;
  ShardScope& operator=(const ShardScope&) = delete;
  static int current();

 private:
  int previous_;
};

// Within a scope, this thread runs the tasks of a CPU device itself, each as it is described, instead of handing them
// to the device's lanes. A prediction for a small input takes less time than waking a lane and being woken by it. What
// the tasks write belongs to this thread until the scope ends, and nobody may change what they read; see
// Engine::run_here.
class CallerScope {
 public:
  explicit CallerScope(DeviceState& device);
  ~CallerScope();
  CallerScope(const CallerScope&) = delete;
  CallerScope& operator=(const CallerScope&) = delete;
  // Null if this thread is in no scope of `device`.
  static KernelContext* context(const DeviceState& device);

 private:
  const CallerContext context_;
  CallerScope* const previous_;
};

// Within a scope, tasks update lasting data, such as an optimizer's weights and states, as one step: either all of them
// run or none. They are skipped if any of `needed` has failed, although they do not read it; what they would have
// updated then keeps its value (Task::updates). The first task also writes `done`, if there is one, and resets it.
class UpdateScope {
 public:
  explicit UpdateScope(std::span<const Resource> needed, Resource* done = nullptr);
  ~UpdateScope();
  UpdateScope(const UpdateScope&) = delete;
  UpdateScope& operator=(const UpdateScope&) = delete;
  // Makes a task that is about to be pushed part of this thread's update, if there is one.
  static void join(Task& task);

 private:
  UpdateScope* previous_;
  std::span<const Resource> needed_;
  Resource* done_;
};

// The compute lane for a task whose reads and writes are known: the lane of the current shard or, with an
// InterOpParallelGuard, the lane that the engine chooses.
LaneId compute_lane(const DeviceState& device, const Task& task);

// An uninitialized array, also in host memory. Throws for a layout that does not fit the shape.
Array empty(const Shape& shape, DType dtype, Device device, Layout layout = Layout::plain);
Array empty_like(const Array& x);
// Returns `into` after checking that it has the given properties. If it is undefined, returns empty().
Array empty_or(const Array& into, std::string_view what, const Shape& shape, DType dtype, Device device);

struct LaunchOptions {
  // Runs on this lane instead of a compute lane.
  std::optional<LaneId> lane{};
  // Inputs may lie in other devices' memory, as long as this device can read it.
  bool foreign_reads = false;
  // Task::updates.
  bool updates = false;
};

// A reference to an array that a task reads or writes, so that a list of operands copies no array.
class Operand {
 public:
  Operand(const Array& array) : array_(array) {}    // NOLINT(google-explicit-constructor)
  operator const Array&() const { return array_; }  // NOLINT(google-explicit-constructor)

 private:
  const Array& array_;
};

// The part of launch() that does not depend on the kernel. Undefined arrays are left out. The task must keep `held`,
// host memory that it uses.
template <typename A>
Task make_task(std::string_view name, DeviceState& device, std::span<const A> reads, std::span<const A> writes,
               const LaunchOptions& options, std::shared_ptr<const void>& held);

// Pushes a task of the device, or runs it in a CallerScope.
void push_task(DeviceState& device, Task&& task);

// Counts a write to the array. Call it after the task that writes the array has been pushed.
void count_write(const Array& t);

// Tell this thread's observer. tell_launching() returns it, or null, so that a launch looks it up only once.
template <typename A>
LaunchObserver* tell_launching(std::string_view name, std::span<const A> reads, std::span<const A> writes);
template <typename A>
void tell_launched(LaunchObserver& observer, std::string_view name, std::span<const A> writes);

// Waits until this thread may read and write the arrays, all of which must be in host memory.
template <typename A>
void enter_host(std::string_view name, std::span<const A> reads, std::span<const A> writes);

// Pushes a task on the device of writes[0] that runs a kernel call, or calls kernel(Backend&, KernelContext&). All
// arrays must be on that device. The kernel has views, not arrays: the resource protects memory that the host frees
// in the meantime. If writes[0] is in host memory, runs the kernel at once on this thread, and throws its failure.
template <typename A, typename Kernel>
void launch_task(std::string_view name, std::span<const A> reads, std::span<const A> writes, Kernel&& kernel,
                 const LaunchOptions& options) {
  const auto call = [](Backend& backend, KernelContext& context, auto& kernel) {
    if constexpr (std::invocable<Kernel&, Backend&, KernelContext&>) {
      kernel(backend, context);
    } else {
      backend.run(context, kernel);
    }
  };
  LaunchObserver* const observer = tell_launching(name, reads, writes);
  const Array& first = writes.front();
  if (first.device().is_host()) {
    enter_host(name, reads, writes);
    try {
      call(host_backend(), host_context(), kernel);
    } catch (...) {
      fail_on_host(name, std::current_exception());
    }
  } else {
    DeviceState& device = state_of(first.device(), name);
    std::shared_ptr<const void> held;
    Task task = make_task(name, device, reads, writes, options, held);
    task.run = [backend = device.backend.get(), held = std::move(held), call, kernel = std::forward<Kernel>(kernel)](
                   const TaskContext& c) mutable { call(*backend, KernelContext::of_task(c.lane_data), kernel); };
    push_task(device, std::move(task));
  }
  for (const Array& t : writes) count_write(t);
  if (observer) tell_launched(*observer, name, writes);
}
template <typename Kernel>
void launch(std::string_view name, std::span<const Array> reads, std::span<const Array> writes, Kernel&& kernel,
            const LaunchOptions& options = {}) {
  launch_task(name, reads, writes, std::forward<Kernel>(kernel), options);
}
template <typename Kernel>
void launch(std::string_view name, std::initializer_list<Operand> reads, std::initializer_list<Operand> writes,
            Kernel&& kernel, const LaunchOptions& options = {}) {
  launch_task(name, std::span(reads.begin(), reads.size()), std::span(writes.begin(), writes.size()),
              std::forward<Kernel>(kernel), options);
}

// Checks that an input is defined: `add: an input is undefined`.
void check_defined(std::string_view what, const Array& t);
// Checks that both have one dtype and shape: `add: [2, 3] f32 and [2, 4] f32, expected the same shape and type`.
void check_same(std::string_view what, const Array& a, const Array& b);
// Checks the number of axes: `conv2d: input is [3, 3], expected 4 axes (N, C, H, W)`.
void check_dim(std::string_view what, std::string_view which, const Array& t, int dims, std::string_view axes);
// Checks that the numbers of a window, such as its stride, are within int32, so that sums and products of two of them
// and an extent are within int64.
void check_window(std::string_view what, std::initializer_list<std::int64_t> numbers);

}  // namespace lockstep::ops
