// What the files of layers share.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "module_class.h"

namespace lockstep::python {

// One number for all N axes, or one for each; a tuple in Python.
template <std::size_t N>
struct Extents {
  std::array<std::int64_t, N> values;
  operator std::array<std::int64_t, N>() const { return values; }  // NOLINT(google-explicit-constructor)
};
// The number of one axis; a tuple of one in Python, as PyTorch's layers keep it.
template <>
struct Extents<1> {
  std::array<std::int64_t, 1> values;
  operator std::int64_t() const { return values[0]; }  // NOLINT(google-explicit-constructor)
};
// A tuple, an int, or "same" or "valid".
template <std::size_t N>
struct Padding {
  std::optional<Extents<N>> same_or_widths;  // none: same
  bool same = false;
};

void add_containers(py::module_& m);  // Sequential
void add_activations(py::module_& m);
void add_recurrent_layers(py::module_& m);

template <typename M>
ModuleClass<M> layer_class(py::module_& m, const char* name, const char* text = "") {
  return ModuleClass<M>(m, name, text);
}
// A layer that one constructor makes.
template <typename M, typename Make, typename... Names>
ModuleClass<M> add_layer(py::module_& m, const char* name, Make make, const Names&... names) {
  ModuleClass<M> c(m, name);
  def_constructor(c, make, names...);
  return c;
}

}  // namespace lockstep::python

namespace pybind11::detail {

template <std::size_t N>
struct type_caster<lockstep::python::Extents<N>> {
  using Value = lockstep::python::Extents<N>;
  PYBIND11_TYPE_CASTER(Value, const_name("int | tuple[int, ...]"));
  bool load(handle source, bool) {
    std::vector<std::int64_t> ints;
    if (!lockstep::python::read_ints(source, ints)) return false;
    if (PyIndex_Check(source.ptr())) ints.assign(N, ints[0]);
    if (ints.size() != N) return false;
    std::copy(ints.begin(), ints.end(), value.values.begin());
    return true;
  }
  static handle cast(const Value& extents, return_value_policy, handle) {
    tuple result(N);
    for (std::size_t i = 0; i < N; ++i) result[i] = extents.values[i];
    return result.release();
  }
};

template <std::size_t N>
struct type_caster<lockstep::python::Padding<N>> {
  using Value = lockstep::python::Padding<N>;
  PYBIND11_TYPE_CASTER(Value, const_name("int | tuple[int, ...] | str"));
  bool load(handle source, bool convert) {
    value = {};
    if (PyUnicode_Check(source.ptr())) {
      const auto text = source.cast<std::string>();
      if (text != "same" && text != "valid") return false;
      value.same = text == "same";
      if (!value.same) value.same_or_widths = lockstep::python::Extents<N>{};
      return true;
    }
    make_caster<lockstep::python::Extents<N>> widths;
    if (!widths.load(source, convert)) return false;
    value.same_or_widths = cast_op<lockstep::python::Extents<N>>(widths);
    return true;
  }
  static handle cast(const Value& padding, return_value_policy policy, handle parent) {
    if (padding.same) return str("same").release();
    return make_caster<lockstep::python::Extents<N>>::cast(*padding.same_or_widths, policy, parent);
  }
};

}  // namespace pybind11::detail
