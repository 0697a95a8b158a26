// Indexing is composed of slices, index_select(), and, for writing at index tensors, where().
#include "lockstep/autograd/indexing.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/index_list.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/shape.h"
#include "lockstep/runtime/step_recorder.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

constexpr std::string_view kIndex = "index", kIndexPut = "index_put_";

// Refuses to record the step, because the host reads values that decide what follows.
void refuse_recording(std::string_view what) {
  if (StepRecorder* const recorder = StepRecorder::current()) {
    recorder->refuse(fmt::format("{} reads a mask or indices, which differ in the next step", what));
  }
}

// Indices, in plain order, of a mask's true elements, on x's device. Waits.
Tensor places_of(const Tensor& mask, const Tensor& x) {
  if (mask->kind == Kind::cut) fail_across_batch(kIndex, mask, "and the number that each shard chooses would differ");
  refuse_recording(kIndex);
  const std::vector<std::uint8_t> holds = mask.to_vector<std::uint8_t>();
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < holds.size(); ++i) {
    if (holds[i] != 0) places.push_back(static_cast<std::int64_t>(i));
  }
  const auto count = static_cast<std::int64_t>(places.size());
  return beside(x, Tensor::from(places, {count}));
}

// Negative indices count from the end.
Tensor from_start(const Tensor& index, std::int64_t size) { return where(lt(index, 0), index + size, index); }

// y[.., index, ..] along one axis, which the index's axes replace.
Tensor take_index(const Tensor& y, int axis, const Tensor& index) {
  const Tensor taken = index_select(y, axis, index.reshape({index.numel()}));
  if (index.dim() == 0) return select(taken, axis, 0);
  return index.dim() == 1 ? taken : unflatten(taken, axis, index.shape());
}

Shape broadcast_of(const std::vector<Tensor>& tensors) {
  Shape all = tensors[0].shape();
  for (const Tensor& t : tensors) {
    const Shape& a = all.dim() >= t.dim() ? all : t.shape();
    const Shape& b = all.dim() >= t.dim() ? t.shape() : all;
    Shape both = a;
    for (int i = 1; i <= b.dim(); ++i) {
      check(a[-i] == b[-i] || a[-i] == 1 || b[-i] == 1, "index: index tensors of {} and {} do not broadcast",
            tensors[0].shape(), t.shape());
      if (a[-i] == 1) both[-i] = b[-i];
    }
    all = both;
  }
  return all;
}

}  // namespace

class Indexer {
 public:
  static Tensor read(const Tensor& x, std::span<const TensorIndex> indices) {
    check(x.defined(), "index: undefined tensor");
    int used = 0, ellipses = 0;
    for (const TensorIndex& i : indices) {
      ellipses += std::holds_alternative<EllipsisIndex>(i.index_) ? 1 : 0;
      if (const auto* t = std::get_if<Tensor>(&i.index_)) {
        check(t->defined() && (t->dtype() == DType::i64 || is_mask(t->dtype())),
              "index: an index is {}, expected i64, or a mask (bool or u8)", *t);
        used += is_mask(t->dtype()) ? t->dim() : 1;
      } else if (std::holds_alternative<Slice>(i.index_) || std::holds_alternative<std::int64_t>(i.index_)) {
        ++used;
      }
    }
    check(used <= x.dim() && ellipses <= 1, "index: {} axes and {} ellipses for shape {}, expected at most {} and one",
          used, ellipses, x.shape(), x.dim());
    Tensor y = x;
    int axis = 0;
    std::vector<int> axes;  // of index tensors
    std::vector<Tensor> chosen;
    for (const TensorIndex& i : indices) {
      if (std::holds_alternative<std::nullopt_t>(i.index_)) {
        y = unsqueeze(y, axis++);
      } else if (std::holds_alternative<EllipsisIndex>(i.index_)) {
        axis += x.dim() - used;
      } else if (const auto* s = std::get_if<Slice>(&i.index_)) {
        if (s->start || s->stop || s->step != 1) y = slice(y, axis, s->start, s->stop, s->step);
        ++axis;
      } else if (const auto* position = std::get_if<std::int64_t>(&i.index_)) {
        y = select(y, axis, *position);
      } else {
        Tensor index = std::get<Tensor>(i.index_);
        if (is_mask(index.dtype())) {
          if (index.dim() == 0) {  // a mask of all of y makes an axis of extent 1 or 0
            y = unsqueeze(y, axis);
            index = index.reshape({1});
          }
          const int last = axis + index.dim() - 1;
          for (int d = axis; d <= last; ++d) {
            check(y.size(d) == index.size(d - axis),
                  "index: a mask of {} for axes {} to {} of {}, expected their extents", index.shape(), axis, last,
                  y.shape());
          }
          index = places_of(index, y);
          if (last > axis) y = lockstep::flatten(y, axis, last);
        }
        axes.push_back(axis++);
        chosen.push_back(std::move(index));
      }
    }
    if (chosen.empty()) return y;
    for (std::size_t k = 0; k < chosen.size(); ++k) chosen[k] = from_start(beside(y, chosen[k]), y.size(axes[k]));
    if (chosen.size() == 1) return take_index(y, axes[0], chosen[0]);
    return together(y, axes, chosen);
  }

