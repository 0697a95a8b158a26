#include <cmath>
#include <cstring>
#include <numbers>

#include "lockstep/backend/reference/broadcast.h"
#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

// The distribution function and the density of the standard normal distribution.
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_pdf(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); }

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double apply(const Unary& unary, double x) {
  const auto [op, a, b] = unary;
  switch (op) {
    case UnaryOp::negate: return -x;
    case UnaryOp::exp: return std::exp(x);
    case UnaryOp::log: return std::log(x);
    case UnaryOp::log1p: return std::log1p(x);
    case UnaryOp::sqrt: return std::sqrt(x);
    case UnaryOp::square: return x * x;
    case UnaryOp::abs: return std::abs(x);
    case UnaryOp::sign: return x > 0 ? 1 : x < 0 ? -1 : x;  // 0 and NaN stay
    case UnaryOp::reciprocal: return 1 / x;
    case UnaryOp::rsqrt: return 1 / std::sqrt(x);
    case UnaryOp::sin: return std::sin(x);
    case UnaryOp::cos: return std::cos(x);
    case UnaryOp::relu: return x <= 0 ? 0 : x;  // NaN stays NaN
    case UnaryOp::leaky_relu: return x > 0 ? x : a * x;
    case UnaryOp::elu: return x > 0 ? x : a * std::expm1(x);
    case UnaryOp::gelu: return x * normal_cdf(x);
    case UnaryOp::silu: return x * sigmoid(x);
    case UnaryOp::softplus: return a * x > b ? x : std::log1p(std::exp(a * x)) / a;
    case UnaryOp::sigmoid: return sigmoid(x);
    case UnaryOp::tanh: return std::tanh(x);
    case UnaryOp::clamp: {
      const double raised = x < a ? a : x;
      return raised > b ? b : raised;
    }
    case UnaryOp::pow: return std::pow(x, a);
    case UnaryOp::divide: return x / a;
    case UnaryOp::floor: return std::floor(x);
    case UnaryOp::ceil: return std::ceil(x);
    case UnaryOp::round: return std::nearbyint(x);
    case UnaryOp::trunc: return std::trunc(x);
    case UnaryOp::expm1: return std::expm1(x);
    case UnaryOp::log2: return std::log2(x);
    case UnaryOp::log10: return std::log10(x);
    case UnaryOp::tan: return std::tan(x);
    case UnaryOp::erf: return std::erf(x);
  }
  fail("unary: unknown operation {}", static_cast<int>(op));
}

// op' in terms of the output y where unary_saves_output(op), of the input x otherwise.
double derivative(const Unary& unary, double saved) {
  const auto [op, a, b] = unary;
  const double x = saved, y = saved;
  switch (op) {
    case UnaryOp::negate: return -1;
    case UnaryOp::exp: return y;
    case UnaryOp::log: return 1 / x;
    case UnaryOp::log1p: return 1 / (1 + x);
    case UnaryOp::sqrt: return 0.5 / y;
    case UnaryOp::square: return 2 * x;
    case UnaryOp::abs: return x > 0 ? 1 : x < 0 ? -1 : 0;
    case UnaryOp::sign: return 0;
    case UnaryOp::reciprocal: return -y * y;
    case UnaryOp::rsqrt: return -0.5 * y * y * y;
    case UnaryOp::sin: return std::cos(x);
    case UnaryOp::cos: return -std::sin(x);
    case UnaryOp::relu: return y > 0 ? 1 : 0;
    case UnaryOp::leaky_relu: return x > 0 ? 1 : a;
    case UnaryOp::elu: return x > 0 ? 1 : a * std::exp(x);
    case UnaryOp::gelu: return normal_cdf(x) + x * normal_pdf(x);
    case UnaryOp::silu: return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    case UnaryOp::softplus: return a * x > b ? 1 : sigmoid(a * x);
    case UnaryOp::sigmoid: return y * (1 - y);
    case UnaryOp::tanh: return 1 - y * y;
    case UnaryOp::clamp: return x >= a && x <= b ? 1 : 0;
    case UnaryOp::pow: return a == 0 ? 0 : a * std::pow(x, a - 1);
    case UnaryOp::divide: return 1 / a;
    case UnaryOp::floor:
    case UnaryOp::ceil:
    case UnaryOp::round:
    case UnaryOp::trunc: return 0;
    case UnaryOp::expm1: return y + 1;
    case UnaryOp::log2: return 1 / (x * std::numbers::ln2);
    case UnaryOp::log10: return 1 / (x * std::numbers::ln10);
    case UnaryOp::tan: return 1 + y * y;
    case UnaryOp::erf: return 2 * std::numbers::inv_sqrtpi * std::exp(-x * x);
  }
  fail("unary: unknown operation {}", static_cast<int>(op));
}

