// What lockstep.autograd is made of.
#include "bindings.h"
#include "lockstep/autograd/grad.h"

namespace lockstep::python {

void add_autograd(py::module_& package) {
  py::module_ m = package.def_submodule("_autograd");
  m.def(
      "grad",
      [](const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
         const std::vector<std::optional<Tensor>>& seeds) {
        std::vector<Tensor> given;
        for (const auto& seed : seeds) given.push_back(seed.value_or(Tensor()));
        std::vector<std::optional<Tensor>> found;
        for (const Tensor& x : grad(outputs, inputs, given)) {
          found.push_back(x.defined() ? std::optional(x) : std::nullopt);
        }
        return found;
      },
      "outputs"_a, "inputs"_a, "grad_outputs"_a, released());
  m.def(
      "backward",
      [](const std::vector<Tensor>& roots, const std::vector<std::optional<Tensor>>& seeds) {
        std::vector<Tensor> given;
        for (const auto& seed : seeds) given.push_back(seed.value_or(Tensor()));
        backward(std::span(roots), std::span(std::as_const(given)));
      },
      "tensors"_a, "grad_tensors"_a, released());
}

}  // namespace lockstep::python
