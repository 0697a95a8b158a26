#include <cmath>
#include <numbers>

#include "lockstep/backend/reference/broadcast.h"
#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

// The distribution function and the density of the standard normal distribution.
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_pdf(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); }

double apply(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::negate:
      return -x;
    case UnaryOp::exp:
      return std::exp(x);
    case UnaryOp::log:
      return std::log(x);
    case UnaryOp::sqrt:
      return std::sqrt(x);
    case UnaryOp::square:
      return x * x;
    case UnaryOp::abs:
      return std::abs(x);
    case UnaryOp::relu:
      return x <= 0 ? 0 : x;  // NaN stays NaN
    case UnaryOp::gelu:
      return x * normal_cdf(x);
    case UnaryOp::sigmoid:
      return 1 / (1 + std::exp(-x));
    case UnaryOp::tanh:
      return std::tanh(x);
  }
  fail("unary: unknown operation {}", static_cast<int>(op));
}

// op' in terms of the output y where unary_saves_output(op), of the input x otherwise.
double derivative(UnaryOp op, double saved) {
  double x = saved, y = saved;
  switch (op) {
    case UnaryOp::negate:
      return -1;
    case UnaryOp::exp:
      return y;
    case UnaryOp::log:
      return 1 / x;
    case UnaryOp::sqrt:
      return 0.5 / y;
    case UnaryOp::square:
      return 2 * x;
    case UnaryOp::abs:
      return x > 0 ? 1 : x < 0 ? -1 : 0;
    case UnaryOp::relu:
      return y > 0 ? 1 : 0;
    case UnaryOp::gelu:
      return normal_cdf(x) + x * normal_pdf(x);
    case UnaryOp::sigmoid:
      return y * (1 - y);
    case UnaryOp::tanh:
      return 1 - y * y;
  }
  fail("unary: unknown operation {}", static_cast<int>(op));
}

double apply(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::add:
      return a + b;
    case BinaryOp::subtract:
      return a - b;
    case BinaryOp::multiply:
      return a * b;
    case BinaryOp::divide:
      return a / b;
  }
  fail("binary: unknown operation {}", static_cast<int>(op));
}

class Elementwise final : public ElementwiseKernels {
 public:
  void unary(KernelContext&, UnaryOp op, const View& x, const View& y) override {
    Elements in(x), out(y);
    for (std::int64_t i = 0; i < y.numel(); ++i) out.set(i, apply(op, in[i]));
  }

  void unary_backward(KernelContext&, UnaryOp op, const View& saved, const View& dy,
                      const View& dx) override {
    Elements s(saved), g(dy), out(dx);
    for (std::int64_t i = 0; i < dx.numel(); ++i) out.set(i, g[i] * derivative(op, s[i]));
  }

  void binary(KernelContext&, BinaryOp op, const View& a, const View& b, const View& out) override {
    Elements u(a), v(b), result(out);
    // Operands of out's shape have out's layout too: their elements meet in memory order.
    auto source = [&](const View& in, std::int64_t i) {
      return in.shape == out.shape ? i : broadcast_source(in.shape, out.shape, i);
    };
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      result.set(i, apply(op, u[source(a, i)], v[source(b, i)]));
    }
  }

  void affine(KernelContext&, double scale, double shift, const View& x, const View& y) override {
    Elements in(x), out(y);
    for (std::int64_t i = 0; i < y.numel(); ++i) out.set(i, scale * in[i] + shift);
  }

  void fill(KernelContext&, double value, const View& y) override {
    Elements out(y);
    for (std::int64_t i = 0; i < y.numel(); ++i) out.set(i, value);
  }
};

}  // namespace

std::unique_ptr<ElementwiseKernels> make_elementwise() { return std::make_unique<Elementwise>(); }

}  // namespace lockstep::reference