 private:
  // Takes elements by several index tensors: merges their axes into one axis, and the index tensors into one.
  static Tensor together(Tensor y, std::vector<int> axes, std::vector<Tensor>& chosen) {
    const auto count = static_cast<int>(axes.size());
    if (axes.back() - axes.front() != count - 1) {
      std::vector<int> order = axes;
      for (int d = 0; d < y.dim(); ++d) {
        if (std::ranges::find(axes, d) == axes.end()) order.push_back(d);
      }
      y = permute(y, order);
      std::iota(axes.begin(), axes.end(), 0);
    }
    const Shape shape = broadcast_of(chosen);
    Tensor place, inside;
    std::int64_t all = 1;
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      const std::int64_t size = y.size(axes[k]);
      const Tensor index = expand(chosen[k], shape), here = logical_and(ge(index, 0), lt(index, size));
      place = k == 0 ? index : place * size + index;
      inside = k == 0 ? here : logical_and(inside, here);
      all *= size;
    }
    // An index outside its axis must not reach another row: the merged index is then outside, too, and fails the task.
    place = where(inside, place, all);
    return take_index(lockstep::flatten(y, axes.front(), axes.back()), axes.front(), place);
  }

 public:
  static bool is_basic(std::span<const TensorIndex> indices) {
    return std::ranges::none_of(indices, [](const TensorIndex& i) { return std::holds_alternative<Tensor>(i.index_); });
  }

  // The mask that is the only index, with x's number of axes; undefined for other indices.
  static Tensor mask_of(const Tensor& x, std::span<const TensorIndex> indices) {
    const auto* mask = indices.size() == 1 ? std::get_if<Tensor>(&indices[0].index_) : nullptr;
    if (!mask || !mask->defined() || !is_mask(mask->dtype()) || (*mask)->kind == Kind::cut) return {};
    Shape shape = x.shape();
    if (mask->dim() > shape.dim()) return {};
    for (int axis = 0; axis < shape.dim(); ++axis) {
      if (axis >= mask->dim()) shape[axis] = 1;
      if (axis < mask->dim() && mask->size(axis) != shape[axis]) return {};
    }
    return mask->reshape(shape);
  }

  // The ranges that basic indices, which fit the shape, choose along each axis.
  static std::vector<ops::SliceRange> ranges(const Shape& shape, std::span<const TensorIndex> indices) {
    std::vector<ops::SliceRange> ranges;
    const auto take_all = [&](int count) {
      for (; count > 0; --count) ranges.push_back({.count = shape[static_cast<int>(ranges.size())]});
    };
    const auto used = std::ranges::count_if(indices, [](const TensorIndex& i) {
      return std::holds_alternative<Slice>(i.index_) || std::holds_alternative<std::int64_t>(i.index_);
    });
    for (const TensorIndex& i : indices) {
      if (std::holds_alternative<EllipsisIndex>(i.index_)) take_all(shape.dim() - static_cast<int>(used));
      if (!std::holds_alternative<Slice>(i.index_) && !std::holds_alternative<std::int64_t>(i.index_)) continue;
      const std::int64_t size = shape[static_cast<int>(ranges.size())];
      if (const auto* s = std::get_if<Slice>(&i.index_)) {
        ranges.push_back(ops::resolve_slice(size, s->start, s->stop, s->step));
      } else {
        const std::int64_t place = std::get<std::int64_t>(i.index_);
        ranges.push_back({.start = place < 0 ? place + size : place, .count = 1});
      }
    }
    take_all(shape.dim() - static_cast<int>(ranges.size()));
    return ranges;
  }
};

