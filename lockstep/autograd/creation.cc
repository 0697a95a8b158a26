#include "lockstep/autograd/creation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/random.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

void check_shape(std::string_view name, const Shape& shape) {
  for (std::int64_t extent : shape) {
    if (extent == kBatch) fail("{}: kBatch needs a batch: pass like(x)", name);
    check(extent >= 0, "{}: shape {} has a negative extent", name, shape.str());
  }
}

// Makes a tensor with the placement of another one; make(y) fills each part.
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

Tensor filled(std::string_view name, const Shape& shape, const Scalar& value, const TensorOptions& options) {
  check_shape(name, shape);
  const DType dtype = options.dtype.value_or(DType::f32);
  ops::check_holds(name, dtype, value);
  const Array y = ops::empty(shape, dtype, options.device);
  ops::fill_(y, value);
  return y;
}

Tensor filled(std::string_view name, const Shape& shape, const Scalar& value, const Like& like) {
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

RandomKey chosen_key(std::string_view name, const RandomOptions& options) {
  check(!options.seed || !options.key, "{}: a seed and a key are given, expected at most one of them", name);
  if (options.seed) return random_key(*options.seed, {hash_name(name)});
  // Not the key itself, because other functions may draw with it.
  if (options.key) return random_key(options.key->seed, {options.key->stream, hash_name(name)});
  return ops::next_key(options.device, name);
}

Tensor random(std::string_view name, const Shape& shape, const RandomOptions& options, Draw draw) {
  check_shape(name, shape);
  const DType dtype = options.dtype.value_or(DType::f32);
  check_floating(name, dtype);
  const RandomKey key = chosen_key(name, options);
  // Drawn on a host-visible device for devices of all kinds, so that the bits are the same.
  const Device maker = options.device.is_host() ? kHost : state_of(options.device, name).host_visible_device();
  const Array made = ops::empty(shape, dtype, maker);
  draw(made, key);
  return ops::to_device(made, options.device, {.non_blocking = true});
}

Tensor random_like(std::string_view name, const Shape& shape, const Like& like, Draw draw) {
  check_floating(name, like.dtype());
  check(like.x().defined(), "{}: like an undefined tensor", name);
  const int caller = ops::ShardScope::current();  // in per_shard(): that shard
  std::optional<RandomKey> once;                  // one key for all replicas, so that they stay equal
  return make_like(name, shape, like, [&](const Array& y) {
    if (y.numel() == 0) return;  // a shard without samples draws no key in any process
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

// A tensor like x, all of whose elements are random.
Tensor random_as(std::string_view name, const Tensor& x, std::optional<DType> dtype, Draw draw) {
  check(x.defined(), "{}: undefined tensor", name);
  const Like as = like(x.detach(), dtype);
  if (x->kind != Kind::cut) return random_like(name, x.shape(), as, draw);
  check_floating(name, as.dtype());
  std::vector<Array> parts;
  for (std::size_t s = 0; s < x->parts.size(); ++s) {
    const ops::ShardScope scope(x->at->slots()[s].shard);
    parts.push_back(ops::empty(x->parts[s].shape(), as.dtype(), x->parts[s].device()));
    if (parts.back().numel() > 0) draw(parts.back(), ops::next_key(parts.back().device(), name));
  }
  return cut_tensor(x->at, x->cut, std::move(parts));
}

// Makes a tensor of whole numbers that the host has drawn.
Tensor whole_numbers(std::string_view name, const std::vector<std::int64_t>& numbers, const Shape& shape,
                     const RandomOptions& options) {
  const DType dtype = options.dtype.value_or(DType::i64);
  if (dtype != DType::i64) {
    for (const std::int64_t number : numbers) ops::check_holds(name, dtype, static_cast<double>(number));
  }
  return Tensor::from(numbers, shape, {.dtype = dtype, .device = options.device});
}

void check_weights(const Tensor& weights, std::int64_t num_samples, bool replacement) {
  const std::int64_t classes = weights.size(-1);
  for (const Tensor& part : weights->kind == Kind::cut ? weights.shards() : std::vector{weights.detach()}) {
    const std::vector<double> all = part.to(DType::f64).to_vector<double>();
    std::int64_t positive = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      check(std::isfinite(all[i]) && all[i] >= 0, "multinomial: a weight is {}, expected finite ones of at least 0",
            all[i]);
      if (all[i] > 0) ++positive;
      if ((static_cast<std::int64_t>(i) + 1) % classes != 0) continue;
      check(positive >= (replacement ? 1 : num_samples),
            "multinomial: {} classes of a row have a weight above 0, expected {}", positive,
            replacement ? "one" : "as many as samples without replacement, " + std::to_string(num_samples));
      positive = 0;
    }
  }
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
  dtype_ = floating ? DType::f32 : whole ? DType::i64 : DType::boolean;
}

void check_tensor_number(const Scalar& number, DType dtype) { ops::check_holds("tensor", dtype, number); }

Tensor tensor(const TensorValues& values, const TensorOptions& options) {
  TensorOptions chosen = options;
  if (!chosen.dtype) chosen.dtype = values.dtype_;
  if (values.dtype_ == DType::f32) {
    for (const double number : values.numbers_) check_tensor_number(number, *chosen.dtype);
    return Tensor::from(values.numbers_, values.shape_, chosen);
  }
  for (const std::int64_t number : values.whole_) check_tensor_number(number, *chosen.dtype);
  return Tensor::from(values.whole_, values.shape_, chosen);
}

Tensor from_blob_of(const void* data, const Shape& shape, DType dtype, bool writable,
                    std::function<void(const void*)> release) {
  check_shape("from_blob", shape);
  // Nobody writes through a read-only storage.
  View view{const_cast<void*>(data), dtype, Layout::plain, shape};
  check(data != nullptr || view.bytes() == 0, "from_blob: no address, expected {} bytes for {}", view.bytes(), shape);
  check(reinterpret_cast<std::uintptr_t>(data) % item_size(dtype) == 0,
        "from_blob: address {} is not a multiple of the size of {}", data, name(dtype));
  std::shared_ptr<Storage> storage(new Storage(), [data, release = std::move(release)](Storage* s) {
    delete s;
    if (release) release(data);
  });
  storage->data = view.data;
  storage->bytes = view.bytes();
  storage->foreign = true;
  if (!writable) {
    storage->read_only = "from_blob: the memory is const, expected memory that may be written, or a copy of it";
  }
  return Array(std::move(storage), view);
}

Tensor full(const Shape& shape, const Scalar& value, const TensorOptions& options) {
  return filled("full", shape, value, options);
}
Tensor full(const Shape& shape, const Scalar& value, const Like& like) { return filled("full", shape, value, like); }
Tensor zeros(const Shape& shape, const TensorOptions& options) { return filled("zeros", shape, 0, options); }
Tensor zeros(const Shape& shape, const Like& like) { return filled("zeros", shape, 0, like); }
Tensor ones(const Shape& shape, const TensorOptions& options) { return filled("ones", shape, 1, options); }
Tensor ones(const Shape& shape, const Like& like) { return filled("ones", shape, 1, like); }

Tensor rand(const Shape& shape, const RandomOptions& options) { return random("rand", shape, options, draw_uniform); }
Tensor randn(const Shape& shape, const RandomOptions& options) { return random("randn", shape, options, draw_normal); }
Tensor rand(const Shape& shape, const Like& like) { return random_like("rand", shape, like, draw_uniform); }
Tensor randn(const Shape& shape, const Like& like) { return random_like("randn", shape, like, draw_normal); }

Tensor rand_like(const Tensor& x, std::optional<DType> dtype) { return random_as("rand_like", x, dtype, draw_uniform); }
Tensor randn_like(const Tensor& x, std::optional<DType> dtype) {
  return random_as("randn_like", x, dtype, draw_normal);
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const RandomOptions& options) {
  check_shape("randint", shape);
  check(low < high, "randint: from {} to {}, expected a larger end", low, high);
  const std::uint64_t bound = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  const RandomKey key = chosen_key("randint", options);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + random_below(key, i, bound));
  return whole_numbers("randint", numbers, shape, options);
}
Tensor randint(std::int64_t high, const Shape& shape, const RandomOptions& options) {
  return randint(0, high, shape, options);
}

Tensor randperm(std::int64_t n, const RandomOptions& options) {
  check(n >= 0, "randperm: {} numbers, expected at least 0", n);
  const RandomKey key = chosen_key("randperm", options);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (std::uint64_t i = numbers.size(); i > 1; --i) std::swap(numbers[i - 1], numbers[random_below(key, i, i)]);
  return whole_numbers("randperm", numbers, {n}, options);
}

Tensor bernoulli(const Tensor& x) {
  check(x.defined(), "bernoulli: undefined tensor");
  check_floating("bernoulli", x.dtype());
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor p = x.detach().to(dtype);
  const Tensor drawn = lt(random_as("bernoulli", p, dtype, draw_uniform), p);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return where(logical_and(ge(p, 0), le(p, 1)), drawn.to(x.dtype()), nan);
}

// The class with the largest quotient of its weight and an exponential random number is one draw by the weights. The
// classes with the next largest quotients are the further draws without replacement.
Tensor multinomial(const Tensor& weights, std::int64_t num_samples, bool replacement) {
  check(weights.defined(), "multinomial: undefined tensor");
  check(weights.dim() == 1 || weights.dim() == 2, "multinomial: the weights are {}, expected [C] or [N, C]", weights);
  check_floating("multinomial", weights.dtype());
  check(num_samples >= 1, "multinomial: {} samples, expected at least 1", num_samples);
  check(weights->kind != Kind::cut || weights->cut.axis == 0,
        "multinomial: the samples of {} are on axis {}, expected axis 0: gather() puts them together", weights,
        weights->cut.axis);
  check_weights(weights, num_samples, replacement);
  Tensor p = weights.detach().to(DType::f64);
  if (replacement) {
    const Shape& shape = p.shape();
    p = expand(unsqueeze(p, -2),
               shape.dim() == 1 ? Shape{num_samples, shape[0]} : Shape{shape[0], num_samples, shape[1]});
  }
  // e is above 0, so that its logarithm is finite. Quotients are logarithms, because weights may be denormal numbers.
  const Tensor e = clamp(negate(log1p(negate(random_as("multinomial", p, DType::f64, draw_uniform)))), 0x1p-25);
  const Tensor quotients = where(gt(p, 0), log(p) - log(e), -std::numeric_limits<double>::infinity());
  if (replacement) return argmax(quotients, -1);
  return topk(quotients, num_samples, -1).indices;
}

Tensor eye(std::int64_t n, const TensorOptions& options) { return eye(n, n, options); }

Tensor eye(std::int64_t n, std::int64_t m, const TensorOptions& options) {
  check_shape("eye", {n, m});
  const DType dtype = options.dtype.value_or(DType::f32);
  const Array row = ops::reshape(ops::arange(n, DType::i64, options.device), {n, 1});
  const Array diagonal = ops::compare(CompareOp::eq, row, ops::arange(m, DType::i64, options.device));
  return ops::convert(diagonal, dtype, Layout::plain);
}

namespace {

// Number of elements from start to end, which is excluded, by step.
std::int64_t count_of_wholes(const Scalar& start, const Scalar& end, const Scalar& step) {
  const auto from = start.to<std::int64_t>(), to = end.to<std::int64_t>(), by = step.to<std::int64_t>();
  check(by != 0 && (from == to || (from < to) == (by > 0)),
        "arange: from {} to {} by {}, expected a step that leads from the start to the end", start, end, step);
  if (from == to) return 0;
  // Modulo 2^64, because the distance may exceed int64.
  const auto u = static_cast<std::uint64_t>(from), v = static_cast<std::uint64_t>(to);
  const std::uint64_t distance = by > 0 ? v - u : u - v;
  const std::uint64_t size = by > 0 ? static_cast<std::uint64_t>(by) : 0 - static_cast<std::uint64_t>(by);
  const std::uint64_t count = (distance - 1) / size + 1;
  check(count < std::uint64_t{1} << 62, "arange: from {} to {} by {}, expected fewer elements", start, end, step);
  return static_cast<std::int64_t>(count);
}

}  // namespace

Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const TensorOptions& options) {
  const bool whole = start.is_whole() && end.is_whole() && step.is_whole();
  const DType dtype = options.dtype.value_or(whole ? DType::i64 : DType::f32);
  std::int64_t n = 0;
  if (whole) {
    n = count_of_wholes(start, end, step);
  } else {
    const double count = std::ceil((end.to<double>() - start.to<double>()) / step.to<double>());
    check(std::isfinite(count) && count >= 0 && count < 0x1p62,
          "arange: from {} to {} by {}, expected a step that leads from the start to the end", start, end, step);
    n = static_cast<std::int64_t>(count);
  }
  if (n > 0 && !is_floating(dtype)) {
    ops::check_holds("arange", dtype, whole ? start : std::trunc(start.to<double>()));
    ops::check_holds("arange", dtype,
                     whole ? Scalar(arange_element(start.to<std::int64_t>(), step.to<std::int64_t>(), n - 1))
                           : std::trunc(arange_element(start.to<double>(), step.to<double>(), n - 1)));
  }
  return ops::arange(n, dtype, options.device, start, step);
}

}  // namespace lockstep
