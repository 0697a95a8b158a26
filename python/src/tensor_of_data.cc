#include <cmath>

#include "creation.h"
#include "numpy.h"

namespace lockstep::python {
namespace {

// The numbers in nested lists, in plain order.
struct Numbers {
  std::vector<std::int64_t> extents;
  std::vector<Scalar> all;
  bool fractions = false, whole = false;  // otherwise bools

  void add(const Scalar& number) {
    fractions |= !number.is_whole();
    whole |= number.is_whole() && !number.is_bool();
    all.push_back(number);
  }

  void read(py::handle item, std::size_t depth) {
    Scalar number;
    if (read_number(item, number)) {
      check(depth == extents.size(), "tensor: a number beside a list, expected lists of one extent at each level");
      return add(number);
    }
    if (py::isinstance<Tensor>(item) || is_array(item)) {
      const Tensor x = py::isinstance<Tensor>(item) ? item.cast<Tensor>() : tensor_of_array(item, true);
      check(x.numel() == 1, "tensor: a list has {}, expected tensors of one element: use stack()", x);
      number = is_floating(x.dtype())        ? Scalar(x.item())
               : x.dtype() == DType::boolean ? Scalar(x.item<bool>())
               : x.dtype() == DType::u8      ? Scalar(x.item<std::uint8_t>())
                                             : Scalar(x.item<std::int64_t>());
      check(depth == extents.size(), "tensor: a number beside a list, expected lists of one extent at each level");
      return add(number);
    }
    if (py::isinstance<py::str>(item) || !py::isinstance<py::sequence>(item)) {
      throw py::type_error(fmt::format("tensor: data has a {}, expected numbers, lists of numbers, or an array",
                                       Py_TYPE(item.ptr())->tp_name));
    }
    const auto list = py::reinterpret_borrow<py::sequence>(item);
    const auto extent = static_cast<std::int64_t>(list.size());
    if (depth == extents.size()) {
      check(all.empty() || depth == 0, "tensor: a list beside a number, expected lists of one extent at each level");
      extents.push_back(extent);
    }
    check(extents[depth] == extent, "tensor: a list of {} beside one of {}, expected one extent at each level", extent,
          extents[depth]);
    for (const py::handle inner : list) read(inner, depth + 1);
  }

  DType type() const { return fractions || all.empty() ? DType::f32 : whole ? DType::i64 : DType::boolean; }
};

// Returns whether the innermost first element of nested lists is a NumPy array with axes.
bool is_list_of_arrays(py::handle data) {
  while ((PyList_Check(data.ptr()) || PyTuple_Check(data.ptr())) && py::len(data) > 0) {
    data = PyList_Check(data.ptr()) ? PyList_GET_ITEM(data.ptr(), 0) : PyTuple_GET_ITEM(data.ptr(), 0);
  }
  return is_numpy_array(data) && py::len(data.attr("shape")) > 0;
}

}  // namespace

Tensor tensor_of_data(py::handle data, std::optional<DType> dtype, bool copied) {
  if (py::isinstance<Tensor>(data)) {
    const Tensor x = data.cast<Tensor>();
    const WithoutLock describing;
    const Tensor y = copied ? clone(x.detach()) : x;
    return dtype ? y.to(*dtype) : y;
  }
  if (is_array(data)) {
    const Tensor x = tensor_of_array(data, copied);
    return dtype ? x.to(*dtype) : x;
  }
  if (is_list_of_arrays(data)) {
    return tensor_of_data(py::module_::import("numpy").attr("array")(data), dtype, copied);
  }
  Numbers numbers;
  numbers.read(data, 0);
  const Shape shape{std::span<const std::int64_t>(numbers.extents)};
  const DType type = dtype.value_or(numbers.type());
  return visit_dtype(type, [&](auto zero) -> Tensor {
    using T = decltype(zero);
    std::vector<T> values;
    values.reserve(numbers.all.size());
    for (const Scalar& n : numbers.all) {
      if constexpr (std::is_same_v<T, bool>) {
        values.push_back(n.to<bool>());
      } else if constexpr (std::is_integral_v<T>) {
        const Scalar whole = n.is_whole() ? n : Scalar(std::trunc(n.to<double>()));
        check(whole.fits_int64(), "tensor: {} in a tensor of {}, expected a number of its range", n, name(type));
        values.push_back(static_cast<T>(whole.to<std::int64_t>()));
      } else {
        values.push_back(n.to<T>());
      }
    }
    return Tensor::from(values, shape);
  });
}

}  // namespace lockstep::python
