#include <cmath>
#include <string_view>

#include "creation.h"
#include "numpy.h"

namespace lockstep::python {
namespace {

// Returns the type of a number alone: Python's fractions are f32, and NumPy's numbers have their own type if the
// library has it.
DType type_of(py::handle item, const Scalar& number) {
  const std::string_view name = Py_TYPE(item.ptr())->tp_name;
  if (name == "numpy.float64") return DType::f64;
  if (name == "numpy.float16") return DType::f16;
  if (name == "numpy.uint8") return DType::u8;
  return number.is_bool() ? DType::boolean : number.is_whole() ? DType::i64 : DType::f32;
}

// Returns the type of numbers of both types, as PyTorch does.
DType common_type(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_floating(a)) return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
  return a == DType::i64 || b == DType::i64 ? DType::i64 : DType::u8;
}

// The numbers in nested lists, in plain order.
struct Numbers {
  std::vector<std::int64_t> extents;
  std::vector<Scalar> all;
  DType type = DType::f32;  // of no numbers

  void add(const Scalar& number, DType its) {
    type = all.empty() ? its : common_type(type, its);
    all.push_back(number);
  }

  void read(py::handle item, std::size_t depth) {
    Scalar number;
    if (read_number(item, number)) {
      check(depth == extents.size(), "tensor: a number beside a list, expected lists of one extent at each level");
      return add(number, type_of(item, number));
    }
    if (py::isinstance<Tensor>(item) || is_array(item)) {
      const Tensor x = py::isinstance<Tensor>(item) ? item.cast<Tensor>() : tensor_of_array(item, true);
      check(x.numel() == 1, "tensor: a list has {}, expected tensors of one element: use stack()", x);
      number = is_floating(x.dtype())        ? Scalar(x.item())
               : x.dtype() == DType::boolean ? Scalar(x.item<bool>())
               : x.dtype() == DType::u8      ? Scalar(x.item<std::uint8_t>())
                                             : Scalar(x.item<std::int64_t>());
      check(depth == extents.size(), "tensor: a number beside a list, expected lists of one extent at each level");
      return add(number, x.dtype());
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
  const DType type = dtype.value_or(numbers.type);
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
