#include "lockstep/ops/elementwise.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

Tensor unary(UnaryOp op, const Tensor& x) {
  return lift(ops::name(op), place_as(ops::name(op), x), {x}, [op](const Arrays& in) -> Lifted {
    Array y = ops::unary(op, in[0]);
    return {y, [op, saved = SavedArray(unary_saves_output(op) ? y : in[0])](const PartPass& p, const Array& dy) -> Arrays {
              return {ops::unary_backward(op, saved.get(p.name()), dy)};
            }};
  });
}

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  const bool divides = op == BinaryOp::divide, saves = divides || op == BinaryOp::multiply;
  const bool saves_a = saves && b.requires_grad(), saves_b = saves && (a.requires_grad() || divides);
  return lift(ops::name(op), place_broadcast(ops::name(op), {a, b}), {a, b}, [=](const Arrays& in) -> Lifted {
    Array y = ops::binary(op, in[0], in[1]);
    return {y, [op, saves, x = SavedArray(saves_a, in[0]), z = SavedArray(saves_b, in[1]), a_shape = in[0].shape(),
                b_shape = in[1].shape()](const PartPass& p, const Array& dy) -> Arrays {
              Array da, db;
              if (p.needs(0)) da = ops::sum_to(saves ? ops::binary(op, dy, z.get(p.name())) : dy, a_shape);
              if (p.needs(1)) {
                switch (op) {
                  case BinaryOp::add: db = dy; break;
                  case BinaryOp::subtract: db = ops::unary(UnaryOp::negate, dy); break;
                  case BinaryOp::multiply: db = ops::binary(op, dy, x.get(p.name())); break;
                  case BinaryOp::divide: {
                    const Array& divisor = z.get(p.name());
                    Array ratio = ops::binary(BinaryOp::divide, x.get(p.name()),
                                              ops::binary(BinaryOp::multiply, divisor, divisor));
                    db = ops::unary(UnaryOp::negate, ops::binary(BinaryOp::multiply, dy, ratio));
                    break;
                  }
                }
                db = ops::sum_to(db, b_shape);
              }
              return {da, db};
            }};
  });
}

Tensor affine(const Tensor& x, double scale, double shift) {
  return lift("affine", place_as("affine", x), {x}, [=](const Arrays& in) -> Lifted {
    return {ops::affine(in[0], scale, shift),
            [scale](const PartPass&, const Array& dy) -> Arrays { return {ops::affine(dy, scale, 0)}; }};
  });
}

}  // namespace

Tensor negate(const Tensor& x) { return unary(UnaryOp::negate, x); }
Tensor exp(const Tensor& x) { return unary(UnaryOp::exp, x); }
Tensor log(const Tensor& x) { return unary(UnaryOp::log, x); }
Tensor sqrt(const Tensor& x) { return unary(UnaryOp::sqrt, x); }
Tensor square(const Tensor& x) { return unary(UnaryOp::square, x); }
Tensor abs(const Tensor& x) { return unary(UnaryOp::abs, x); }
Tensor relu(const Tensor& x) { return unary(UnaryOp::relu, x); }
Tensor gelu(const Tensor& x) { return unary(UnaryOp::gelu, x); }
Tensor sigmoid(const Tensor& x) { return unary(UnaryOp::sigmoid, x); }
Tensor tanh(const Tensor& x) { return unary(UnaryOp::tanh, x); }
Tensor operator+(const Tensor& a, const Tensor& b) { return binary(BinaryOp::add, a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return binary(BinaryOp::subtract, a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return binary(BinaryOp::multiply, a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return binary(BinaryOp::divide, a, b); }
Tensor operator+(const Tensor& a, double b) { return affine(a, 1, b); }
Tensor operator-(const Tensor& a, double b) { return affine(a, 1, -b); }
Tensor operator*(const Tensor& a, double b) { return affine(a, b, 0); }
Tensor operator/(const Tensor& a, double b) { return affine(a, 1 / b, 0); }
Tensor operator+(double a, const Tensor& b) { return affine(b, 1, a); }
Tensor operator-(double a, const Tensor& b) { return affine(b, -1, a); }
Tensor operator*(double a, const Tensor& b) { return affine(b, a, 0); }
Tensor operator/(double a, const Tensor& b) { return full_like(b, a) / b; }
Tensor operator-(const Tensor& a) { return negate(a); }

Tensor full_like(const Tensor& x, double value) {
  NoGradGuard no_grad;
  return lift("full_like", place_as("full_like", x), {x}, [value](const Arrays& in) -> Lifted {
    ops::check_on_device("full_like", in[0]);
    Array y = ops::empty_like(in[0]);
    ops::fill_(y, value);
    return {y, nullptr};
  });
}

Tensor dropout(const Tensor& x, double p) {
  const Placed placed = place_as("dropout", x);
  // Replicas draw once, and stay equal.
  std::optional<ops::DropoutKey> once;
  const int caller = ops::ShardScope::current();  // in per_shard(): that shard
  return lift("dropout", placed, {x}, [&](const Arrays& in) -> Lifted {
    const Device device = in[0].device();
    ops::DropoutKey key;
    if (placed.kind == Kind::replicated) {
      if (!once) {
        ops::ShardScope scope(caller);
        once = ops::next_dropout_key(device);
      }
      key = *once;
      // A recorded step draws another key each time.
      if (key.in_memory.defined()) key.in_memory = ops::to_device(key.in_memory, device, {.non_blocking = true});
    } else if (in[0].numel() > 0) {
      // A shard without samples draws nothing, in no process.
      key = ops::next_dropout_key(device);
    }
    // The mask is in memory order: that of x.
    return {ops::dropout(in[0], p, key), [p, key, layout = in[0].layout()](const PartPass&, const Array& dy) -> Arrays {
              return {ops::dropout(ops::to_layout(dy, layout), p, key)};
            }};
  });
}

}  // namespace lockstep
