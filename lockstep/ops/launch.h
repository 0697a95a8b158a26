// Internal: how an operation becomes a task: allocate what it returns, name what it reads and writes, push ONE task.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/runtime/device_state.h"
#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// Within a scope, new arrays belong to `shard` and tasks run on its lane. Autograd opens one around each operation
// from its inputs' shard; code that calls ops directly gets shard 0's lane.
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

// Within a scope, tasks update lasting data, such as an optimizer's weights and states, as one step: either all of them
// run or none. They are skipped if any of `needed` has failed, although they do not read it; what they would have
// updated then keeps its value (Task::updates). The first of them takes `done`, if there is one,
// and writes it.
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

// The compute lane for a task whose reads and writes are known: the current shard's, or with an
// InterOpParallelGuard the best.
LaneId compute_lane(const DeviceState& device, const Task& task);

// An uninitialized array. Throws for a layout that does not fit the shape.
Array empty(const Shape& shape, DType dtype, Device device, Layout layout = Layout::plain);
Array empty_like(const Array& x);
// Returns `into` after checking that it has the given properties. If it is undefined, returns empty().
Array empty_or(const Array& into, std::string_view what, const Shape& shape, DType dtype, Device device);

struct LaunchOptions {
  // Runs here instead of a compute lane.
  std::optional<LaneId> lane{};
  // Inputs may lie in other devices' memory, as long as this device can read it.
  bool foreign_reads = false;
  // Task::updates.
  bool updates = false;
};

// An array that a task reads or writes, in a list that copies none.
class Operand {
 public:
  Operand(const Array& array) : array_(array) {}    // NOLINT(google-explicit-constructor)
  operator const Array&() const { return array_; }  // NOLINT(google-explicit-constructor)

 private:
  const Array& array_;
};

// The part of launch() that does not depend on the kernel. Undefined arrays are left out.
template <typename A>
Task make_task(std::string_view name, DeviceState& device, std::span<const A> reads, std::span<const A> writes,
               const LaunchOptions& options);

// Call it when the task that writes the array has been pushed.
void count_write(const Array& t);

// Pushes a task on the device of writes[0] that runs a kernel call, or calls kernel(Backend&, KernelContext&). All
// arrays must be on that device. The kernel has views, not arrays: the resource protects memory that the host frees
// in the meantime.
template <typename A, typename Kernel>
void launch_task(std::string_view name, std::span<const A> reads, std::span<const A> writes, Kernel&& kernel,
                 const LaunchOptions& options) {
  const Array& first = writes.front();
  DeviceState& device = state_of(first.device(), name);
  Task task = make_task(name, device, reads, writes, options);
  task.run = [backend = device.backend.get(), kernel = std::forward<Kernel>(kernel)](const TaskContext& c) mutable {
    auto& context = KernelContext::of_task(c.lane_data);
    if constexpr (std::invocable<Kernel&, Backend&, KernelContext&>) {
      kernel(*backend, context);
    } else {
      backend->run(context, kernel);
    }
  };
  device.engine->push(std::move(task));
  for (const Array& t : writes) count_write(t);
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

// Checks that an input is defined and on a device: `add: an input is undefined`.
void check_on_device(std::string_view what, const Array& t);
// Checks that both have one dtype and shape: `add: [2, 3] f32 and [2, 4] f32, expected the same`.
void check_same(std::string_view what, const Array& a, const Array& b);
// Checks the number of axes: `conv2d: input is [3, 3], expected 4 axes (N, C, H, W)`.
void check_dim(std::string_view what, std::string_view which, const Array& t, int dims, std::string_view axes);

}  // namespace lockstep::ops
