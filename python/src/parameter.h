// lockstep.nn.Parameter and buffers: tensors in Python that follow a lockstep::Parameter. Such a tensor is made from
// the parameter each time a function takes it, so that the first use places its model, as in C++, and a move of the
// model changes the tensor. The same code updates the copies that stand for PyTorch's views: see views.h.
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
  // Makes this the parameter's current tensor.
  void refresh();
  // A handle of its own, which refers to this parameter even after a layer gets another one.
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

// Returns the one object of Python for this parameter or buffer, which stays the same while Python refers to it.
pybind11::object parameter_object(const Parameter& parameter);
pybind11::object buffer_object(const Parameter& buffer);
// Returns a parameter, or with `trainable` = false a buffer, with these initial values, outside of any module.
Parameter parameter_of(const Tensor& values, bool trainable);

}  // namespace lockstep::python

namespace pybind11::detail {

// A function gets a handle of its own, because without the lock another thread may make the object another tensor. A
// function that takes a Tensor& gets the object's handle and must hold the lock.
template <>
struct type_caster<lockstep::Tensor> {
  using Tensor = lockstep::Tensor;
  static constexpr auto name = type_caster_base<Tensor>::name;
  template <typename T>
  using cast_op_type = std::conditional_t<
      std::is_pointer_v<std::remove_reference_t<T>>, const Tensor*,
      std::conditional_t<std::is_same_v<T, Tensor&>, Tensor&,
                         std::conditional_t<std::is_lvalue_reference_v<T>, const Tensor&, Tensor&&>>>;

  bool load(handle source, bool convert) {
    lockstep::python::check_if_constructed<Tensor>(source);
    if (!object_.load(source, convert)) return false;
    if (source.is_none()) return true;
    // Updating the elements of a view releases the lock, and another thread may take the view away.
    if (const auto view = lockstep::python::memory_beside(source).view) {
      lockstep::python::follow(object(), *view);
    } else if (lockstep::python::live_tensor_type &&
               PyObject_TypeCheck(source.ptr(), lockstep::python::live_tensor_type)) {
      static_cast<lockstep::python::LiveTensor&>(object()).refresh();
    }
    handle_ = object();
    return true;
  }
  template <typename T>
  static handle cast(T&& tensor, return_value_policy policy, handle parent) {
    return type_caster_base<Tensor>::cast(std::forward<T>(tensor), policy, parent);
  }
  operator Tensor&() { return object(); }  // NOLINT(google-explicit-constructor)
  operator const Tensor&() {               // NOLINT(google-explicit-constructor)
    (void)object();
    return handle_;
  }
  operator Tensor&&() && {  // NOLINT(google-explicit-constructor)
    (void)object();
    return std::move(handle_);
  }
  operator const Tensor*() { return object_.operator Tensor*() ? &handle_ : nullptr; }  // NOLINT

 private:
  // Throws for None.
  Tensor& object() { return object_.operator Tensor&(); }

  type_caster_base<Tensor> object_;
  Tensor handle_;
};

// Like pybind11's own, which would require type_caster_base for the tensor, with references into objects.
template <>
struct move_only_holder_caster<lockstep::Tensor, lockstep::python::TensorHolder<lockstep::Tensor>> {
  using Holder = lockstep::python::TensorHolder<lockstep::Tensor>;
  static constexpr auto name = type_caster_base<lockstep::Tensor>::name;
  static handle cast(Holder&& holder, return_value_policy, handle) {
    return type_caster_base<lockstep::Tensor>::cast_holder(holder.get(), &holder);
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
