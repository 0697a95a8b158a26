// lockstep.nn.Parameter, buffers, and nn.init.
#include "parameter.h"

#include <unordered_map>

#include "bindings.h"
#include "callbacks.h"
#include "in_place.h"
#include "lockstep/nn/init.h"
#include "views.h"

namespace lockstep::python {

PyTypeObject* live_tensor_type = nullptr;

namespace {

// LiveTensors by their parameter, which each keeps alive. Never destroyed, because Python objects may outlive statics.
std::unordered_map<const void*, LiveTensor*>& live_tensors() {
  static auto* const all = new std::unordered_map<const void*, LiveTensor*>();
  return *all;
}

const void* identity(const Parameter& parameter) { return &parameter.gradient_state(); }

template <typename T>
py::object object_of(const Parameter& parameter) {
  const auto known = live_tensors().find(identity(parameter));
  if (known != live_tensors().end())
    return py::cast(static_cast<T*>(known->second), py::return_value_policy::reference);
  return py::cast(new T(parameter), py::return_value_policy::take_ownership);
}

Device device_of(const LiveTensor& x) {
  x.parameter.place();
  return x.parameter.initialized() ? x.parameter.devices()[0] : devices().at(0);
}

// Places a parameter. If it has no module, it goes to the program's devices.
void place(const Parameter& p) {
  p.place();
  if (!p.initialized()) p.place_alone(devices());
}

}  // namespace

LiveTensor::LiveTensor(const Parameter& p) : parameter(ModuleTree::own_handle(p)) {
  live_tensors()[identity(p)] = this;
}
LiveTensor::~LiveTensor() { live_tensors().erase(identity(parameter)); }

void LiveTensor::refresh() {
  if (!parameter.initialized()) {
    const WithoutLock making;
    place(parameter);
  }
  Tensor now = parameter.tensor();
  if (!is_same(now)) static_cast<Tensor&>(*this) = std::move(now);
}

py::object parameter_object(const Parameter& parameter) { return object_of<ParameterTensor>(parameter); }
py::object buffer_object(const Parameter& buffer) { return object_of<BufferTensor>(buffer); }

Parameter parameter_of(const Tensor& values, bool trainable) {
  check(values.defined(), "parameter: its values are undefined");
  check(!trainable || is_floating(values.dtype()),
        "parameter: {} has no gradient: expected a floating type, or requires_grad=False", values);
  for (const std::int64_t extent : values.shape()) {
    check(extent > 0, "parameter: its values are {}, expected at least one element (an extent of 0 means unknown)",
          values);
  }
  const NoGradGuard no_grad;
  const Tensor copy = clone(values.detach().to_host());
  Initializer initializer = [copy](const Array& to, RandomKey) {
    const NoGradGuard writing;
    Tensor(to).copy_from(copy);
  };
  return Parameter({.shape = values.shape(),
                    .dtype = values.dtype(),
                    .initializer = initializer,
                    .default_initializer = initializer,
                    .trainable = trainable});
}

namespace {

template <typename T>
void def_init(py::module_& m, const char* name, T&& f, auto... extra) {
  m.def(name, std::forward<T>(f), "tensor"_a, extra...);
}

void add_initializers(py::module_& core) {
  py::module_ m = core.def_submodule("_init", "Initial values of parameters, keyed by the seed and the parameter.");
  using P = const ParameterTensor&;
  const auto mode = [](const std::string& name) {
    check(name == "fan_in" || name == "fan_out", "init: mode '{}', expected 'fan_in' or 'fan_out'", name);
    return name == "fan_in" ? FanMode::fan_in : FanMode::fan_out;
  };
  def_init(
      m, "uniform_", [](P p, double a, double b) { init::uniform_(p.parameter, a, b); }, "a"_a = 0, "b"_a = 1);
  def_init(
      m, "normal_", [](P p, double mean, double std) { init::normal_(p.parameter, mean, std); }, "mean"_a = 0,
      "std"_a = 1);
  def_init(
      m, "trunc_normal_",
      [](P p, double mean, double std, double a, double b) {
        init::trunc_normal_(p.parameter, {.mean = mean, .stddev = std, .a = a, .b = b});
      },
      "mean"_a = 0, "std"_a = 1, "a"_a = -2, "b"_a = 2);
  def_init(
      m, "constant_", [](P p, double value) { init::constant_(p.parameter, value); }, "val"_a);
  def_init(
      m, "xavier_uniform_", [](P p, double gain) { init::xavier_uniform_(p.parameter, gain); }, "gain"_a = 1);
  def_init(
      m, "xavier_normal_", [](P p, double gain) { init::xavier_normal_(p.parameter, gain); }, "gain"_a = 1);
  def_init(
      m, "kaiming_uniform_",
      [mode](P p, double a, const std::string& fan) {
        init::kaiming_uniform_(p.parameter, {a, mode(fan)});
      },
      "a"_a = 0, "mode"_a = "fan_in");
  def_init(
      m, "kaiming_normal_",
      [mode](P p, double a, const std::string& fan) {
        init::kaiming_normal_(p.parameter, {a, mode(fan)});
      },
      "a"_a = 0, "mode"_a = "fan_in");
  def_init(
      m, "orthogonal_", [](P p, double gain) { init::orthogonal_(p.parameter, gain); }, "gain"_a = 1);
}

}  // namespace

void add_parameters(py::module_& m) {
  py::class_<LiveTensor, Tensor, TensorHolder<LiveTensor>> live(m, "LiveTensor", py::dynamic_attr());
  live_tensor_type = reinterpret_cast<PyTypeObject*>(live.ptr());
  live.def_property_readonly("shape", [](const LiveTensor& x) { return x.parameter.shape(); });
  live.def_property_readonly("dtype", [](const LiveTensor& x) { return x.parameter.dtype(); });
  live.def_property_readonly("device", [](const LiveTensor& x) { return device_of(x); });
  live.def_property_readonly("is_leaf", [](const LiveTensor&) { return true; });
  live.def_property_readonly("ndim", [](const LiveTensor& x) { return x.parameter.shape().dim(); });
  live.def("dim", [](const LiveTensor& x) { return x.parameter.shape().dim(); });
  live.def("ndimension", [](const LiveTensor& x) { return x.parameter.shape().dim(); });
  live.def("numel", [](const LiveTensor& x) { return x.parameter.shape().numel(); });
  live.def("nelement", [](const LiveTensor& x) { return x.parameter.shape().numel(); });
  live.def("size", [](const LiveTensor& x) { return x.parameter.shape(); });
  live.def(
      "size", [](const LiveTensor& x, int dim) { return x.parameter.shape()[dim]; }, "dim"_a);
  live.def("__hash__", [](const py::object& self) { return reinterpret_cast<std::size_t>(self.ptr()) >> 4; });
  live.def("__len__", [](const LiveTensor& x) {
    check(x.parameter.shape().dim() > 0, "len() of a 0-d tensor");
    return x.parameter.shape()[0];
  });
  // Used by functions of nn.Module.
  live.def_property_readonly("_made", [](const LiveTensor& x) { return x.parameter.initialized(); });
  live.def(
      "_reset", [](const LiveTensor& x) { x.parameter.reset(); }, released());
  live.def("_path", [](const LiveTensor& x) { return x.parameter.name(); });
  live.def("_shape_known", [](const LiveTensor& x) { return x.parameter.shape_known(); });
  live.def("_fits", [](const LiveTensor& x, const Shape& shape) { return x.parameter.fits(shape); });
  live.def(
      "_set", [](const LiveTensor& x, const Tensor& value) { x.parameter.set_data(value); }, "value"_a, released());
  live.def("_begin_with", [](const LiveTensor& x, const LiveTensor& other) {
    const WithoutLock making;
    // Values depend on the path, which the copy does not share, so they must exist before the copy.
    other.parameter.place();
    if (!other.parameter.initialized()) return;
    x.parameter.set_default_initializer([copy = clone(other.parameter.host_data())](const Array& to, RandomKey) {
      const NoGradGuard writing;
      Tensor(to).copy_from(copy);
    });
  });
  // Returns the memory of the values, without a history, so that in-place operations change the parameter. The
  // parameter's object lives as long as the result, so that it knows who shares the memory.
  const auto detached = [](const py::object& self) {
    const Tensor x = self.cast<Tensor>();
    bool is_linked = false;
    return unlinked_view(self, x.detach(), is_linked);
  };
  live.def("detach", detached, py::keep_alive<0, 1>());
  live.def_property("data", py::cpp_function(detached, py::keep_alive<0, 1>()),
                    [](const py::object& self, const TensorObject& with) {
                      check_not_shared(self, with);
                      const auto value = with.cast<Tensor>();
                      const Parameter& parameter = self.cast<const LiveTensor&>().parameter;
                      const WithoutLock writing;
                      place(parameter);
                      parameter.set_data(value.detach());
                    });

  py::class_<ParameterTensor, LiveTensor, TensorHolder<ParameterTensor>> parameter(
      m, "Parameter", "A tensor that a module trains: it registers itself where a module's attribute becomes one.");
  parameter.def(py::init([](const Tensor& data, bool requires_grad) {
                  return new ParameterTensor(parameter_of(data, requires_grad));
                }),
                "data"_a, "requires_grad"_a = true);
  parameter.def_property(
      "requires_grad", [](const ParameterTensor& x) { return x.parameter.trainable(); },
      [](const ParameterTensor& x, bool on) { x.parameter.set_trainable(on); });
  parameter.def(
      "requires_grad_",
      [](const py::object& self, bool on) {
        self.cast<const ParameterTensor&>().parameter.set_trainable(on);
        return self;
      },
      "requires_grad"_a = true);
  parameter.def_property(
      "grad",
      [](const ParameterTensor& x) -> std::optional<Tensor> {
        const WithoutLock waiting;
        if (!x.parameter.initialized()) return {};
        Tensor gradient = x.parameter.gradient();
        return gradient.defined() ? std::optional(gradient) : std::nullopt;
      },
      [](const ParameterTensor& x, const std::optional<Tensor>& value) {
        const WithoutLock writing;
        if (value) {
          place(x.parameter);
          x.parameter.set_gradient(*value);
        } else {
          x.parameter.zero_grad();
        }
      });
  parameter.def(
      "_map_grad",
      [](const ParameterTensor& x, double factor) {
        x.parameter.map_gradient([factor](const Tensor& g) { return g * factor; });
      },
      released());
  parameter.def("zero_grad", [](const ParameterTensor& x) { x.parameter.zero_grad(); });
  parameter.def(
      "register_hook",
      [](const py::object& self, const py::function& hook) {
        const Keeping keeping;
        const auto map = gradient_hook(hook);
        const auto& x = self.cast<const ParameterTensor&>();
        HookHandle handle = x.parameter.register_hook([map](const Tensor& gradient) {
          const Tensor found = map(gradient);
          return found.defined() ? found : gradient;
        });
        keeping.by(self);
        return RemovableHandle{[handle]() mutable { handle.remove(); }};
      },
      "hook"_a, "From now on, hook(grad) maps each gradient that backward() leaves; None keeps it. Returns a handle.");

  py::class_<BufferTensor, LiveTensor, TensorHolder<BufferTensor>> buffer(
      m, "Buffer", "A tensor of a module's state that is not trained.");
  buffer.def(py::init([](const Tensor& data) { return new BufferTensor(parameter_of(data, false)); }), "data"_a);
  buffer.def(
      "_successor",
      [](const BufferTensor& x, const Tensor& value) {
        Parameter next;
        {
          const WithoutLock writing;
          next = ModuleTree::successor(x.parameter, value.detach());
        }
        return buffer_object(next);
      },
      "value"_a);
  buffer.def_property_readonly("requires_grad", [](const BufferTensor&) { return false; });
  buffer.def_property_readonly("grad", [](const BufferTensor&) { return py::none(); });

  add_initializers(m);
}

}  // namespace lockstep::python
