// Arguments for the axes of a kernel as Python passes them: 3 or (3, 5); sizes of results, where None keeps the size of
// the input; and the padding of convolutions, which may be 'same' or 'valid'.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <optional>
#include <vector>

#include "casters.h"
#include "lockstep/autograd/conv.h"

namespace lockstep::python {

template <std::size_t N>
struct Extents {
  std::array<std::int64_t, N> values{};
  // Returns the values as the library's options take them.
  auto in_options() const {
    if constexpr (N == 1) {
      return values[0];
    } else if constexpr (N == 2) {
      return HeightWidth(values);
    } else {
      return DepthHeightWidth(values);
    }
  }
};

template <std::size_t N>
struct ConvPadding : Extents<N> {};

// The size of a result. -1: the size of the input.
template <std::size_t N>
struct OutputSize {
  std::array<std::int64_t, N> values{};
};

}  // namespace lockstep::python

namespace pybind11::detail {

template <std::size_t N>
bool load_extents(handle source, std::array<std::int64_t, N>& values) {
  std::vector<std::int64_t> ints;
  if (!lockstep::python::read_ints(source, ints)) return false;
  if (ints.size() == 1) {
    values.fill(ints[0]);
    return true;
  }
  if (ints.size() != N) return false;
  std::copy(ints.begin(), ints.end(), values.begin());
  return true;
}

template <std::size_t N>
struct type_caster<lockstep::python::Extents<N>> {
  PYBIND11_TYPE_CASTER(lockstep::python::Extents<N>, const_name("int | tuple[int, ...]"));
  bool load(handle source, bool) { return load_extents(source, value.values); }
  static handle cast(const lockstep::python::Extents<N>& extents, return_value_policy, handle) {
    tuple all(N);
    for (std::size_t i = 0; i < N; ++i) all[i] = extents.values[i];
    return all.release();
  }
};

template <std::size_t N>
struct type_caster<lockstep::python::ConvPadding<N>> {
  PYBIND11_TYPE_CASTER(lockstep::python::ConvPadding<N>, const_name("int | tuple[int, ...] | str"));
  bool load(handle source, bool) {
    if (!isinstance<str>(source)) return load_extents(source, value.values);
    const auto word = reinterpret_borrow<str>(source).cast<std::string>();
    lockstep::check(word == "same" || word == "valid", "conv: padding is '{}', expected numbers, 'same', or 'valid'",
                    word);
    value.values.fill(word == "same" ? lockstep::kSame : 0);
    return true;
  }
  static handle cast(const lockstep::python::ConvPadding<N>& padding, return_value_policy policy, handle parent) {
    return make_caster<lockstep::python::Extents<N>>::cast(padding, policy, parent);
  }
};

template <std::size_t N>
struct type_caster<lockstep::python::OutputSize<N>> {
  PYBIND11_TYPE_CASTER(lockstep::python::OutputSize<N>, const_name("int | None | tuple[int | None, ...]"));
  bool load(handle source, bool) {
    if (!PyTuple_Check(source.ptr()) && !PyList_Check(source.ptr())) {
      if (source.is_none()) {
        value.values.fill(-1);
        return true;
      }
      return load_extents(source, value.values);
    }
    const auto items = reinterpret_borrow<sequence>(source);
    if (items.size() != N) return false;
    for (std::size_t i = 0; i < N; ++i) {
      const object item = items[i];
      std::array<std::int64_t, 1> one{-1};
      if (!item.is_none() && !load_extents(item, one)) return false;
      value.values[i] = one[0];
    }
    return true;
  }
  static handle cast(const lockstep::python::OutputSize<N>& size, return_value_policy, handle) {
    tuple all(N);
    for (std::size_t i = 0; i < N; ++i) all[i] = size.values[i];
    return all.release();
  }
};

}  // namespace pybind11::detail
