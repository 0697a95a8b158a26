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
        name, [product = product](const Tensor& a, const Tensor& b) { return a.dim() == 1 && b.dim() == 1 ? scalar(product(a, b)) : product(a, b); },
        input, "other"_a);
  }
  using Soft = Tensor (*)(const Tensor&, int, std::optional<DType>);
  for (const auto& [name, soft] : {std::pair<const char*, Soft>{"softmax", softmax}, {"log_softmax", log_softmax}}) {
    f.both(name, soft, input, "dim"_a, "dtype"_a = py::none());
  }
}

}  // namespace lockstep::python
