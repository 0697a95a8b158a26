#include "lockstep/ops/pool.h"

namespace lockstep::ops {

Shape pooled_shape(std::string_view what, const Array& x, const Pool2dOptions& o) {
  check_dim(what, "input", x, 4, "(N, C, H, W)");
  check(is_floating(x.dtype()), "{}: input is {}, expected a floating type", what, name(x.dtype()));
  check(o.dilation == HeightWidth(1), "{}: dilation {} x {}, expected 1", what, o.dilation[0], o.dilation[1]);
  Shape shape = x.shape();
  for (std::size_t i = 0; i < 2; ++i) {
    int axis = 2 + static_cast<int>(i);
    check(o.kernel_size[i] >= 1 && o.stride[i] >= 1 && o.padding[i] >= 0 && o.padding[i] <= o.kernel_size[i] / 2,
          "{}: kernel {}, stride {}, padding {}, expected at least 1, 1 and 0 to half the kernel", what,
          o.kernel_size[i], o.stride[i], o.padding[i]);
    check_window(what, {o.kernel_size[i], o.stride[i], o.padding[i]});
    std::int64_t reach = x.size(axis) + 2 * o.padding[i] - o.kernel_size[i];
    check(reach >= 0, "{}: the window ({} wide) does not fit the padded input ({} wide)", what, o.kernel_size[i],
          x.size(axis) + 2 * o.padding[i]);
    shape[axis] = reach / o.stride[i] + 1;
    const std::int64_t next = shape[axis] * o.stride[i] - o.padding[i];  // where one more window would begin
    if (o.ceil_mode && reach % o.stride[i] != 0 && next < x.size(axis)) ++shape[axis];
  }
  return shape;
}

MaxPoolResult max_pool2d(const Array& x, const Pool2dOptions& options) {
  Shape shape = pooled_shape("max_pool2d", x, options);
  MaxPoolResult result{empty(shape, x.dtype(), x.device(), x.layout()),
                       empty(shape, DType::i64, x.device(), x.layout())};
  launch("max pool", {x}, {result.y, result.where},
         kernels::MaxPool{options, x.view(), result.y.view(), result.where.view()});
  return result;
}

Array global_avg_pool2d(const Array& x) {
  check_dim("global_avg_pool2d", "input", x, 4, "(N, C, H, W)");
  check(is_floating(x.dtype()), "global_avg_pool2d: input is {}, expected a floating type", name(x.dtype()));
  check(x.size(2) > 0 && x.size(3) > 0, "global_avg_pool2d: input {} has no pixels", x.shape());
  Array y = empty({x.size(0), x.size(1), 1, 1}, x.dtype(), x.device());
  launch("global avg pool", {x}, {y}, kernels::GlobalAvgPool{x.view(), y.view()});
  return y;
}

Array global_avg_pool2d_backward(const Array& dy, const Shape& x_shape, Layout layout) {
  Array g = to_layout(dy, Layout::plain);
  Array dx = empty(x_shape, dy.dtype(), dy.device(), layout);
  launch("global avg pool backward", {g}, {dx}, kernels::GlobalAvgPoolBackward{g.view(), dx.view()});
  return dx;
}

}  // namespace lockstep::ops
