// Functions of networks: products, activations, convolutions, pools, norms, attention.
#include "functions.h"

namespace lockstep::python {

void add_network(const FunctionsOf& f) {
  const auto input = "input"_a;
  for (const auto& [name, product] :
       {std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)>{"matmul", matmul},
        {"mm", mm},
        {"bmm", bmm},
        {"mv", mv},
        {"dot", dot}}) {
    f.both(
        name,
        [product = product](const Tensor& a, const Tensor& b) {
          return a.dim() == 1 && b.dim() == 1 ? scalar(product(a, b)) : product(a, b);
        },
        input, "other"_a);
  }
  f.function(
      "cdist", [](const Tensor& x1, const Tensor& x2, double p, const py::object&) { return cdist(x1, x2, p); }, "x1"_a,
      "x2"_a, "p"_a = 2.0, "compute_mode"_a = py::none(),
      "The distance of each row of x1 from each row of x2: [.., m, k], [.., n, k] -> [.., m, n]. All modes compute the "
      "differences, without a matrix product.");
  const auto sum_of = [](const Tensor& x, const Tensor& product, const Number& beta, const Number& alpha) {
    const Tensor scaled = alpha.value == 1 ? product : product * alpha.value;
    if (beta.value == 0) return scaled;
    return (beta.value == 1 ? x : x * beta.value) + scaled;
  };
  f.both(
      "addmm",
      [sum_of](const Tensor& x, const Tensor& a, const Tensor& b, const Number& beta, const Number& alpha) {
        return sum_of(x, mm(a, b), beta, alpha);
      },
      input, "mat1"_a, "mat2"_a, py::kw_only(), "beta"_a = 1, "alpha"_a = 1);
  f.both(
      "baddbmm",
      [sum_of](const Tensor& x, const Tensor& a, const Tensor& b, const Number& beta, const Number& alpha) {
        return sum_of(x, bmm(a, b), beta, alpha);
      },
      input, "batch1"_a, "batch2"_a, py::kw_only(), "beta"_a = 1, "alpha"_a = 1);
  using Soft = Tensor (*)(const Tensor&, int, std::optional<DType>);
  for (const auto& [name, soft] : {std::pair<const char*, Soft>{"softmax", softmax}, {"log_softmax", log_softmax}}) {
    f.both(name, soft, input, "dim"_a, "dtype"_a = py::none());
  }
}

}  // namespace lockstep::python
