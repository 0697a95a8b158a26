#include "lockstep/ops/copy.h"

#include <cstring>
#include <limits>

#include "lockstep/ops/launch.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep::ops {
namespace {

// Whether writing y would change elements of x that are not read yet.
bool overlap(const Array& x, const Array& y) {
  if (x.storage() != y.storage()) return false;
  const auto *from = static_cast<const std::byte*>(x.view().data), *to = static_cast<const std::byte*>(y.view().data);
  const bool same = from == to && x.dtype() == y.dtype() && x.layout() == y.layout();
  return !same && from < to + y.view().bytes() && to < from + x.view().bytes();
}

}  // namespace

Shape resolve_shape(std::string_view what, Shape shape, std::int64_t numel) {
  int inferred = -1;
  for (int i = 0; i < shape.dim(); ++i) {
    if (shape[i] == -1 && inferred < 0) {
      inferred = i;
    } else if (shape[i] < 0) {
      fail("{}: extent {} in {}", what, shape[i], shape.str());
    }
  }
  if (inferred >= 0) {
    shape[inferred] = 1;
    const std::int64_t known = shape.numel();
    if (known == 0) {
      shape[inferred] = -1;
      fail("{}: -1 in {} could be any extent, expected it beside extents above 0", what, shape.str());
    }
    shape[inferred] = numel / known;
  }
  return shape;
}

Array reshape(const Array& x, Shape shape) {
  check(x.defined(), "reshape: undefined array");
  const Shape wanted = shape;
  shape = resolve_shape("reshape", shape, x.numel());
  if (shape.numel() != x.numel()) {
    fail("reshape: the {} elements of {} do not fit shape {}", x.numel(), x.shape().str(), wanted.str());
  }
  check(same_order(x.layout(), Layout::plain, x.shape()), "reshape: the array is {}, expected plain", name(x.layout()));
  View view = x.view();
  view.shape = shape;
  view.layout = Layout::plain;
  return Array(x.storage(), view).with_shard(x.shard());
}

Array narrow(const Array& x, std::int64_t start, std::int64_t count) {
  check(x.defined() && x.shape().dim() > 0, "narrow: the array has no axes");
  const std::int64_t rows = x.size(0);
  std::int64_t end = 0;
  if (__builtin_add_overflow(start, count, &end)) end = std::numeric_limits<std::int64_t>::max();
  check(start >= 0 && count >= 0 && end <= rows, "narrow: rows [{}, {}) of an array with {} rows", start, end, rows);
  View view = x.view();
  view.shape[0] = count;
  const std::int64_t row = rows == 0 ? 0 : x.numel() / rows;
  if (view.data)
    view.data = static_cast<std::byte*>(view.data) + static_cast<std::size_t>(start * row) * item_size(x.dtype());
  return Array(x.storage(), view).with_shard(x.shard());
}

Array convert(const Array& x, DType dtype, Layout layout) {
  if (x.dtype() == dtype && same_order(x.layout(), layout, x.shape())) {
    if (x.layout() == layout) return x;
    View v = x.view();
    v.layout = layout;
    return Array(x.storage(), v).with_shard(x.shard());
  }
  Array y = empty(x.shape(), dtype, x.device(), layout);
  launch(x.dtype() == dtype ? "reorder" : "convert", {x}, {y}, kernels::Copy{x.view(), y.view()});
  return y;
}

Array to_dtype(const Array& x, DType dtype) { return convert(x, dtype, x.layout()); }

Array to_layout(const Array& x, Layout layout) { return convert(x, x.dtype(), layout); }

void copy_(const Array& x, const Array& y, CopyOptions options) {
  check(x.defined() && y.defined(), "copy: undefined array");
  check(x.shape() == y.shape(), "copy: from {} to {}, expected the same shape", x, y);
  bool from_host = x.device().is_host(), to_host = y.device().is_host();
  check(from_host || to_host || state_of(x.device(), "copy").engine == state_of(y.device(), "copy").engine,
        "copy: {} and {} are devices of two Runtimes, expected one: copy to host memory in between", x.device().name(),
        y.device().name());
  if (overlap(x, y)) fail("copy: from {} to {}, which share some elements, expected separate memory: copy x + 0", x, y);
  if (from_host && to_host) return launch("copy", {x}, {y}, kernels::Copy{x.view(), y.view()});
  y.storage()->check_writable();
  // A GPU makes the copies that involve it, because only it reaches its memory.
  const bool inward = from_host || (x.device().host_visible() && !y.device().host_visible());
  DeviceState& state = state_of(inward ? y.device() : x.device(), "copy");
  const Device other = inward ? x.device() : y.device();
  const bool apart = other.host_visible() != (state.kind == DeviceKind::cpu) ||
                     (!other.is_host() && state_of(other, "copy").memory_domain != state.memory_domain);
  StepRecorder* const recorder = StepRecorder::current();
  for (const Array* t : {&x, &y}) {
    if (Storage& host = t->storage()->owner(); host.device.is_host()) host.adopt(state.engine);
    if (recorder) recorder->use(*t);
  }
  // A recorded step would repeat the copy with the same array of the host, but each step has another one.
  if (recorder && (from_host || to_host)) recorder->refuse("it copies from or to the host's memory");
  Task task;
  task.name = from_host ? "copy in" : to_host ? "copy out" : "copy";
  task.reads.push_back(x.resource());
  // If y is a part of its storage, the rest keeps its data, so the task also counts as a reader.
  if (y.view().bytes() < y.storage()->bytes) task.reads.push_back(y.resource());
  task.writes.push_back(y.resource());
  UpdateScope::join(task);
  // An update that is skipped leaves the old data, so the task also counts as a reader.
  if (task.updates) task.reads.push_back(y.resource());
  if (recorder) recorder->writes(y);
  task.lane = x.device() == y.device() ? compute_lane(state, task) : inward ? state.copy_in_lane : state.copy_out_lane;
  // The resource protects device memory; host memory has to be held. Between devices, the block of x must go only to
  // users that wait for this task: both devices belong to one engine, so it does.
  const auto held = [](const Array& t) { return t.device().is_host() ? t.storage() : t.storage()->host; };
  task.run = [backend = state.backend.get(), x = x.view(), y = y.view(), apart, inward, held_x = held(x),
              held_y = held(y)](const TaskContext& c) {
    auto& context = KernelContext::of_task(c.lane_data);
    if (apart) {
      backend->transfer(context, x, y, !inward);
    } else {
      backend->run(context, kernels::Copy{x, y});
    }
  };
  push_task(state, std::move(task));
  y.storage()->count_write();
  const auto at_once = [&](const Array& host) {
    return !options.non_blocking || host.storage()->read_at_once.load(std::memory_order_relaxed);
  };
  if (to_host && at_once(y)) y.wait();
  // A blocking copy from the host has read its source when it returns, so that the caller may change it.
  if (from_host && at_once(x)) state.engine->wait_unused(x.resource());
}

