// lockstep.nn.Module: the tree of parameters, buffers, and children, and calls between C++ and Python. The methods that
// need no C++ are in lockstep/nn/module.py.
#include "module_class.h"

#include "in_place.h"

namespace lockstep::python {
namespace {

// Never destroyed, because static objects would be destroyed after the interpreter.
struct Names {
  py::object forward = py::str("forward"), hooked = py::str("_call_hooked"), dict = py::str("__dict__"),
             inplace = py::str("inplace"), options_changed = py::str("_options_changed");
  py::object base_forward;  // Module.forward
  PyObject* types;          // dict: type -> whether forward() is the library's
};
Names* names = nullptr;

// Returns the object of Python for a module that already has one, or null.
py::object find_object(Module& module) { return py::cast(&module, py::return_value_policy::reference); }

// Returns whether the class inherits forward() from the library, which calls C++.
bool computes_in_library(PyTypeObject* type) {
  PyObject* const key = reinterpret_cast<PyObject*>(type);
  if (PyObject* const known = PyDict_GetItem(names->types, key)) return known == Py_True;
  const auto found = py::reinterpret_steal<py::object>(PyObject_GetAttr(key, names->forward.ptr()));
  if (!found) throw py::error_already_set();
  const bool library = found.is(names->base_forward);
  PyDict_SetItem(names->types, key, library ? Py_True : Py_False);
  return library;
}

// Returns whether a class of the program overrides this method of Module.
bool overrides(PyTypeObject* type, const char* name) {
  const py::object own = py::handle(reinterpret_cast<PyObject*>(type)).attr(name);
  if (own.is(py::type::of<Module>().attr(name))) return false;
  const std::string module = py::str(py::getattr(own, "__module__", py::str()));
  return !module.starts_with("lockstep.");
}

bool is_tensor(py::handle x) { return py::isinstance<Tensor>(x); }

bool in_host_memory(const Tensor& x) { return x.defined() && x.device().is_host(); }

// Returns whether `self` is a layer of the library with inplace=True.
bool writes_input(const py::object& self) {
  if (!computes_in_library(Py_TYPE(self.ptr()))) return false;
  return PyDict_GetItem(self.attr(names->dict).ptr(), names->inplace.ptr()) == Py_True;
}

// Returns what Module::operator() gives forward(): whole tensors in host memory go to the module's device.
py::object placed(Module& module, py::handle x) {
  if (!is_tensor(x)) return py::reinterpret_borrow<py::object>(x);
  const auto& tensor = x.cast<Tensor>();
  if (!in_host_memory(tensor)) return py::reinterpret_borrow<py::object>(x);
  Tensor moved;
  {
    const WithoutLock moving;
    moved = module.placed(tensor);
  }
  if (moved.is_same(tensor)) return py::reinterpret_borrow<py::object>(x);
  return py::cast(std::move(moved));
}

// Calls forward() of Python, with what operator() does before and after it.
py::object call_python(Module& module, const py::object& self, const py::tuple& args, const py::dict& kwargs) {
  py::tuple inputs(args.size());
  const bool stays = writes_input(self);
  for (std::size_t i = 0; i < args.size(); ++i) inputs[i] = stays ? py::object(args[i]) : placed(module, args[i]);
  py::dict named;
  for (const auto& [key, value] : kwargs) named[key] = placed(module, value);
  const ModuleCall call(module);
  const InPython computing;
  const bool hooked = PyDict_Contains(self.attr(names->dict).ptr(), names->hooked.ptr()) == 1;
  py::object result;
  try {
    result = hooked ? self.attr("_call_with_hooks")(inputs, named) : self.attr(names->forward)(*inputs, **named);
  } catch (const py::error_already_set& error) {
    name_layer(error, module);
    throw;
  }
  if (is_tensor(result)) call.report(result.cast<Tensor>());
  return result;
}

Tensor call_from_library(Module& module, const Tensor& x) {
  const WithLock lock;
  const py::object self = find_object(module);
  const py::dict attributes = self.attr(names->dict);
  const bool own_call = overrides(Py_TYPE(self.ptr()), "__call__");
  const bool alive = own_call || !computes_in_library(Py_TYPE(self.ptr())) || attributes.contains(names->hooked) ||
                     attributes.contains(names->forward);
  check(alive, "module: {}, a class of Python, is called after the end of its object: expected that Python keeps it",
        module.kind());
  const py::object result = own_call ? self(x) : call_python(module, self, py::make_tuple(x), py::dict());
  check(is_tensor(result), "module: {} returns {}, expected one tensor where it is called with one", module.kind(),
        std::string(py::str(py::type::of(result))));
  return result.cast<Tensor>();
}

py::object call(const py::object& self, const py::args& args, const py::kwargs& kwargs) {
  auto& module = self.cast<Module&>();
  if (args.size() == 1 && kwargs.empty() && is_tensor(args[0]) && computes_in_library(Py_TYPE(self.ptr())) &&
      !ModuleTree::has_call(module) && !writes_input(self)) {
    const py::object input = args[0];
    const auto& x = input.cast<Tensor>();
    Tensor result;
    {
      const WithoutLock computing;
      result = module(x);
    }
    return py::cast(std::move(result));
  }
  return call_python(module, self, args, kwargs);
}

// Returns a parameter, buffer, or child that has no attribute of Python yet.
py::object part(const py::object& self, const std::string& name) {
  const auto module = self.cast<std::shared_ptr<Module>>();
  const ModuleTree tree(*module);
  switch (tree.find(name)) {
    case ModuleTree::Entry::none: return py::none();
    case ModuleTree::Entry::parameter:
      for (const auto& [key, p] : module->named_parameters(false))
        if (key == name) return parameter_object(p);
      break;
    case ModuleTree::Entry::buffer:
      for (const auto& [key, p] : module->named_buffers(false))
        if (key == name) return buffer_object(p);
      break;
    case ModuleTree::Entry::child:
      for (const auto& child : tree.children())
        if (child.name == name) return module_object(child, module);
      break;
  }
  return py::none();
}

const char* entry_name(ModuleTree::Entry entry) {
  switch (entry) {
    case ModuleTree::Entry::parameter: return "parameter";
    case ModuleTree::Entry::buffer: return "buffer";
    case ModuleTree::Entry::child: return "child";
    case ModuleTree::Entry::none: break;
  }
  return "";
}

void set_hooked(const py::object& self, bool hooked) {
  auto& module = self.cast<Module&>();
  const bool library = computes_in_library(Py_TYPE(self.ptr())) && !overrides(Py_TYPE(self.ptr()), "__call__");
  if (!library || hooked) {
    ModuleTree(module).set_call([&module](const Tensor& x) { return call_from_library(module, x); });
  } else {
    ModuleTree(module).set_call({});
  }
}

}  // namespace

namespace {

traverseproc bound_traverse = nullptr;

// For a class of Python, the interpreter itself visits the attributes before version 3.13. A second visit would hide
// cycles from the collector.
extern "C" int traverse_module(PyObject* self, visitproc visit, void* arg) {
  if (Py_TYPE(self)->tp_traverse == &traverse_module) return bound_traverse(self, visit, arg);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

void set_traverse(py::handle type) {
  reinterpret_cast<PyTypeObject*>(type.ptr())->tp_traverse = &traverse_module;
  for (const py::handle derived : type.attr("__subclasses__")()) set_traverse(derived);
}

}  // namespace

void complete_modules(py::module_& m) {
  if (PY_VERSION_HEX >= 0x030D0000) return;
  const py::object type = m.attr("Module");
  bound_traverse = reinterpret_cast<PyTypeObject*>(type.ptr())->tp_traverse;
  set_traverse(type);
}

py::object module_object(const ModuleTree::Child& child, const std::shared_ptr<Module>& parent) {
  return py::cast(child.owner ? child.owner : std::shared_ptr<Module>(parent, child.module));
}

void check_constructed(py::handle self) {
  auto* const instance = reinterpret_cast<py::detail::instance*>(self.ptr());
  if (instance->get_value_and_holder().value_ptr() == nullptr) {
    throw py::type_error(fmt::format("{}: __init__() of its base class has not run", Py_TYPE(self.ptr())->tp_name));
  }
}

std::shared_ptr<Module> held_module(const py::object& module) {
  // Holds the object, which may be collected together with its owner.
  struct Both {
    Held object;
    std::shared_ptr<Module> module;
  };
  auto both = std::make_shared<Both>(Both{Held(module), module.cast<std::shared_ptr<Module>>()});
  Module* const pointer = both->module.get();
  return {std::move(both), pointer};
}

namespace {

// Changes the object's class to a class of the library from which its class derives. Assigning __class__ cannot do
// this, because the interpreter compares more than the layout.
void change_class(const py::object& self, const py::type& cls) {
  auto* const target = reinterpret_cast<PyTypeObject*>(cls.ptr());
  PyTypeObject* const now = Py_TYPE(self.ptr());
  const bool fits = PyType_IsSubtype(now, target) != 0 && now->tp_basicsize == target->tp_basicsize;
  const auto* const info = py::detail::get_type_info(target);
  check(fits && info && info->type == target, "module: {} cannot become {}, expected a class that it derives from",
        now->tp_name, target->tp_name);
  // Moves the attributes to a dict of their own, because the interpreter lays out its inline values by class.
  self.attr(names->dict) = py::dict(self.attr(names->dict)).attr("copy")();
  Py_INCREF(target);
  Py_SET_TYPE(self.ptr(), target);
  Py_DECREF(now);
  ModuleTree(self.cast<Module&>()).set_kind("");
}

// Returns whether a class of Python overrides reset_parameters() of a layer, which PyTorch's constructors call.
bool overrides_reset(const py::object& self) {
  const py::object own = py::getattr(py::type::of(self), "reset_parameters", py::none());
  if (own.is_none() || py::hasattr(own, "of_library")) return false;
  for (const py::handle type : py::reinterpret_borrow<py::tuple>(Py_TYPE(self.ptr())->tp_mro)) {
    if (py::hasattr(py::getattr(type, "reset_parameters", py::none()), "of_library")) return true;
  }
  return false;
}

void set_mode(const ModuleTree& tree, Module& module) {
  tree.set_mode([&module](bool on) {
    const WithLock lock;
    find_object(module).attr(on ? "train" : "eval")();
  });
}

// Returns what PyTorch's layer has as the attribute of this argument; `given`: the arguments up to this one.
py::object attribute_of(std::string_view name, const py::object& value, const py::dict& given) {
  if (name == "padding_idx" && !value.is_none() && value < py::int_(0)) {
    return value + py::object(given["num_embeddings"]);
  }
  // LPPool2d keeps None.
  const bool is_window = given.contains("kernel_size") && !given.contains("norm_type");
  if (name == "stride" && value.is_none() && is_window) return given["kernel_size"];
  if ((name == "kdim" || name == "vdim") && value.is_none()) return given["embed_dim"];
  if (name == "output_size" && py::isinstance<py::tuple>(value)) {
    py::list sizes;
    for (const py::handle size : value) sizes.append(size.equal(py::int_(-1)) ? py::handle(Py_None) : size);
    return py::tuple(sizes);
  }
  if (name == "activation" && py::isinstance<py::str>(value)) {
    return py::module_::import("lockstep._core").attr("functional").attr(value);
  }
  return value;
}

}  // namespace

void finish_module(Module& module, py::handle self, const Arguments& arguments, const py::object& device,
                   const py::object& dtype) {
  PyTypeObject* const type = Py_TYPE(self.ptr());
  const ModuleTree tree(module);
  const auto own = py::reinterpret_borrow<py::object>(self);
  // True for a class written in Python, not one that is bound here.
  if (const auto* info = py::detail::get_type_info(type); !info || info->type != type) {
    tree.set_kind(py::handle(reinterpret_cast<PyObject*>(type)).attr("__name__").cast<std::string>());
  }
  if (!computes_in_library(type) || overrides(type, "__call__"))
    tree.set_call([&module](const Tensor& x) { return call_from_library(module, x); });
  if (overrides(type, "train") || overrides(type, "eval")) set_mode(tree, module);
  for (const char* const method : {"get_extra_state", "_save_to_state_dict", "_load_from_state_dict", "state_dict"}) {
    if (overrides(type, method)) tree.set_own_state(method);
  }
  const py::dict attributes = own.attr(names->dict);
  py::dict given;
  for (const auto& [name, value] : arguments) {
    given[name] = value;
    if (tree.find(name) != ModuleTree::Entry::none) continue;
    // layer.bias is the parameter; in recurrent layers it is the option whether there are such parameters.
    const bool no_bias = std::string_view(name) == "bias" && value.is(py::bool_(false));
    attributes[name] =
        no_bias && dynamic_cast<RecurrentModule*>(&module) == nullptr ? py::none() : attribute_of(name, value, given);
    // Wrappers and containers own their modules already.
    const bool adds = std::string_view(name) == "activation" && py::isinstance<Module>(value);
    if (adds) tree.set_child(name, value.cast<std::shared_ptr<Module>>());
  }
  attributes["_lockstep_arguments"] = given;  // a name that no class of the program has
  if (!device.is_none()) {
    const auto wanted = device.cast<Device>();
    if (devices() != std::vector{wanted}) module.to(std::vector{wanted});
  }
  if (!dtype.is_none() && dtype.cast<DType>() != DType::f32) module.to(dtype.cast<DType>());
  if (overrides_reset(own) && !attributes.contains("_is_copied")) own.attr("reset_parameters")();
}

void add_module(py::module_& m) {
  add_parameters(m);
  py::class_<Module, std::shared_ptr<Module>> module(
      m, "Module", py::dynamic_attr(),
      "The base of all modules. A subclass defines forward(), and sets its layers as attributes.");
  def_constructor(module, [] { return std::make_unique<Module>(); });
  module.def("__call__", &call);
  module.def(
      "forward",
      [](const py::object& self, const TensorObject& x) {
        auto& layer = self.cast<Module&>();
        const py::dict attributes = self.attr(names->dict);
        if (attributes.contains(names->options_changed)) {
          fail("module: forward() of {} after a change of {}, which the layer has from its constructor", layer.kind(),
               py::cast<std::string>(py::str(attributes[names->options_changed])));
        }
        const auto compute = [&layer](const Tensor& input) { return layer.forward(input); };
        if (writes_input(self)) return TensorObject(write_in_place(layer.kind().c_str(), x, compute));
        const Tensor input = x.cast<Tensor>();
        Tensor result;
        {
          const WithoutLock computing;
          result = compute(input);
        }
        return TensorObject(py::cast(std::move(result)));
      },
      "input"_a);
  names = new Names;
  names->base_forward = module.attr("forward");
  names->types = PyDict_New();

  module.def_property(
      "training", [](const Module& self) { return self.training(); },
      [](Module& self, bool on) { ModuleTree(self).set_training(on); });
  module.def("_part", &part, "name"_a);
  module.def("_kind_of", [](const py::object& self, const std::string& name) {
    return entry_name(ModuleTree(self.cast<Module&>()).find(name));
  });
  module.def("_set_parameter", [](Module& self, const std::string& name, const ParameterTensor& p) {
    ModuleTree(self).set_parameter(name, p.parameter);
  });
  module.def("_set_buffer", [](Module& self, const std::string& name, const BufferTensor& b) {
    ModuleTree(self).set_buffer(name, b.parameter);
  });
  module.def("_set_child", [](Module& self, const std::string& name, const std::shared_ptr<Module>& child) {
    ModuleTree(self).set_child(name, child);
  });
  module.def(
      "pass_on", [](Module& self, const std::shared_ptr<Module>& inner) { ModuleTree(self).pass_on(inner); }, "inner"_a,
      "Makes the parts of `inner` also those of this module, under the same names.");
  module.def("_erase", [](Module& self, const std::string& name) { ModuleTree(self).erase(name); });
  module.def("_children_names", [](Module& self) {
    std::vector<std::string> all;
    for (const auto& child : ModuleTree(self).children()) all.push_back(child.name);
    return all;
  });
  // Returns the model in a wrapper, whose parts are those of the model.
  module.def("_wrapped", [](const py::object& self) -> py::object {
    const auto wrapper = self.cast<std::shared_ptr<Module>>();
    for (const auto& child : ModuleTree(*wrapper).children())
      if (child.name.empty()) return module_object(child, wrapper);
    return py::none();
  });
  module.def("_parameter_names", [](Module& self) {
    std::vector<std::string> all;
    for (const auto& [name, p] : self.named_parameters(false)) all.push_back(name);
    return all;
  });
  module.def("_buffer_names", [](Module& self) {
    std::vector<std::string> all;
    for (const auto& [name, p] : self.named_buffers(false)) all.push_back(name);
    return all;
  });
  module.def("_set_hooked", &set_hooked, "hooked"_a);
  module.def("_set_own_mode", [](Module& self) { set_mode(ModuleTree(self), self); });
  module.def("_become", &change_class, "cls"_a);
  // A transformer layer computes attention from the weights, and does not call the attention module.
  module.def("_in_transformer_layer", [](Module& self) {
    const Module* const parent = ModuleTree(self).parent();
    return dynamic_cast<const TransformerEncoderLayer*>(parent) != nullptr ||
           dynamic_cast<const TransformerDecoderLayer*>(parent) != nullptr;
  });
  module.def("_kind", &Module::kind);
  module.def(
      "extra_repr", [](Module& self) { return ModuleTree(self).extra_repr(); },
      "The text between the parentheses of repr().");
  module.def(
      "_place", [](const Module& self) { (void)self.devices(); }, released());
  module.def(
      "_to_devices", [](Module& self, const std::vector<Device>& devices) { self.to(devices); }, released());
  module.def(
      "_to_dtype", [](Module& self, DType dtype) { self.to(dtype); }, released());
  module.def(
      "_devices", [](const Module& self) { return self.devices(); }, released());
}

}  // namespace lockstep::python
