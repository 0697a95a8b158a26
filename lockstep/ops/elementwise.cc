#include "lockstep/ops/elementwise.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {

std::string_view name(UnaryOp op) {
  switch (op) {
    case UnaryOp::negate: return "negate";
    case UnaryOp::exp: return "exp";
    case UnaryOp::log: return "log";
    case UnaryOp::sqrt: return "sqrt";
    case UnaryOp::square: return "square";
    case UnaryOp::abs: return "abs";
    case UnaryOp::relu: return "relu";
    case UnaryOp::gelu: return "gelu";
    case UnaryOp::sigmoid: return "sigmoid";
    case UnaryOp::tanh: return "tanh";
  }
  return "unary";
}

std::string_view name(BinaryOp op) {
  switch (op) {
    case BinaryOp::add: return "add";
    case BinaryOp::subtract: return "subtract";
    case BinaryOp::multiply: return "multiply";
    case BinaryOp::divide: return "divide";
  }
  return "binary";
}

Shape broadcast_shape(std::string_view what, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& other = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  for (int i = 1; i <= other.rank(); ++i) {
    if (other[-i] == out[-i] || other[-i] == 1) continue;
    check(out[-i] == 1, "{}: shapes {} and {} do not broadcast", what, a.str(), b.str());
    out[-i] = other[-i];
  }
  return out;
}

Array unary(UnaryOp op, const Array& x) {
  check_on_device(name(op), x);
  check(is_floating(x.dtype()), "{}: input is {}, expected a floating type", name(op), lockstep::name(x.dtype()));
  Array y = empty_like(x);
  launch(name(op), {x}, {y}, [op, x = x.view(), y = y.view()](Backend& b, KernelContext& c) {
    b.elementwise().unary(c, op, x, y);
  });
  return y;
}

Array unary_backward(UnaryOp op, const Array& saved, const Array& dy) {
  check_same(name(op), saved, dy);
  Array g = to_layout(dy, saved.layout());
  Array dx = empty_like(saved);
  launch(name(op), {saved, g}, {dx},
         [op, s = saved.view(), dy = g.view(), dx = dx.view()](Backend& b, KernelContext& c) {
           b.elementwise().unary_backward(c, op, s, dy, dx);
         });
  return dx;
}

Array binary(BinaryOp op, const Array& a, const Array& b) {
  check_on_device(name(op), a);
  check_on_device(name(op), b);
  check(a.dtype() == b.dtype(), "{}: {} and {}, expected one type", name(op), a.describe(), b.describe());
  bool same = a.shape() == b.shape();
  Array x = same ? a : to_layout(a, Layout::plain);
  Array z = to_layout(b, x.layout());
  Array out = same ? empty_like(x) : empty(broadcast_shape(name(op), a.shape(), b.shape()), a.dtype(), a.device());
  launch(name(op), {x, z}, {out},
         [op, x = x.view(), z = z.view(), out = out.view()](Backend& b, KernelContext& c) {
           b.elementwise().binary(c, op, x, z, out);
         });
  return out;
}

Array affine(const Array& x, double scale, double shift) {
  check_on_device("affine", x);
  check(is_floating(x.dtype()), "affine: input is {}, expected a floating type", lockstep::name(x.dtype()));
  Array y = empty_like(x);
  launch("affine", {x}, {y}, [=, x = x.view(), y = y.view()](Backend& b, KernelContext& c) {
    b.elementwise().affine(c, scale, shift, x, y);
  });
  return y;
}

void fill_(const Array& y, double value) {
  launch("fill", {}, {y}, [value, y = y.view()](Backend& b, KernelContext& c) { b.elementwise().fill(c, value, y); });
}

void add_(const Array& y, const Array& x) {
  check_same("add", y, x);
  Array z = to_layout(x, y.layout());
  launch("add", {y, z}, {y}, [y = y.view(), z = z.view()](Backend& b, KernelContext& c) {
    b.elementwise().binary(c, BinaryOp::add, y, z, y);
  });
}

}  // namespace lockstep::ops