Array copy_of(const Array& x) {
  Array y = empty_like(x).with_shard(x.shard());
  copy_(x, y);
  return y;
}

Array to_device(const Array& x, Device device, CopyOptions options) {
  check(x.defined(), "to: undefined array");
  if (x.device() == device) return x;
  if (device.is_host()) {
    Array y = empty_host(x.shape(), x.dtype(), x.device()).with_shard(x.shard());
    copy_(x, y, options);
    return y;
  }
  ShardScope scope(x.shard());
  Array y = empty(x.shape(), x.dtype(), device, x.layout());
  copy_(x, y, options);
  return y;
}

Array host_readable(const Array& x) { return x.device().host_visible() ? x : to_device(x, kHost); }

Array empty_host(const Shape& shape, DType dtype, Device device) {
  DeviceState& state = state_of(device, "empty_host");
  View view{nullptr, dtype, Layout::plain, shape};
  if (!state.pinned || view.bytes() == 0) {
    auto storage = make_host_storage(view.bytes());
    view.data = storage->data;
    return {std::move(storage), view};
  }
  Block block = state.pinned->allocate(view.bytes(), LaneId());
  view.data = block.data;
  return {make_block_storage(state.pinned, std::move(block), view.bytes(), Device(), state.engine), view};
}

Array pin(const Array& x, Device device) {
  check(x.defined() && x.device().is_host(), "pin: the array is {}, expected host memory", x);
  DeviceState& state = state_of(device, "pin");
  if (!state.pinned || x.numel() == 0) return x;
  x.wait();
  Array y = empty_host(x.shape(), x.dtype(), device).with_shard(x.shard());
  // Tasks of the block's last user may still read or write it.
  state.engine->wait_unused(y.resource());
  std::memcpy(y.view().data, to_layout(x, Layout::plain).view().data, x.view().bytes());
  return y;
}

Array lend(const Array& x, Device device) {
  if (!x.defined() || !x.device().is_host()) return x;
  const DeviceState& state = state_of(device, "lend");
  check(state.kind == DeviceKind::cpu, "lend: {} to {}, expected a CPU device", x, device.name());
  if (StepRecorder* const recorder = StepRecorder::current()) recorder->refuse("it reads the host's memory");
  const Array lasting = x.storage()->read_at_once.load(std::memory_order_relaxed) ? copy_of(x) : x;
  return Array(lend_host_storage(lasting.storage(), device, state.engine), lasting.view()).with_shard(x.shard());
}

Array readable_from(const Array& x, Device device) {
  if (!x.defined() || x.device() == device) return x;
  const int domain = state_of(device, "copy").memory_domain;
  const bool near = !x.device().is_host() && domain >= 0 && state_of(x.device(), "copy").memory_domain == domain;
  return near ? x : to_device(x, device, {.non_blocking = true});
}

Array concatenate(std::span<const Array> parts, Device device) {
  check(!parts.empty(), "concatenate: no arrays");
  Shape shape = parts[0].shape();
  check(shape.dim() >= 1, "concatenate: the arrays have no axes");
  shape[0] = 0;
  for (const Array& part : parts) {
    Shape expected = part.shape();
    check(expected.dim() == shape.dim() && part.dtype() == parts[0].dtype(),
          "concatenate: {} and {}, expected the same type and number of axes", part, parts[0]);
    shape[0] += part.size(0);
    expected[0] = shape[0];
    check(expected == shape, "concatenate: {} and {}, expected the same shape except on axis 0", part, parts[0]);
  }
  Array all = empty(shape, parts[0].dtype(), device);
  if (device.is_host()) all = all.with_shard(-1);
  std::int64_t row = 0;
  for (const Array& part : parts) {
    copy_(part, narrow(all, row, part.size(0)), {.non_blocking = true});
    row += part.size(0);
  }
  if (device.is_host()) all.wait();
  return all;
}

}  // namespace lockstep::ops
