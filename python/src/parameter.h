// lockstep.nn.Parameter and buffers: tensors in Python that follow a lockstep::Parameter. Such a tensor is made of the
// parameter each time that a function takes it, so that the first use places its model, as in C++, and a move of the
// model changes what it is. The same place brings the copies that stand for PyTorch's views up to date: see views.h.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "casters.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/parameter.h"
#include "tensor_holder.h"

namespace lockstep::python {

struct LiveTensor : Tensor {
  explicit LiveTensor(const Parameter& p);
  ~LiveTensor();
  LiveTensor(const LiveTensor&) = delete;
  LiveTensor& operator=(const LiveTensor&) = delete;
  // Makes this the parameter's tensor of now.
  void refresh();
  // A handle of its own, which stays with this parameter when a layer gets another one.
  const Parameter parameter;
};
struct ParameterTensor : LiveTensor {
  using LiveTensor::LiveTensor;
};
struct BufferTensor : LiveTensor {
  using LiveTensor::LiveTensor;
};

// The class of LiveTensor in Python; null before it exists.
extern PyTypeObject* live_tensor_type;

// The one object of Python for this parameter or buffer: the same as long as Python refers to it.
pybind11::object parameter_object(const Parameter& parameter);
pybind11::object buffer_object(const Parameter& buffer);
// A parameter, or with `trainable` = false a buffer, with these initial values, of no module yet.
Parameter parameter_of(const Tensor& values, bool trainable);

}  // namespace lockstep::python

namespace pybind11::detail {

template <>
struct type_caster<lockstep::Tensor> : type_caster_base<lockstep::Tensor> {
  bool load(handle source, bool convert) {
    lockstep::python::check_if_constructed<lockstep::Tensor>(source);
    if (!type_caster_base::load(source, convert)) return false;
    if (source.is_none()) return true;
    auto* const tensor = static_cast<lockstep::Tensor*>(value);
    const auto& view = lockstep::python::memory_beside(source).view;
    if (view) {
      lockstep::python::follow(*tensor, *view);
    } else if (lockstep::python::live_tensor_type &&
               PyObject_TypeCheck(source.ptr(), lockstep::python::live_tensor_type)) {
      static_cast<lockstep::python::LiveTensor*>(tensor)->refresh();
    }
    return true;
  }
};

template <>
struct type_caster<lockstep::Module> : type_caster_base<lockstep::Module> {
  bool load(handle source, bool convert) {
    lockstep::python::check_if_constructed<lockstep::Module>(source);
    return type_caster_base::load(source, convert);
  }
};
template <>
struct type_caster<std::shared_ptr<lockstep::Module>>
    : copyable_holder_caster<lockstep::Module, std::shared_ptr<lockstep::Module>> {
  bool load(handle source, bool convert) {
    lockstep::python::check_if_constructed<lockstep::Module>(source);
    return copyable_holder_caster::load(source, convert);
  }
};

// A lockstep::Parameter is a Parameter or a buffer of Python.
template <>
struct type_caster<lockstep::Parameter> {
  PYBIND11_TYPE_CASTER(lockstep::Parameter, const_name("Parameter"));
  bool load(handle source, bool) {
    if (!PyObject_TypeCheck(source.ptr(), lockstep::python::live_tensor_type)) return false;
    value = source.cast<const lockstep::python::LiveTensor&>().parameter;
    return true;
  }
  static handle cast(const lockstep::Parameter& p, return_value_policy, handle) {
    return (p.trainable() ? lockstep::python::parameter_object(p) : lockstep::python::buffer_object(p)).release();
  }
};

}  // namespace pybind11::detail
