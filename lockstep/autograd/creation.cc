#include "lockstep/autograd/creation.h"

#include <cmath>
#include <functional>

#include "lockstep/autograd/placement.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/random.h"

namespace lockstep {
namespace {

template <typename T>
T as_element(double value) {
  if constexpr (is_half<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Element i in plain order becomes value(i).
template <typename Value>
void fill_on_host(const Array& y, const Value& value) {
  visit_dtype(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < y.numel(); ++i) y.view().as<T>()[i] = as_element<T>(value(i));
  });
}

void check_shape(std::string_view name, const Shape& shape) {
  for (std::int64_t extent : shape) {
    if (extent == kBatch) fail("{}: kBatch needs a batch: pass like(x)", name);
    check(extent >= 0, "{}: shape {} has a negative extent", name, shape.str());
  }
}

Array allocate(const Shape& shape, DType dtype, Device device) {
  return device.is_host() ? Array::host(shape, dtype) : ops::empty(shape, dtype, device);
}

void fill(const Array& y, double value) {
  if (y.device().is_host()) {
    fill_on_host(y, [&](std::int64_t) { return value; });
  } else {
    ops::fill_(y, value);
  }
}

// A tensor placed like another one: make(y) fills each part of it.
Tensor make_like(std::string_view name, const Shape& shape, const Like& like,
                 const std::function<void(const Array&)>& make) {
  const Tensor& x = like.x();
  check(x.defined(), "{}: like an undefined tensor", name);
  int axis = -1;
  for (int i = 0; i < shape.dim(); ++i) {
    if (shape[i] == kBatch) {
      check(axis < 0, "{}: kBatch is axis {} and axis {} of the shape, expected it once", name, axis, i);
      axis = i;
    } else {
      check(shape[i] >= 0, "{}: axis {} of the shape is {}, expected at least 0, or kBatch", name, i, shape[i]);
    }
  }
  const auto part = [&](std::int64_t samples, Device device) {
    Shape extents = shape;
    if (axis >= 0) extents[axis] = samples;
    Array y = allocate(extents, like.dtype(), device);
    make(y);
    return y;
  };
  const auto& at = x->at;
  if (x->kind == Kind::whole) {
    check(axis < 0 || at || x.shape().dim() > 0, "{}: kBatch with like({}), which has no axis of samples", name,
          x.describe());
    Array y = part(axis < 0 ? 0 : at ? at->samples() : x.size(0), x.device());
    return at ? shard_tensor(at, std::move(y)) : Tensor(std::move(y));
  }
  check(axis < 0 || at, "{}: kBatch with like({}), which has no samples: pass like() of a batch", name, x.describe());
  std::vector<Array> parts;
  if (axis >= 0) {
    for (const Slot& slot : at->slots()) {
      const ops::ShardScope scope(slot.shard);
      parts.push_back(part(at->rows_of(slot.shard), slot.device));
    }
    return cut_tensor(at, {.axis = axis}, std::move(parts));
  }
  const ops::ShardScope scope(-1);
  for (Device device : x.devices()) parts.push_back(part(0, device));
  return replicated_tensor(std::move(parts), at);
}

Tensor filled(std::string_view name, const Shape& shape, double value, const TensorOptions& options) {
  check_shape(name, shape);
  const DType dtype = options.dtype.value_or(DType::f32);
  ops::check_holds(name, dtype, value);
  const Array y = allocate(shape, dtype, options.device);
  fill(y, value);
  return y;
}

Tensor filled(std::string_view name, const Shape& shape, double value, const Like& like) {
  ops::check_holds(name, like.dtype(), value);
  return make_like(name, shape, like, [value](const Array& y) { fill(y, value); });
}

// Overwrites an array on a device with random numbers.
using Draw = void (*)(const Array&, RandomKey);
void draw_uniform(const Array& y, RandomKey key) { ops::uniform_(y, key, 0, 1); }
void draw_normal(const Array& y, RandomKey key) { ops::normal_(y, key, 0, 1); }

void check_floating(std::string_view name, DType dtype) {
  check(is_floating(dtype), "{}: {} elements, expected a floating type", name, lockstep::name(dtype));
}

template <typename Value>
Tensor random(std::string_view name, const Shape& shape, const RandomOptions& options, Draw draw, const Value& value) {
  check_shape(name, shape);
  check_floating(name, options.dtype);
  check(!options.seed || !options.key, "{}: a seed and a key are given, expected at most one of them", name);
  RandomKey key;
  if (options.seed) {
    key = random_key(*options.seed, {hash_name(name)});
  } else {
    // Not the key itself: other functions may draw by it.
    key = options.key ? random_key(options.key->seed, {options.key->stream, hash_name(name)})
                      : ops::next_key(options.device, name);
  }
  const Array y = allocate(shape, options.dtype, options.device);
  if (options.device.is_host()) {
    fill_on_host(y, [&](std::int64_t i) { return value(key, static_cast<std::uint64_t>(i)); });
    return y;
  }
  // The host makes them for devices of all kinds: the same bits.
  const Device maker = state_of(options.device, name).host_visible_device();
  if (maker == options.device) {
    draw(y, key);
    return y;
  }
  const Array made = ops::empty(shape, options.dtype, maker);
  draw(made, key);
  ops::copy_(made, y, {.non_blocking = true});
  return y;
}

Tensor random_like(std::string_view name, const Shape& shape, const Like& like, Draw draw) {
  check_floating(name, like.dtype());
  check(like.x().defined(), "{}: like an undefined tensor", name);
  if (like.x().device().is_host()) {
    fail("{}: like({}), but host memory has no random state: pass a seed, {}(shape, {{.seed = 1}})", name,
         like.x().describe(), name);
  }
  const int caller = ops::ShardScope::current();  // in per_shard(): that shard
  std::optional<RandomKey> once;                  // of replicas, which stay equal
  return make_like(name, shape, like, [&](const Array& y) {
    if (y.numel() == 0) return;  // a shard without samples draws nothing, in no process
    if (y.shard() >= 0 && caller < 0) {
      draw(y, ops::next_key(y.device(), name));
      return;
    }
    if (!once) {
      const ops::ShardScope scope(caller);
      once = ops::next_key(y.device(), name);
    }
    draw(y, *once);
  });
}

}  // namespace

Tensor full(const Shape& shape, double value, const TensorOptions& options) {
  return filled("full", shape, value, options);
}
Tensor full(const Shape& shape, double value, const Like& like) { return filled("full", shape, value, like); }
Tensor zeros(const Shape& shape, const TensorOptions& options) { return filled("zeros", shape, 0, options); }
Tensor zeros(const Shape& shape, const Like& like) { return filled("zeros", shape, 0, like); }
Tensor ones(const Shape& shape, const TensorOptions& options) { return filled("ones", shape, 1, options); }
Tensor ones(const Shape& shape, const Like& like) { return filled("ones", shape, 1, like); }

Tensor rand(const Shape& shape, const RandomOptions& options) {
  return random("rand", shape, options, draw_uniform, random_uniform);
}
Tensor randn(const Shape& shape, const RandomOptions& options) {
  return random("randn", shape, options, draw_normal, random_normal);
}
Tensor rand(const Shape& shape, const Like& like) { return random_like("rand", shape, like, draw_uniform); }
Tensor randn(const Shape& shape, const Like& like) { return random_like("randn", shape, like, draw_normal); }

Tensor eye(std::int64_t n, const TensorOptions& options) { return eye(n, n, options); }

Tensor eye(std::int64_t n, std::int64_t m, const TensorOptions& options) {
  check_shape("eye", {n, m});
  const DType dtype = options.dtype.value_or(DType::f32);
  if (options.device.is_host()) {
    const Array y = Array::host({n, m}, dtype);
    fill_on_host(y, [m](std::int64_t i) { return i / m == i % m ? 1.0 : 0.0; });
    return y;
  }
  const Array row = ops::reshape(ops::arange(n, DType::i64, options.device), {n, 1});
  const Array diagonal = ops::compare(CompareOp::eq, row, ops::arange(m, DType::i64, options.device));
  return ops::convert(diagonal, dtype, Layout::plain);
}

Tensor arange_of(double start, double end, double step, bool whole, const TensorOptions& options) {
  const double count = std::ceil((end - start) / step);
  check(std::isfinite(count) && count >= 0 && count < 0x1p62,
        "arange: from {} to {} by {}, expected a step that leads from the start to the end", start, end, step);
  const auto n = static_cast<std::int64_t>(count);
  const DType dtype = options.dtype.value_or(whole ? DType::i64 : DType::f32);
  if (n > 0 && !is_floating(dtype)) {
    for (const double element : {start, start + static_cast<double>(n - 1) * step})
      ops::check_holds("arange", dtype, std::trunc(element));
  }
  if (!options.device.is_host()) return ops::arange(n, dtype, options.device, start, step);
  const Array y = Array::host({n}, dtype);
  fill_on_host(y, [=](std::int64_t i) { return start + static_cast<double>(i) * step; });
  return y;
}

}  // namespace lockstep
