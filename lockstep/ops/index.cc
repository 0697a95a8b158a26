#include "lockstep/ops/index.h"

#include <string_view>

#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/shape.h"

namespace lockstep::ops {
namespace {

Shape with_extent(Shape shape, int axis, std::int64_t extent) {
  shape[axis] = extent;
  return shape;
}

// An array and an index, as kernels take them: [outer, along, inner].
struct Indexed {
  Array x, index;
  Shape shape;  // that both broadcast to, with extent 1 on the axis

  Indexed(std::string_view what, const Array& source, const Array& numbers, int axis) {
    check_defined(what, source);
    check_defined(what, numbers);
    check(numbers.dtype() == DType::i64, "{}: the index is {}, expected i64", what, name(numbers.dtype()));
    check(source.shape().dim() == numbers.shape().dim() && axis < source.shape().dim(),
          "{}: the index is {} for {}, expected as many axes", what, numbers.shape(), source.shape());
    const Shape rest = with_extent(numbers.shape(), axis, 1);
    shape = broadcast_shape(what, with_extent(source.shape(), axis, 1), rest);
    x = around_axis(expand(source, with_extent(shape, axis, source.size(axis))), axis);
    // An index that is the same along all other axes need not be expanded.
    const bool one = rest.numel() == 1;
    index = around_axis(one ? numbers : expand(numbers, with_extent(shape, axis, numbers.size(axis))), axis);
  }
};

}  // namespace

Array take_along_axis(const Array& x, const Array& index, int axis) {
  const Indexed in("take_along_axis", x, index, axis);
  Array y = empty(with_extent(in.shape, axis, index.size(axis)), x.dtype(), x.device());
  launch("take", {in.x, in.index}, {y}, kernels::Take{in.x.view(), in.index.view(), around_axis(y, axis).view()});
  return y;
}

Array scatter_sum(const Array& x, const Array& index, int axis, std::int64_t extent) {
  check(is_floating(x.dtype()), "scatter_add: the source is {}, expected a floating type", name(x.dtype()));
  check(x.shape().dim() == index.shape().dim() && x.size(axis) == index.size(axis),
        "scatter_add: the index is {} for a source of {}, expected equal extents on axis {}", index.shape(), x.shape(),
        axis);
  const Indexed in("scatter_add", x, index, axis);
  Array y = empty(with_extent(in.shape, axis, extent), x.dtype(), x.device());
  launch("scatter add", {in.x, in.index}, {y},
         kernels::ScatterSum{in.x.view(), in.index.view(), around_axis(y, axis).view()});
  return y;
}

Array scatter(const Array& x, const Array& index, const Array& source, int axis) {
  check(x.dtype() == source.dtype(), "scatter: {} and a source of {}, expected one type: cast() one of them", x,
        source);
  check(source.shape().dim() == index.shape().dim() && source.size(axis) == index.size(axis),
        "scatter: the index is {} for a source of {}, expected equal extents on axis {}", index.shape(), source.shape(),
        axis);
  const Indexed in("scatter", source, index, axis);
  check(x.shape() == with_extent(in.shape, axis, x.size(axis)), "scatter: the index is {} for {}, expected its extents",
        index.shape(), x.shape());
  Array y = copy_of(to_layout(x, Layout::plain));
  launch("scatter", {in.x, in.index, y}, {y},
         kernels::Scatter{in.x.view(), in.index.view(), around_axis(y, axis).view()});
  return y;
}

}  // namespace lockstep::ops