double apply(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::add: return a + b;
    case BinaryOp::subtract: return a - b;
    case BinaryOp::multiply: return a * b;
    case BinaryOp::divide: return a / b;
    case BinaryOp::maximum: return std::isnan(a) || a > b ? a : b;
    case BinaryOp::minimum: return std::isnan(a) || a < b ? a : b;
    case BinaryOp::pow: return std::pow(a, b);
    case BinaryOp::atan2: return std::atan2(a, b);
    case BinaryOp::divide_trunc: return std::trunc(a / b);
    case BinaryOp::divide_floor: {
      if (b == 0) return a / b;
      const double rest = std::fmod(a, b);
      const double whole = std::nearbyint((a - rest) / b) - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
      return whole == 0 ? std::copysign(0.0, a / b) : whole;
    }
    case BinaryOp::remainder: {
      const double rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor: break;  // for integers only
  }
  fail("binary: unknown operation {}", static_cast<int>(op));
}

template <typename T>
bool compare_as(CompareOp op, T a, T b) {
  switch (op) {
    case CompareOp::eq: return a == b;
    case CompareOp::ne: return a != b;
    case CompareOp::lt: return a < b;
    case CompareOp::le: return a <= b;
  }
  fail("compare: unknown operation {}", static_cast<int>(op));
}

// Operands of the result's shape also have its layout, so their elements match in memory order.
std::int64_t source(const View& in, const View& out, std::int64_t i) {
  return in.shape == out.shape ? i : broadcast_source(in.shape, out.shape, i);
}

class Elementwise final : public ElementwiseKernels {
 public:
  void run(KernelContext&, const kernels::Unary& call) override {
    Elements in(call.x), out(call.y);
    for (std::int64_t i = 0; i < call.y.numel(); ++i) out.set(i, apply(call.op, in[i]));
  }

  void run(KernelContext&, const kernels::UnaryBackward& call) override {
    Elements s(call.saved), g(call.dy), out(call.dx);
    for (std::int64_t i = 0; i < call.dx.numel(); ++i) out.set(i, g[i] * derivative(call.op, s[i]));
  }

  void run(KernelContext&, const kernels::Binary& call) override {
    // f64 cannot represent every i64.
    if (call.out.dtype == DType::i64) return integers<std::int64_t>(call);
    if (call.out.dtype == DType::u8) return integers<std::uint8_t>(call);
    Elements u(call.a), v(call.b), result(call.out);
    for (std::int64_t i = 0; i < call.out.numel(); ++i) {
      result.set(i, apply(call.op, u[source(call.a, call.out, i)], v[source(call.b, call.out, i)]));
    }
  }

  void run(KernelContext&, const kernels::Compare& call) override {
    Elements u(call.a), v(call.b);
    auto* result = call.out.as<bool>();
    for (std::int64_t i = 0; i < call.out.numel(); ++i) {
      const std::int64_t j = source(call.a, call.out, i), k = source(call.b, call.out, i);
      // f64 cannot represent every i64.
      result[i] = call.a.dtype == DType::i64
                      ? compare_as(call.op, call.a.as<std::int64_t>()[j], call.b.as<std::int64_t>()[k])
                      : compare_as(call.op, u[j], v[k]);
    }
  }

  void run(KernelContext&, const kernels::Where& call) override {
    const auto* chosen = static_cast<const std::uint8_t*>(call.condition.data);
    const std::size_t size = item_size(call.out.dtype);
    auto* result = static_cast<std::byte*>(call.out.data);
    for (std::int64_t i = 0; i < call.out.numel(); ++i) {
      const View& from = chosen[source(call.condition, call.out, i)] ? call.a : call.b;
      std::memcpy(result + i * size, static_cast<const std::byte*>(from.data) + source(from, call.out, i) * size, size);
    }
  }

  void run(KernelContext&, const kernels::Affine& call) override {
    Elements in(call.x), out(call.y);
    for (std::int64_t i = 0; i < call.y.numel(); ++i) out.set(i, call.scale * in[i] + call.shift);
  }

  void run(KernelContext&, const kernels::Fill& call) override {
    visit_dtype(call.y.dtype, [&](auto zero) {
      std::fill_n(call.y.as<decltype(zero)>(), call.y.numel(), call.value.to<decltype(zero)>());
    });
  }

  void run(KernelContext&, const kernels::Arange& call) override {
    Elements out(call.y);
    const bool whole = call.y.dtype == DType::i64 && call.start.is_whole() && call.step.is_whole();
    const auto start = call.start.to<double>(), step = call.step.to<double>();
    for (std::int64_t i = 0; i < call.y.numel(); ++i) {
      if (whole) {
        // f64 cannot represent every i64.
        call.y.as<std::int64_t>()[i] = arange_element(call.start.to<std::int64_t>(), call.step.to<std::int64_t>(), i);
      } else {
        out.set(i, start + static_cast<double>(i) * step);
      }
    }
  }

 private:
  template <typename T>
  static void integers(const kernels::Binary& call) {
    visit_op(call.op, [&](auto kind) {
      for (std::int64_t i = 0; i < call.out.numel(); ++i) {
        const std::int64_t j = source(call.b, call.out, i);
        const T a = call.a.as<T>()[source(call.a, call.out, i)], b = call.b.as<T>()[j];
        check(!divides(call.op) || b != 0, "divide: element {} of the divisor is 0", j);
        call.out.as<T>()[i] = static_cast<T>(integer_formula<kind()>(a, b));
      }
    });
  }
};

}  // namespace

std::unique_ptr<ElementwiseKernels> make_elementwise() { return std::make_unique<Elementwise>(); }

}  // namespace lockstep::reference
