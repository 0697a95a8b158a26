// Shared by all files of the Python module. Each add_*() adds one part of `lockstep._core`; module.cc calls them.
//
// The interpreter lock. Describing work is quick, but it may wait: for memory, for a queue that is full, for other
// ranks. A thread that waits with the lock would stop every other thread of Python, including those that run the
// callbacks (data sets, modules, hooks) that the wait is for. So every function that does more than read a property
// releases the lock: pass `released` to def(). A function that takes or makes py::object must release it itself, with
// WithoutLock, around the call of the library.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "casters.h"
#include "interpreter_lock.h"
#include "lockstep/lockstep.h"
#include "operand.h"
#include "optimizers.h"
#include "parameter.h"
#include "tensor_holder.h"

namespace lockstep::python {

using namespace py::literals;  // NOLINT(google-build-using-namespace): "dim"_a

using TensorClass = py::class_<Tensor, TensorHolder<Tensor>>;

// A Tensor object of Python, for functions that return or change the object itself. Signatures call it Tensor.
inline bool is_tensor(PyObject* object) { return py::isinstance<Tensor>(object); }
class TensorObject : public py::object {
 public:
  PYBIND11_OBJECT(TensorObject, object, is_tensor)
};

// The order matters: a signature names only classes that were added before.
void add_errors(py::module_& m);
// Prefixes a lockstep.Error that names no layer with the module's path.
void name_layer(const py::error_already_set& error, const Module& module);
void add_types(py::module_& m);    // dtype, Size
void add_devices(py::module_& m);  // device, set_devices, synchronize, manual_seed
TensorClass add_tensor(py::module_& m);
void add_creation(py::module_& m);
void add_grad_mode(py::module_& m);
void add_amp(py::module_& m);                         // autocast, loss scaling
void add_numpy(py::module_& m, TensorClass& tensor);  // NumPy, DLPack
void add_operators(TensorClass& tensor);
void add_indexing(TensorClass& tensor);
void add_functions(py::module_& m, TensorClass& tensor);  // functions and methods of tensors
void add_functional(py::module_& m);                      // nn.functional
void add_parameters(py::module_& m);                      // Parameter, buffers, init
void add_module(py::module_& m);                          // Module, Parameter, hooks, state_dict
void add_layers(py::module_& m);
void complete_modules(py::module_& m);  // after all classes of modules have been added
void add_optimizers(py::module_& m);
void add_data(py::module_& m);
void add_parallel(py::module_& m);     // split_and_load, and the base of DataParallel and DistributedDataParallel
void add_save(py::module_& m);         // save, load, weights
void add_distributed(py::module_& m);  // process groups, and functions for multiprocessing.spawn()

}  // namespace lockstep::python

template <>
struct pybind11::detail::handle_type_name<lockstep::python::TensorObject> {
  static constexpr auto name = const_name("Tensor");
};
