// Functions of networks: products, activations, convolutions, pools, norms, attention.
#include <algorithm>

#include "functions.h"
#include "lockstep/autograd/autocast.h"
#include "operators.h"

namespace lockstep::python {
namespace {

// Returns exact products of integers, because the library's kernels are for floating types.
Tensor whole_matmul(const Tensor& a, const Tensor& b) {
  // Sums of u8 wrap.
  if (a.dtype() == DType::u8) return whole_matmul(a.to(DType::i64), b.to(DType::i64)).to(DType::u8);
  check(a.dim() > 0 && b.dim() > 0, "matmul: {} and {}, expected at least one axis", a, b);
  const Tensor x = a.dim() == 1 ? unsqueeze(a, 0) : a;
  const Tensor y = b.dim() == 1 ? unsqueeze(b, -1) : b;
  const std::int64_t n = x.size(x.dim() - 2), k = x.size(x.dim() - 1), m = y.size(y.dim() - 1);
  check(k == y.size(y.dim() - 2), "matmul: {} and {}, expected as many columns as rows", a, b);
  // Sums all products in one operation if they take little memory.
  const std::int64_t products = std::max(x.numel() * m, y.numel() * n);
  Tensor result;
  if (k == 0 ||
      (std::max(x.dim(), y.dim()) < 6 && products <= std::max<std::int64_t>(1 << 22, a.numel() + b.numel()))) {
    result = sum(unsqueeze(x, -1) * unsqueeze(y, -3), -2);
  } else {
    for (std::int64_t i = 0; i < k; ++i) {
      const Tensor product = x.narrow(-1, i, 1) * y.narrow(-2, i, 1);
      result = i == 0 ? product : result + product;
    }
  }
  if (a.dim() == 1) result = result.squeeze(-2);
  return b.dim() == 1 ? result.squeeze(-1) : result;
}

bool are_whole(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && (a.dtype() == DType::i64 || a.dtype() == DType::u8);
}

}  // namespace

Tensor matrix_product(const Tensor& a, const Tensor& b) { return are_whole(a, b) ? whole_matmul(a, b) : matmul(a, b); }

void add_network(const FunctionsOf& f) {
  const auto input = "input"_a;
  struct Product {
    const char* name;
    Tensor (*f)(const Tensor&, const Tensor&);
    int axes, other_axes;  // expected number of axes; 0: any
    const char* other;
  };
  for (const Product& product :
       {Product{"matmul", matmul, 0, 0, "other"}, Product{"mm", mm, 2, 2, "mat2"}, Product{"bmm", bmm, 3, 3, "mat2"},
        Product{"mv", mv, 2, 1, "vec"}, Product{"dot", dot, 1, 1, "other"}}) {
    f.both(
        product.name,
        [product](const Tensor& a, const Tensor& b) {
          const bool fits = product.axes == 0 || (a.dim() == product.axes && b.dim() == product.other_axes);
          const Tensor y = are_whole(a, b) && fits ? whole_matmul(a, b) : product.f(a, b);
          return a.dim() == 1 && b.dim() == 1 ? scalar(y) : y;
        },
        input, py::arg(product.other));
  }
  f.function(
      "cdist", [](const Tensor& x1, const Tensor& x2, double p, const py::object&) { return cdist(x1, x2, p); }, "x1"_a,
      "x2"_a, "p"_a = 2.0, "compute_mode"_a = py::none(),
      "The distance of each row of x1 from each row of x2: [.., m, k], [.., n, k] -> [.., m, n]. All modes compute the "
      "differences, without a matrix product.");
  const auto sum_of = [](const Tensor& added, const Tensor& product, const Scalar& beta, const Scalar& alpha) {
    const Tensor x = autocast(added);  // f32 beside bf16 would make the sum f32
    const Tensor scaled = alpha == 1 ? product : product * alpha;
    if (beta == 0) return scaled;
    return (beta == 1 ? x : x * beta) + scaled;
  };
  f.both(
      "addmm",
      [sum_of](const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
        return sum_of(x, mm(a, b), beta, alpha);
      },
      input, "mat1"_a, "mat2"_a, py::kw_only(), "beta"_a = 1, "alpha"_a = 1);
  f.both(
      "baddbmm",
      [sum_of](const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
        return sum_of(x, bmm(a, b), beta, alpha);
      },
      input, "batch1"_a, "batch2"_a, py::kw_only(), "beta"_a = 1, "alpha"_a = 1);
  using Soft = Tensor (*)(const Tensor&, int, std::optional<DType>);
  for (const auto& [name, soft] : {std::pair<const char*, Soft>{"softmax", softmax}, {"log_softmax", log_softmax}}) {
    f.both(name, soft, input, "dim"_a, "dtype"_a = py::none());
  }
}

}  // namespace lockstep::python
