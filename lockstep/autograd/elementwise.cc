#include "lockstep/ops/elementwise.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

Tensor unary(UnaryOp op, const Tensor& x) {
  ops::ShardScope scope(shard_of({x}));
  Tensor y = ops::unary(op, x.detach());
  SavedTensor saved = unary_saves_output(op) ? y : x;
  return record(ops::name(op), {x}, y, [op, saved](const Node& node, const Tensor& dy) {
    return std::vector<Tensor>{ops::unary_backward(op, saved.get(node.name), dy)};
  });
}

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  ops::ShardScope scope(shard_of({a, b}));
  Tensor y = ops::binary(op, a.detach(), b.detach());
  const bool divides = op == BinaryOp::divide, saves = divides || op == BinaryOp::multiply;
  SavedTensor x(saves && b.requires_grad(), a);
  SavedTensor z(saves && (a.requires_grad() || divides), b);
  return record(ops::name(op), {a, b}, y,
                [=, a_shape = a.shape(), b_shape = b.shape()](const Node& node, const Tensor& dy) {
                  Tensor da, db;
                  auto both = [](BinaryOp f, const Tensor& p, const Tensor& q) { return ops::binary(f, p, q); };
                  if (node.needs(0)) {
                    da = ops::sum_to(saves ? both(op, dy, z.get(node.name)) : dy, a_shape);
                  }
                  if (node.needs(1)) {
                    switch (op) {
                      case BinaryOp::add: db = dy; break;
                      case BinaryOp::subtract: db = ops::unary(UnaryOp::negate, dy); break;
                      case BinaryOp::multiply: db = both(op, dy, x.get(node.name)); break;
                      case BinaryOp::divide: {
                        const Tensor& divisor = z.get(node.name);
                        Tensor ratio = both(BinaryOp::divide, x.get(node.name), both(BinaryOp::multiply, divisor, divisor));
                        db = ops::unary(UnaryOp::negate, both(BinaryOp::multiply, dy, ratio));
                        break;
                      }
                    }
                    db = ops::sum_to(db, b_shape);
                  }
                  return std::vector<Tensor>{da, db};
                });
}

Tensor affine(const Tensor& x, double scale, double shift) {
  ops::ShardScope scope(shard_of({x}));
  return record("affine", {x}, ops::affine(x.detach(), scale, shift), [scale](const Node&, const Tensor& dy) {
    return std::vector<Tensor>{ops::affine(dy, scale, 0)};
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
Tensor operator/(double a, const Tensor& b) {
  ops::check_on_device("divide", b);
  ops::ShardScope scope(shard_of({b}));
  Tensor dividend = ops::empty_like(b.detach());
  ops::fill_(dividend, a);
  return dividend / b;
}
Tensor operator-(const Tensor& a) { return negate(a); }

Tensor dropout(const Tensor& x, double p) {
  ops::ShardScope scope(shard_of({x}));
  const ops::DropoutKey key = ops::next_dropout_key(x.device());
  // The mask is in memory order: that of x.
  return record("dropout", {x}, ops::dropout(x.detach(), p, key),
                [p, key, layout = x.layout()](const Node&, const Tensor& dy) {
                  return std::vector<Tensor>{ops::dropout(ops::to_layout(dy, layout), p, key)};
                });
}

}  // namespace lockstep
