// Base of lockstep.autograd.
#include "bindings.h"
#include "callbacks.h"
#include "in_place.h"
#include "lockstep/autograd/checkpoint.h"
#include "lockstep/autograd/grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/program_function.h"
#include "lockstep/autograd/tensor_impl.h"

namespace lockstep::python {
namespace {

// What ctx.save_for_backward() keeps. Inputs keep their history, for functions that compute gradients in backward().
class SavedTensors {
 public:
  SavedTensors(const std::vector<std::optional<Tensor>>& tensors, const std::vector<Tensor>& inputs) {
    for (const auto& x : tensors) {
      const auto same =
          std::ranges::find_if(inputs, [&](const Tensor& input) { return x && input.operator->() == x->operator->(); });
      saved_.push_back(x ? SavedTensor(*x) : SavedTensor());
      tensors_.push_back(same == inputs.end() ? Tensor() : *same);
    }
  }
  py::tuple get() const {
    py::tuple all(saved_.size());
    for (std::size_t i = 0; i < saved_.size(); ++i) {
      const Tensor& saved = saved_[i].get();
      const Tensor& x = tensors_[i].defined() ? tensors_[i] : saved;
      all[i] = x.defined() ? py::cast(x) : py::none();
    }
    return all;
  }

 private:
  std::vector<SavedTensor> saved_;
  std::vector<Tensor> tensors_;
};

// A Function whose class is written in Python.
class PythonFunction : public ProgramFunction {
 public:
  PythonFunction(std::string name, const py::object& forward, const py::object& backward, const py::object& context,
                 std::span<const Tensor> inputs)
      : name_(std::move(name)), forward_(Held(forward)), backward_(backward), context_(context) {
    for (const Tensor& x : inputs) inputs_.push_back({x.requires_grad(), x->kind, x.shape(), x.dtype(), x.device()});
  }

  std::vector<Tensor> forward(std::span<const Tensor>) override {
    const WithLock lock;
    const auto compute = std::exchange(forward_, std::nullopt);
    return compute->get()().cast<std::vector<Tensor>>();
  }

  std::vector<Tensor> backward(std::span<const Tensor> output_grads) override {
    std::vector<Tensor> found;
    {
      const WithLock lock;
      py::list gradients;
      for (const Tensor& g : output_grads) gradients.append(g.defined() ? py::cast(g) : py::none());
      for (const auto& g : backward_.get()(gradients).cast<std::vector<std::optional<Tensor>>>()) {
        found.push_back(g.value_or(Tensor()));
      }
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      found[i] = inputs_[i].needs_gradient ? fitted(found[i], inputs_[i], i) : Tensor();
    }
    return found;
  }

  std::string name() const override { return name_; }
  bool takes_zeros() const override {
    const WithLock lock;
    return py::cast<bool>(context_.get().attr("materialize_grads"));
  }

 private:
  struct Input {
    bool needs_gradient;
    Kind kind;
    Shape shape;
    DType dtype;
    Device device;
  };

  // Returns the gradient as PyTorch takes it: summed to the input's shape, in its type, on its device.
  Tensor fitted(Tensor g, const Input& of, std::size_t i) const {
    if (!g.defined()) return g;
    if (g.shape() != of.shape) {
      bool expands = g.dim() >= of.shape.dim();
      for (int axis = 1; expands && axis <= of.shape.dim(); ++axis) {
        expands = of.shape[-axis] == 1 || of.shape[-axis] == g.size(-axis);
      }
      check(expands,
            "{}: backward() returned {} as the gradient of tensor {}, expected {}, or a shape that it broadcasts to",
            name_, g.shape(), i, of.shape);
      g = sum_to(g, of.shape);
    }
    if (g.dtype() != of.dtype) g = g.to(of.dtype);
    if (of.kind == Kind::whole && g->kind == Kind::whole && g.device() != of.device) g = g.to(of.device);
    return g;
  }

  std::string name_;
  std::optional<Held> forward_;  // empty after it has run
  Held backward_, context_;
  std::vector<Input> inputs_;
};

// An operation in a tensor's history, or the leaf where it ends.
struct GradFn {
  std::shared_ptr<GradMeta> at;

