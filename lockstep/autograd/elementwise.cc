#include "lockstep/ops/elementwise.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

Tensor unary(UnaryOp op, const Tensor& x) {
  ops::ShardScope scope(shard_of({x}));
  Tensor y = ops::unary(op, x.detach());
  Tensor saved = unary_saves_output(op) ? y : x.detach();
  return record(ops::name(op), {x}, y, [op, saved](const Node&, const Tensor& dy) {
    return std::vector<Tensor>{ops::unary_backward(op, saved, dy)};
  });
}

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  ops::ShardScope scope(shard_of({a, b}));
  Tensor y = ops::binary(op, a.detach(), b.detach());
  bool saves = op == BinaryOp::multiply || op == BinaryOp::divide;
  Tensor x = saves ? a.detach() : Tensor(), z = saves ? b.detach() : Tensor();
  return record(ops::name(op), {a, b}, y,
                [=, a_shape = a.shape(), b_shape = b.shape()](const Node& node, const Tensor& dy) {
                  Tensor da, db;
                  auto both = [](BinaryOp f, const Tensor& p, const Tensor& q) { return ops::binary(f, p, q); };
                  if (node.needs(0)) {
                    da = op == BinaryOp::multiply ? both(op, dy, z) : op == BinaryOp::divide ? both(op, dy, z) : dy;
                    da = ops::sum_to(da, a_shape);
                  }
                  if (node.needs(1)) {
                    switch (op) {
                      case BinaryOp::add: db = dy; break;
                      case BinaryOp::subtract: db = ops::unary(UnaryOp::negate, dy); break;
                      case BinaryOp::multiply: db = both(op, dy, x); break;
                      case BinaryOp::divide: {
                        Tensor ratio = both(BinaryOp::divide, x, both(BinaryOp::multiply, z, z));
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
