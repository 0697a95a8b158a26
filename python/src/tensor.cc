// lockstep.Tensor: its properties, its gradient, its elements as Python numbers. Other files add the functions.
#include "bindings.h"
#include "callbacks.h"
#include "creation.h"
#include "in_place.h"
#include "interruptible.h"
#include "lockstep/autograd/grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor_hooks.h"
#include "lockstep/autograd/tensor_impl.h"
#include "views.h"

namespace lockstep::python {
namespace {

py::object item_of(const Tensor& x) {
  check(x.defined() && x.numel() == 1, "item: {} elements, expected 1", x.defined() ? x.numel() : 0);
  wait_for(x);
  if (is_floating(x.dtype())) {
    double value = 0;
    {
      const WithoutLock waiting;
      value = x.item();
    }
    return py::float_(value);
  }
  std::int64_t value = 0;
  {
    const WithoutLock waiting;
    value = is_mask(x.dtype()) ? x.item<std::uint8_t>() : x.item<std::int64_t>();
  }
  return x.dtype() == DType::boolean ? py::object(py::bool_(value != 0)) : py::int_(value);
}

template <typename T>
py::object nested(const std::vector<T>& values, const Shape& shape, int axis, std::size_t& next) {
  if (axis == shape.dim()) {
    const T value = values[next++];
    if constexpr (std::is_same_v<T, bool>) {
      return py::bool_(value);
    } else if constexpr (std::is_integral_v<T>) {
      return py::int_(value);
    } else {
      return py::float_(static_cast<double>(value));
    }
  }
  py::list list(static_cast<std::size_t>(shape[axis]));
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = nested(values, shape, axis + 1, next);
  return list;
}

py::object list_of(const Tensor& x) {
  check(x.defined(), "tolist: undefined tensor");
  wait_for(x);
  const auto read = [&]<typename T>(T) {
    std::vector<T> values;
    {
      const WithoutLock waiting;
      values = x.to_vector<T>();
    }
    std::size_t next = 0;
    return nested(values, x.shape(), 0, next);
  };
  switch (x.dtype()) {
    case DType::f64: return read(double{});
    case DType::i64: return read(std::int64_t{});
    case DType::u8: return read(std::uint8_t{});
    case DType::boolean: return read(bool{});
    default: return read(float{});
  }
}

// Returns the same object if nothing changes.
py::object moved(const py::object& self, std::optional<Place> place, std::optional<DType> dtype, bool non_blocking,
                 bool copy) {
  const Tensor x = self.cast<Tensor>();
  Tensor y = x;
  {
    const WithoutLock describing;
    if (dtype) y = y.to(*dtype);
    if (place && !place->has(y.device())) y = y.to(place->device, {.non_blocking = non_blocking});
    if (copy && y.is_same(x)) y = clone(y);
  }
  return y.is_same(x) ? self : py::cast(y);
}

void set_grad(Tensor& x, const std::optional<Tensor>& grad) {
  if (!grad || !grad->defined()) return x.zero_grad();
  check(x.requires_grad() && x->grad->node == nullptr, "grad: {} is no leaf that requires a gradient", x);
  check(grad->shape() == x.shape(), "grad: a gradient of shape {} for {}", grad->shape(), x);
  const Tensor before = x.grad();
  if (before.defined() && before->parts[0].storage() == (*grad)->parts[0].storage()) return;
  const Tensor value = clone(grad->detach());
  x.zero_grad();
  backward({x}, {value});
}

void run_backward(const Tensor& x, const std::optional<Tensor>& gradient, const py::object& inputs, bool retain) {
  BackwardOptions options;
  std::vector<Tensor> leaves;
  if (!inputs.is_none()) {
    leaves = py::isinstance<Tensor>(inputs) ? std::vector{inputs.cast<Tensor>()} : inputs.cast<std::vector<Tensor>>();
    options.inputs = leaves;
  }
  const WithoutLock describing;
  const Tensor seed = gradient.value_or(Tensor());
  backward(std::span(&x, 1), std::span(&seed, 1), options, retain);
}

}  // namespace

TensorClass add_tensor(py::module_& m) {
  TensorClass tensor(m, "Tensor", "One logical array, wherever its parts lie.", py::dynamic_attr());
  tensor.def(
      py::init([](const py::args& data) -> Tensor {
        if (data.size() == 1 && !PyLong_Check(data[0].ptr())) return tensor_of_data(data[0], DType::f32, true);
        return zeros(py::object(data).cast<Shape>());
      }),
      "Tensor([1, 2]) has these numbers, Tensor(2, 3) zeros of this shape: float32. Prefer tensor() and zeros().");
  tensor.def_property_readonly("shape", &Tensor::shape);
  tensor.def_property_readonly("dtype", &Tensor::dtype);
  tensor.def_property_readonly("device", &Tensor::device);
  tensor.def_property_readonly("ndim", &Tensor::dim);
  tensor.def_property_readonly("is_cuda", [](const Tensor& x) { return x.device().kind() == DeviceKind::cuda; });
  tensor.def_property("requires_grad", &Tensor::requires_grad,
                      [](Tensor& x, bool value) { x.set_requires_grad(value); });
  tensor.def_property_readonly("is_leaf",
                               [](const Tensor& x) { return !x.requires_grad() || x->grad->node == nullptr; });
  tensor.def_property(
      "grad",
      [](const Tensor& x) -> py::object {
        const Tensor grad = x.grad();
        return grad.defined() ? py::cast(grad) : py::none();
      },
      &set_grad, "The gradient that backward() has added up, or None.");
  tensor.def("size", [](const Tensor& x) { return x.shape(); });
  tensor.def("size", &Tensor::size, "dim"_a);
  tensor.def("dim", &Tensor::dim);
  tensor.def("ndimension", &Tensor::dim);
  tensor.def("numel", &Tensor::numel);
  tensor.def("nelement", &Tensor::numel);
  tensor.def("element_size", [](const Tensor& x) { return item_size(x.dtype()); });
  tensor.def("is_floating_point", [](const Tensor& x) { return is_floating(x.dtype()); });
  tensor.def(
      "stride",
      [](const py::object& self, std::optional<int> dim) -> py::object {
        const Tensor x = self.cast<Tensor>();
        const Strides strides = strides_of(self);
        if (!dim) {
          py::list all;
          for (const std::int64_t s : strides) all.append(s);
          return py::tuple(all);
        }
        const int axis = *dim < 0 ? *dim + x.dim() : *dim;
        if (axis < 0 || axis >= x.dim()) {
          throw py::index_error(fmt::format("stride: axis {} of a tensor of {} axes", *dim, x.dim()));
        }
        return py::int_(strides[static_cast<std::size_t>(axis)]);
      },
      "dim"_a = py::none(), "How many elements apart in memory two neighbors along an axis are: PyTorch's numbers.");
  tensor.def("is_contiguous", [](const py::object& self) {
    const Tensor& x = self.cast<Tensor>();
    return x.layout() == Layout::plain && is_plain(x.shape(), strides_of(self));
  });
  tensor.def(
      "backward",
      [](const Tensor& x, const std::optional<Tensor>& gradient, std::optional<bool> retain_graph, bool create_graph,
         const py::object& inputs) {
        check(!create_graph, "backward: create_graph=True, but gradients have no history: expected False");
        run_backward(x, gradient, inputs, retain_graph.value_or(false));
      },
      "gradient"_a = py::none(), "retain_graph"_a = py::none(), "create_graph"_a = false, "inputs"_a = py::none(),
      "Adds the gradients of all leaves, or of the inputs alone, to their grad. Consumes the graph unless it is "
      "retained.");
  tensor.def(
      "requires_grad_",
      [](const py::object& self, bool value) {
        self.cast<Tensor>().set_requires_grad(value);
        return self;
      },
      "requires_grad"_a = true);
  tensor.def("retain_grad", &retain_grad, "From now on, backward() leaves this result's gradient in grad.");
  tensor.def_property_readonly("retains_grad", [](const Tensor& x) {
    return x.requires_grad() && x->grad->node != nullptr && x->grad->hooks && x->grad->hooks->retains;
  });
  py::module_ hooks = m.def_submodule("_hooks", "Hooks of tensors.");
  py::class_<RemovableHandle>(hooks, "RemovableHandle", "A registered hook, which `with` removes at its end.")
      .def("remove", &RemovableHandle::remove_hook, "Remove the hook.")
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](RemovableHandle& self, const py::args&) { self.remove_hook(); });
  tensor.def(
      "register_hook",
      [](const Tensor& x, const py::function& hook) { return RemovableHandle{register_hook(x, gradient_hook(hook))}; },
      "hook"_a,
      "From now on, each backward() calls hook(grad) once it has this tensor's gradient, which a result but None "
      "replaces. Returns a handle.");
  tensor.attr("__module__") = "lockstep";
  tensor.def(
      "to_host",
      [](const Tensor& x) {
        wait_for(x);
        const WithoutLock waiting;
        return x.to_host();
      },
      "The elements in host memory, without a history; those of a batch that is cut together. Waits.");
  tensor.def("item", &item_of, "The only element as a number. Waits.");
  tensor.def("tolist", &list_of, "The elements as nested lists, or the only one of a tensor without axes. Waits.");

  tensor.def(
      "to",
      [](const py::object& self, Place place, std::optional<DType> dtype, bool non_blocking, bool copy) {
        return moved(self, place, dtype, non_blocking, copy);
      },
      "device"_a, "dtype"_a = py::none(), "non_blocking"_a = false, "copy"_a = false,
      "The tensor on a device, in a type, or both; itself if nothing changes.");
  tensor.def(
      "to",
      [](const py::object& self, DType dtype, bool non_blocking, bool copy) {
        return moved(self, {}, dtype, non_blocking, copy);
      },
      "dtype"_a, "non_blocking"_a = false, "copy"_a = false);
  tensor.def(
      "to",
      [](const py::object& self, const Tensor& other, bool non_blocking, bool copy) {
        return moved(self, Place{other.device()}, other.dtype(), non_blocking, copy);
      },
      "other"_a, "non_blocking"_a = false, "copy"_a = false);
  tensor.def(
      "cpu", [](const py::object& self) { return moved(self, Place{kHost}, {}, false, false); },
      "The tensor in host memory.");
  tensor.def(
      "wait", [](const Tensor& x) { wait_for(x); }, "Waits until the elements are there.");
  for (const auto& [name, dtype] : {std::pair<const char*, DType>{"float", DType::f32},
                                    {"double", DType::f64},
                                    {"half", DType::f16},
                                    {"bfloat16", DType::bf16},
                                    {"long", DType::i64},
                                    {"int", DType::i64},
                                    {"byte", DType::u8},
                                    {"bool", DType::boolean}}) {
    tensor.def(name, [dtype = dtype](const py::object& self) { return moved(self, {}, dtype, false, false); });
  }
  tensor.def("type_as",
             [](const py::object& self, const Tensor& other) { return moved(self, {}, other.dtype(), false, false); });
  tensor.def("__len__", [](const Tensor& x) {
    if (x.dim() == 0) throw py::type_error("len() of a tensor without axes");
    return x.size(0);
  });
  tensor.def("__iter__", [](const py::object& self) {
    if (self.cast<Tensor>().dim() == 0) throw py::type_error("iteration over a tensor without axes");
    return py::iter(rows_of(self));
  });
  tensor.def("__bool__", [](const Tensor& x) {
    check(x.numel() == 1, "bool: a tensor of {} elements has no truth value, expected 1: use any() or all()",
          x.numel());
    return py::cast<bool>(py::bool_(item_of(x)));
  });
  tensor.def("__float__", [](const Tensor& x) { return py::float_(item_of(x)); });
  // bool is a subclass of int, which int() must not return.
  const auto as_int = [](const py::object& item) {
    return py::reinterpret_steal<py::object>(PyNumber_Long(item.ptr()));
  };
  tensor.def("__int__", [as_int](const Tensor& x) { return as_int(item_of(x)); });
  tensor.def("__index__", [as_int](const Tensor& x) {
    if (is_floating(x.dtype()) || x.numel() != 1) {
      throw py::type_error("only a whole tensor of one element is an index");
    }
    return as_int(item_of(x));
  });
  tensor.def("__format__", [](const py::object& self, const py::str& format) -> py::object {
    if (self.cast<Tensor>().dim() == 0) {
      return py::module_::import("builtins").attr("format")(item_of(self.cast<Tensor>()), format);
    }
    return py::module_::import("builtins").attr("object").attr("__format__")(self, format);
  });
  tensor.def("__hash__", [](const py::object& self) {
    return static_cast<Py_hash_t>(reinterpret_cast<std::uintptr_t>(self.ptr()) >> 4);
  });
  tensor.def("__contains__", [](const Tensor& x, const Scalar& number) {
    Tensor found;
    {
      const WithoutLock describing;
      found = any(eq(x, number));
    }
    return py::cast<bool>(py::bool_(item_of(found)));
  });
  return tensor;
}

}  // namespace lockstep::python