  // Returns AccumulateGrad, MatmulBackward0, or, for a class of Python, its name: SquareBackward.
  std::string name() const {
    if (!at->node) return "AccumulateGrad";
    std::string name;
    bool begins = true;
    for (const char c : at->node->name) {
      const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0;
      if (word) name += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
      begins = !word;
    }
    const bool of_program = std::isupper(static_cast<unsigned char>(at->node->name.at(0))) != 0;
    return name + (of_program ? "Backward" : "Backward0");
  }
  const void* identity() const { return at->node ? static_cast<const void*>(at->node.get()) : at.get(); }
};

void add_grad_fn(py::module_& m) {
  py::class_<GradFn>(m, "Node", "An operation in the history of a tensor.")
      .def("name", &GradFn::name, "The name of the operation.")
      .def_property_readonly(
          "next_functions",
          [](const GradFn& self) {
            py::list all;
            if (self.at->node) {
              for (const Edge& edge : self.at->node->inputs) {
                if (edge.target) {
                  all.append(py::make_tuple(GradFn{edge.target}, edge.target->output));
                } else {
                  all.append(py::make_tuple(py::none(), 0));
                }
              }
            }
            return py::tuple(all);
          },
          "For each input: its operation, and the number of the result that it is.")
      .def("__eq__", [](const GradFn& a, const GradFn& b) { return a.identity() == b.identity(); })
      .def("__hash__", [](const GradFn& self) { return reinterpret_cast<std::uintptr_t>(self.identity()) >> 4; })
      .def("__repr__",
           [](const GradFn& self) { return fmt::format("<{} object at {}>", self.name(), self.identity()); });
}

std::vector<Tensor> seeds_of(const std::vector<std::optional<Tensor>>& seeds) {
  std::vector<Tensor> given;
  for (const auto& seed : seeds) given.push_back(seed.value_or(Tensor()));
  return given;
}

}  // namespace

void add_autograd(py::module_& package) {
  py::module_ m = package.def_submodule("_autograd");
  m.def(
      "grad",
      [](const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
         const std::vector<std::optional<Tensor>>& seeds, bool retain_graph) {
        std::vector<std::optional<Tensor>> found;
        for (const Tensor& x : grad(outputs, inputs, seeds_of(seeds), retain_graph)) {
          found.push_back(x.defined() ? std::optional(x) : std::nullopt);
        }
        return found;
      },
      "outputs"_a, "inputs"_a, "grad_outputs"_a, "retain_graph"_a, released());
  m.def(
      "backward",
      [](const std::vector<Tensor>& roots, const std::vector<std::optional<Tensor>>& seeds, bool retain_graph) {
        const std::vector<Tensor> given = seeds_of(seeds);
        backward(std::span(roots), std::span(given), {}, retain_graph);
      },
      "tensors"_a, "grad_tensors"_a, "retain_graph"_a, released());
  py::class_<SavedTensors>(m, "SavedTensors")
      .def(py::init<const std::vector<std::optional<Tensor>>&, const std::vector<Tensor>&>(), "tensors"_a, "inputs"_a)
      .def("get", &SavedTensors::get);
  m.def(
      "apply",
      [](const std::string& name, const py::object& forward, const py::object& backward, const py::object& context,
         const std::vector<Tensor>& inputs) {
        auto function = std::make_shared<PythonFunction>(name, forward, backward, context, inputs);
        const WithoutLock computing;
        return apply_function(std::move(function), inputs);
      },
      "name"_a, "forward"_a, "backward"_a, "context"_a, "inputs"_a);
  m.def(
      "checkpoint",
      [](const py::function& call, const std::vector<Tensor>& inputs) {
        const CheckpointFunction f = [held = Held(call)](std::span<const Tensor> in) {
          const WithLock lock;
          return held.get()(std::vector<Tensor>(in.begin(), in.end())).cast<std::vector<Tensor>>();
        };
        const WithoutLock computing;
        return checkpoint(f, std::span<const Tensor>(inputs));
      },
      "call"_a, "inputs"_a);
  // Calls f, which changes what lasts, unless a checkpoint repeats a function in backward().
  m.def(
      "once", [](const py::function& f) { checkpoint_once([&] { f(); }); }, "f"_a);
  m.def(
      "become",
      [](const std::string& name, const py::object& x, const Tensor& result) {
        if (result.requires_grad()) become(name.c_str(), x, result);
        return x;
      },
      "name"_a, "input"_a, "result"_a);
  add_grad_fn(m);
  package.attr("Tensor").attr("grad_fn") = py::module_::import("builtins")
                                               .attr("property")(py::cpp_function(
                                                   [](const Tensor& x) -> py::object {
                                                     const bool history = x.requires_grad() && x->grad->node != nullptr;
                                                     return history ? py::cast(GradFn{x->grad}) : py::none();
                                                   },
                                                   py::is_method(package.attr("Tensor"))));
}

}  // namespace lockstep::python
