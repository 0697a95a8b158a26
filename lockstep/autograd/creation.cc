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

void check_shape(std::string_view name, const Shape& shape) {
  for (std::int64_t extent : shape) {
    if (extent == kBatch) fail("{}: kBatch needs a batch: pass like(x)", name);
    check(extent >= 0, "{}: shape {} has a negative extent", name, shape.str());
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
    Array y = ops::empty(extents, like.dtype(), device);
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
  const Array y = ops::empty(shape, dtype, options.device);
  ops::fill_(y, value);
  return y;
}

Tensor filled(std::string_view name, const Shape& shape, double value, const Like& like) {
  ops::check_holds(name, like.dtype(), value);
  return make_like(name, shape, like, [value](const Array& y) { ops::fill_(y, value); });
}

// Overwrites an array with random numbers.
using Draw = void (*)(const Array&, RandomKey);
void draw_uniform(const Array& y, RandomKey key) { ops::uniform_(y, key, 0, 1); }
void draw_normal(const Array& y, RandomKey key) { ops::normal_(y, key, 0, 1); }

void check_floating(std::string_view name, DType dtype) {
  check(is_floating(dtype), "{}: {} elements, expected a floating type", name, lockstep::name(dtype));
}

Tensor random(std::string_view name, const Shape& shape, const RandomOptions& options, Draw draw) {
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
  // The host makes them for devices of all kinds: the same bits.
  const Device maker = options.device.is_host() ? kHost : state_of(options.device, name).host_visible_device();
  const Array made = ops::empty(shape, options.dtype, maker);
  draw(made, key);
  return ops::to_device(made, options.device, {.non_blocking = true});
}

Tensor random_like(std::string_view name, const Shape& shape, const Like& like, Draw draw) {
  check_floating(name, like.dtype());
  check(like.x().defined(), "{}: like an undefined tensor", name);
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

TensorValues::TensorValues(std::initializer_list<TensorValues> list) {
  const Shape inner = list.size() > 0 ? list.begin()->shape_ : Shape();
  std::vector<std::int64_t> sizes{static_cast<std::int64_t>(list.size())};
  sizes.insert(sizes.end(), inner.begin(), inner.end());
  shape_ = Shape(sizes);
  bool floating = list.size() == 0, whole = false;
  for (const TensorValues& v : list) {
    check(v.shape_ == inner, "tensor: lists of shapes {} and {} beside each other, expected equal ones", inner,
          v.shape_);
    floating = floating || v.dtype_ == DType::f32;
    whole = whole || v.dtype_ == DType::i64;
    numbers_.insert(numbers_.end(), v.numbers_.begin(), v.numbers_.end());
    whole_.insert(whole_.end(), v.whole_.begin(), v.whole_.end());
  }
  dtype_ = floating ? DType::f32 : whole ? DType::i64 : DType::u8;
}

Tensor tensor(const TensorValues& values, const TensorOptions& options) {
  TensorOptions chosen = options;
  if (!chosen.dtype) chosen.dtype = values.dtype_;
  if (values.dtype_ == DType::f32) return Tensor::from(values.numbers_, values.shape_, chosen);
  return Tensor::from(values.whole_, values.shape_, chosen);
}

Tensor full(const Shape& shape, double value, const TensorOptions& options) {
  return filled("full", shape, value, options);
}
Tensor full(const Shape& shape, double value, const Like& like) { return filled("full", shape, value, like); }
Tensor zeros(const Shape& shape, const TensorOptions& options) { return filled("zeros", shape, 0, options); }
Tensor zeros(const Shape& shape, const Like& like) { return filled("zeros", shape, 0, like); }
Tensor ones(const Shape& shape, const TensorOptions& options) { return filled("ones", shape, 1, options); }
Tensor ones(const Shape& shape, const Like& like) { return filled("ones", shape, 1, like); }

Tensor rand(const Shape& shape, const RandomOptions& options) { return random("rand", shape, options, draw_uniform); }
Tensor randn(const Shape& shape, const RandomOptions& options) { return random("randn", shape, options, draw_normal); }
Tensor rand(const Shape& shape, const Like& like) { return random_like("rand", shape, like, draw_uniform); }
Tensor randn(const Shape& shape, const Like& like) { return random_like("randn", shape, like, draw_normal); }

Tensor eye(std::int64_t n, const TensorOptions& options) { return eye(n, n, options); }

Tensor eye(std::int64_t n, std::int64_t m, const TensorOptions& options) {
  check_shape("eye", {n, m});
  const DType dtype = options.dtype.value_or(DType::f32);
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
  return ops::arange(n, dtype, options.device, start, step);
}

}  // namespace lockstep
