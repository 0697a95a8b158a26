// Converts arguments of Python to small values of the library, and back: Shape (an int or a sequence of ints; Python
// gets lockstep.Size), Dims (None, an int, or a sequence of ints), Device (a name such as "cpu:1", or a
// lockstep.device).
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "lockstep/autograd/dims.h"
#include "lockstep/device/device.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::python {

// Reads an int or a sequence of ints. Returns false for other objects. An int that does not fit is an OverflowError.
bool read_ints(pybind11::handle source, std::vector<std::int64_t>& ints);
// Returns a lockstep.Size with these extents.
pybind11::object size_object(const Shape& shape);
// Reads a name or a lockstep.device, and finds the device in the default Runtime, which it makes if there is none.
// Throws if no device has the name. Returns false for other objects.
bool read_device(pybind11::handle source, Device& device);
// The target of a move. "cpu" without an index also means host memory: a tensor that is there stays there.
struct Place {
  Device device;
  bool or_host = false;
  bool has(Device at) const { return at == device || (or_host && at.is_host()); }
};
bool read_place(pybind11::handle source, Place& place);
// Returns a lockstep.device.
pybind11::object device_object(Device device);

// Throws if the __init__() of `self`, an object of a bound class, has not run, because pybind11 would pass its methods
// memory that was never constructed.
void check_constructed(pybind11::handle self);
template <typename T>
void check_if_constructed(pybind11::handle source) {
  static PyTypeObject* const type =
      reinterpret_cast<PyTypeObject*>(pybind11::detail::get_type_handle(typeid(T), false).ptr());
  if (type != nullptr && PyObject_TypeCheck(source.ptr(), type)) check_constructed(source);
}

}  // namespace lockstep::python

namespace pybind11::detail {

template <>
struct type_caster<lockstep::Shape> {
  PYBIND11_TYPE_CASTER(lockstep::Shape, const_name("Size"));
  bool load(handle source, bool) {
    std::vector<std::int64_t> ints;
    if (!lockstep::python::read_ints(source, ints)) return false;
    value = lockstep::Shape(std::span<const std::int64_t>(ints));
    return true;
  }
  static handle cast(const lockstep::Shape& shape, return_value_policy, handle) {
    return lockstep::python::size_object(shape).release();
  }
};

template <>
struct type_caster<lockstep::Dims> {
  PYBIND11_TYPE_CASTER(lockstep::Dims, const_name("int | tuple[int, ...] | None"));
  bool load(handle source, bool) {
    if (source.is_none()) return true;
    std::vector<std::int64_t> ints;
    if (!lockstep::python::read_ints(source, ints)) return false;
    for (const std::int64_t dim : ints) {
      if (dim != static_cast<int>(dim)) throw index_error("an axis that no tensor has");
    }
    value = lockstep::Dims(std::vector<int>(ints.begin(), ints.end()));
    return true;
  }
  static handle cast(const lockstep::Dims& dims, return_value_policy, handle) {
    list result;
    for (const int dim : dims) result.append(dim);
    return tuple(result).release();
  }
};

template <>
struct type_caster<lockstep::Device> {
  PYBIND11_TYPE_CASTER(lockstep::Device, const_name("device | str"));
  bool load(handle source, bool) { return lockstep::python::read_device(source, value); }
  static handle cast(lockstep::Device device, return_value_policy, handle) {
    return lockstep::python::device_object(device).release();
  }
};

template <>
struct type_caster<lockstep::python::Place> {
  PYBIND11_TYPE_CASTER(lockstep::python::Place, const_name("device | str"));
  bool load(handle source, bool) { return lockstep::python::read_place(source, value); }
};

}  // namespace pybind11::detail
