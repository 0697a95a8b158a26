// x[...] as Python writes it: positions, slices, ..., None, masks, index tensors, lists, tuples, and NumPy arrays.
#include <algorithm>

#include "creation.h"
#include "functions.h"
#include "in_place.h"
#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/index_list.h"
#include "lockstep/autograd/lift.h"
#include "numpy.h"
#include "views.h"

namespace lockstep::python {
namespace {

using Indices = std::vector<TensorIndex>;

// The effect of each index on PyTorch's strides: the step of a slice, or one of these values.
constexpr std::int64_t kPosition = 0, kRest = -1, kNew = -2;

std::optional<std::int64_t> bound(PyObject* bound) {
  if (bound == Py_None) return {};
  const Py_ssize_t value = PyNumber_AsSsize_t(bound, nullptr);
  if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
  return value;
}

// Returns the indices in a list: positions, or bools.
Tensor index_tensor(py::handle item) {
  const Tensor index = py::isinstance<Tensor>(item) ? item.cast<Tensor>() : tensor_of_data(item, {}, false);
  // An empty list becomes a float tensor by default.
  const bool is_nothing = index.numel() == 0 && !py::isinstance<Tensor>(item) && !is_array(item);
  return is_nothing ? index.to(DType::i64) : index;
}

void add_index(py::handle item, Indices& indices) {
  PyObject* const object = item.ptr();
  if (PyLong_CheckExact(object)) {
    const long long position = PyLong_AsLongLong(object);
    if (position == -1 && PyErr_Occurred()) throw py::error_already_set();
    indices.emplace_back(static_cast<std::int64_t>(position));
  } else if (PySlice_Check(object)) {
    const auto* const slice = reinterpret_cast<PySliceObject*>(object);
    const std::int64_t step = bound(slice->step).value_or(1);
    if (step < 1) throw py::value_error(fmt::format("a slice has step {}, expected at least 1: use flip()", step));
    indices.emplace_back(Slice(bound(slice->start), bound(slice->stop), step));
  } else if (object == Py_Ellipsis) {
    indices.emplace_back(Ellipsis);
  } else if (item.is_none() || object == Py_True) {
    indices.emplace_back(None);
  } else if (object == Py_False) {
    throw py::index_error("False as an index, which chooses nothing, expected a position, a slice, or a mask");
  } else if (py::isinstance<Tensor>(item) || PyList_Check(object) || PyTuple_Check(object) || PyRange_Check(object)) {
    indices.emplace_back(index_tensor(item));
  } else if (is_array(item)) {
    indices.emplace_back(index_tensor(item));
  } else {
    throw py::type_error(fmt::format("a {} as an index, expected positions, slices, ..., None, masks, or tensors",
                                     Py_TYPE(object)->tp_name));
  }
}

// Returns whether the item is a position: an int, or a tensor or an array that has one int and no axes.
bool is_position(py::handle item) {
  if (py::isinstance<Tensor>(item)) {
    const auto& x = item.cast<Tensor>();
    // In an exported model, the position must come from the tensor, so this is not a constant.
    return x.dim() == 0 && x.dtype() == DType::i64 && !ForwardTrace::current();
  }
  if (PyIndex_Check(item.ptr()) == 0) return false;
  return !is_array(item) || py::getattr(item, "ndim", py::int_(1)).cast<int>() == 0;
}

// Returns the item, with a Python int if it is a position.
py::object plain_item(py::handle item) {
  PyObject* const object = item.ptr();
  if (PyLong_CheckExact(object) || PyBool_Check(object) || PySlice_Check(object) || !is_position(item)) {
    return py::reinterpret_borrow<py::object>(item);
  }
  if (py::isinstance<Tensor>(item)) return item.attr("item")();
  auto position = py::reinterpret_steal<py::object>(PyNumber_Index(object));
  if (!position) throw py::error_already_set();
  return position;
}

py::object plain_key(const py::object& key) {
  if (!PyTuple_Check(key.ptr())) return plain_item(key);
  const auto items = py::reinterpret_borrow<py::tuple>(key);
  py::tuple plain(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) plain[i] = plain_item(items[i]);
  return plain;
}

std::int64_t step_of(py::handle item) {
  if (PySlice_Check(item.ptr())) return bound(reinterpret_cast<PySliceObject*>(item.ptr())->step).value_or(1);
  if (item.ptr() == Py_Ellipsis) return kRest;
  return item.is_none() ? kNew : kPosition;
}

// Returns the strides for a key without tensors.
Strides indexed_strides(py::handle key, const Shape& shape, const Strides& strides) {
  std::vector<std::int64_t> steps;
  if (PyTuple_Check(key.ptr())) {
    for (const py::handle item : py::reinterpret_borrow<py::tuple>(key)) steps.push_back(step_of(item));
  } else {
    steps.push_back(step_of(key));
  }
  if (std::ranges::find(steps, kRest) == steps.end()) steps.push_back(kRest);
  const auto chosen = static_cast<std::size_t>(std::ranges::count_if(steps, [](std::int64_t s) { return s >= 0; }));
  Strides result;
  std::size_t axis = 0;
  for (const std::int64_t step : steps) {
    if (step == kNew) {
      result.push_back(axis < strides.size() ? shape[static_cast<int>(axis)] * strides[axis] : 1);
    } else if (step == kRest) {
      for (std::size_t rest = strides.size() - chosen; rest > 0; --rest) result.push_back(strides[axis++]);
    } else {
      if (step != kPosition) result.push_back(strides[axis] * step);
      ++axis;
    }
  }
  return result;
}

Indices indices_of(py::handle key) {
  Indices indices;
  if (PyTuple_Check(key.ptr())) {
    const auto items = py::reinterpret_borrow<py::tuple>(key);
    indices.reserve(items.size());
    for (const py::handle item : items) add_index(item, indices);
  } else {
    add_index(key, indices);
  }
  return indices;
}

// Throws IndexError outside of axis 0, because Python's for loop over __getitem__ ends with it.
void check_position(const Tensor& x, py::handle key) {
  if (!PyLong_CheckExact(key.ptr())) return;
  const long long position = PyLong_AsLongLong(key.ptr());
  const std::int64_t n = x.dim() > 0 ? x.size(0) : 0;
  if (position < -n || position >= n) {
    throw py::index_error(fmt::format("index {} is out of bounds for {}", position, x.describe()));
  }
}

bool has_tensors(py::handle key) {
  const auto is_tensor = [](py::handle item) {
    return PyBool_Check(item.ptr()) ||
           !(PyLong_Check(item.ptr()) || PySlice_Check(item.ptr()) || item.ptr() == Py_Ellipsis || item.is_none());
  };
  if (!PyTuple_Check(key.ptr())) return is_tensor(key);
  for (const py::handle item : py::reinterpret_borrow<py::tuple>(key)) {
    if (is_tensor(item)) return true;
  }
  return false;
}

py::object get_item(const py::object& self, const py::object& given) {
  const py::object key = plain_key(given);
  const Tensor x = self.cast<Tensor>();
  check_position(x, key);
  const auto read = [indices = indices_of(key)](const Tensor& t) {
    const Tensor y = index(t, indices);
    return y.is_same(t) ? t.reshape(t.shape()) : y;  // x[:] has a history of its own
  };
  const std::uint64_t writes = writes_to(x);
  Tensor y;
  {
    const WithoutLock describing;
    y = read(x);
  }
  // In PyTorch, indexing with tensors never returns a view.
  if (has_tensors(key)) {
    if (shares_memory(x, y)) {  // x[True]
      const WithoutLock describing;
      y = clone(y);
    }
    return py::cast(y);
  }
  return view_of(self, y, [&](const Strides& strides) {
    return ViewKind{.read = read,
                    .back = [indices = indices_of(key)](const Tensor& t,
                                                        const Tensor& elements) { index_put_(t, indices, elements); },
                    .strides = indexed_strides(key, x.shape(), strides),
                    .writes = writes};
  });
}

void set_item(const py::object& self, const py::object& given, const py::object& value) {
  const py::object key = plain_key(given);
  const Tensor x = self.cast<Tensor>();
  check_position(x, key);
  const Indices indices = indices_of(key);
  Tensor elements;
  Scalar number;
  const bool is_number = read_number(value, number);
  if (!is_number) {
    py::detail::make_caster<Tensor> tensor;
    elements = !value.is_none() && tensor.load(value, true) ? py::detail::cast_op<const Tensor&>(tensor)
                                                            : tensor_of_data(value, {}, false);
  }
  const auto put = [&](const Tensor& to) {
    if (!is_number) return elements;
    const Tensor made =
        number.is_whole() ? Tensor::from({number.to<std::int64_t>()}, {}) : Tensor::from({number.to<double>()}, {});
    return made.to(to.dtype()).to(to.device());
  };
  if (records_write(x, elements.requires_grad())) {
    Tensor result;
    {
      const WithoutLock describing;
      result = index_put(x, indices, put(x));
    }
    return become("x[i] = ...", self, result);
  }
  {
    const WithoutLock describing;
    index_put_(x, indices, put(x));
  }
  after_write(self);
}

}  // namespace

void add_indexing(TensorClass& tensor) {
  tensor.def("__getitem__", &get_item, "index"_a);
  tensor.def("__setitem__", &set_item, "index"_a, "value"_a);
}

}  // namespace lockstep::python