Tensor Tensor::index(std::initializer_list<TensorIndex> indices) const {
  return Indexer::read(*this, {indices.begin(), indices.size()});
}

void Tensor::index_put_(std::initializer_list<TensorIndex> indices, const Scalar& value) const {
  check(defined(), "index_put_: undefined tensor");
  index_put_(indices, full({}, value, {.dtype = dtype(), .device = device()}));
}

void Tensor::index_put_(std::initializer_list<TensorIndex> indices, const Tensor& value) const {
  lockstep::index_put_(*this, {indices.begin(), indices.size()}, value);
}

Tensor index(const Tensor& x, std::span<const TensorIndex> indices) { return Indexer::read(x, indices); }

Tensor index_put(const Tensor& x, std::span<const TensorIndex> indices, const Tensor& value) {
  check(x.defined() && value.defined(), "index_put: undefined tensor");
  check(x->kind != Kind::cut, "index_put: {} is cut over the batch, expected it in one piece: gather() it", x);
  // One value for all elements of a mask: the host need not know their indices, so nothing waits.
  if (const Tensor mask = Indexer::mask_of(x, indices); mask.defined() && value.numel() == 1) {
    return masked_fill(x, beside(x, mask), cast(beside(x, value), x.dtype()).reshape({}));
  }
  if (!Indexer::is_basic(indices)) refuse_recording(kIndexPut);
  const Tensor places = Indexer::read(arange(x.numel(), {.device = x.device()}).reshape(x.shape()), indices);
  if (places.numel() == 0) return clone(x);
  const std::vector<std::int64_t> to = places.to_vector<std::int64_t>();
  // For each element of x, the index of the element of `value` that it gets, or -1.
  std::vector<std::int64_t> from(static_cast<std::size_t>(x.numel()), -1);
  for (std::size_t i = 0; i < to.size(); ++i) from[static_cast<std::size_t>(to[i])] = static_cast<std::int64_t>(i);
  const Tensor source = beside(x, Tensor::from(from, {x.numel()}));
  const Tensor values = lockstep::expand(cast(beside(x, value), x.dtype()), places.shape()).reshape({places.numel()});
  const Tensor written = lockstep::index_select(values, 0, lockstep::maximum(source, lockstep::zeros_like(source)));
  return lockstep::where(lockstep::lt(source, 0), x.reshape({x.numel()}), written).reshape(x.shape());
}

void index_put_(const Tensor& to, std::span<const TensorIndex> indices, const Tensor& value) {
  check(to.defined() && value.defined(), "index_put_: undefined tensor");
  if (grad_enabled()) {
    check(!to.requires_grad(),
          "index_put_: {} requires a gradient, but a write in place records none: detach() it, or write under a "
          "NoGradGuard",
          to);
    check(!value.requires_grad(),
          "index_put_: {} needs a gradient, but a write in place records none: detach() it, or use where()", value);
  }
  if (to->kind == Kind::cut) fail_across_batch(kIndexPut, to, "and a write would need them in one piece");
  const NoGradGuard no_grad;
  const Tensor x = to->array();  // the first replica
  if (Indexer::is_basic(indices) && to->parts.size() == 1) {
    const Tensor part = Indexer::read(x, indices);
    if (part.numel() == 0) return;
    const auto values = [&] { return lockstep::expand(cast(beside(x, value.detach()), x.dtype()), part.shape()); };
    if (part->storage() == x->storage()) return part.copy_from(values());
    // A trace has no operation that writes only some elements.
    if (!ForwardTrace::current() && x.layout() == Layout::plain) {
      return ops::write_slices_(values()->array(), x->array(), Indexer::ranges(x.shape(), indices));
    }
  }
  const Tensor written = index_put(x, indices, value.detach());
  to.copy_from(written);
}

const Tensor& IndexedTensor::written() const {
  if (!of_temporary_ || !x_.defined() || x_->kind != Kind::whole || !x_->storage()) return x_;
  const std::shared_ptr<Storage>& storage = x_->storage();
  // Besides x_, there is the temporary handle. The storage belongs to the tensor, and a slice shares it.
  const Tensor& elements = *this;
  const bool shares = elements.defined() && elements->kind == Kind::whole && elements->storage() == storage;
  check(TensorImpl::handles(x_) > 2 || storage->foreign || storage->host || storage.use_count() > (shares ? 2 : 1),
        "x[i] = ...: x is a temporary copy, {}, so nobody would see what is written, expected a tensor with a name",
        x_);
  return x_;
}

}  // namespace lockstep
