// Reductions: sums, means, largest elements, and other functions whose result has fewer elements than the input.
#include "functions.h"

#include <algorithm>
#include <limits>

namespace lockstep::python {
namespace {

// Returns the result in PyTorch's shape: without axes if all were reduced.
Tensor shaped(const Tensor& result, const Tensor& x, const Dims& dims, bool keepdim) {
  const auto reduced = std::distance(dims.begin(), dims.end());
  return !keepdim && (reduced == 0 || reduced == x.dim()) && result.dim() != 0 ? result.reshape({}) : result;
}

double order_of(const py::object& p) {
  if (py::isinstance<py::str>(p)) {
    const auto name = p.cast<std::string>();
    check(name == "fro", "norm: p is '{}', expected a number or 'fro'", name);
    return 2;
  }
  return p.is_none() ? 2 : p.cast<double>();
}

// Computes f(x) in `dtype`. Without a dtype, f chooses: sums and products of bool and uint8 are int64.
template <typename F>
Tensor in_type(const Tensor& x, std::optional<DType> dtype, const F& f) {
  return dtype ? f(x.to(*dtype)).to(*dtype) : f(x);
}

using Reduce = Tensor (*)(const Tensor&, const Dims&, bool);
using AlongOne = MaxResult (*)(const Tensor&, int, bool);
using Index = Tensor (*)(const Tensor&, std::optional<int>, bool);

}  // namespace

py::object named_pair(const char* name, const char* first, const char* second, const Tensor& a, const Tensor& b) {
  // The classes live as long as the process.
  static auto& classes = *new std::vector<std::pair<std::string, py::object>>;
  auto found = std::find_if(classes.begin(), classes.end(), [&](const auto& known) { return known.first == name; });
  if (found == classes.end())
    found = classes.insert(
        found, {name, py::module_::import("lockstep.return_types").attr("pair_class")(name, first, second)});
  return found->second(a, b);
}

void add_reductions(const FunctionsOf& f) {
  const auto input = "input"_a;
  const auto dim = "dim"_a = py::none();
  const auto keepdim = "keepdim"_a = false;
  const auto dtype = "dtype"_a = py::none();
  for (const auto& [name, reduce] :
       {std::pair<const char*, Reduce>{"sum", [](const Tensor&x, const Dims&d, bool k) { return sum(x, d, k); }},
        {"mean", [](const Tensor&x, const Dims&d, bool k) { return mean(x, d, k); }}}) {
    const auto reduced = [reduce = reduce](const Tensor& x, const Dims& d, bool k, std::optional<DType> t) {
      return shaped(in_type(x, t, [&](const Tensor& y) { return reduce(y, d, k); }), x, d, k);
    };
    f.both(name, reduced, input, dim, keepdim, py::kw_only(), dtype);
    // Overload with NumPy's argument names, which PyTorch also takes.
    f.both(name, reduced, input, "axis"_a = py::none(), "keepdims"_a = false, py::kw_only(), dtype);
  }
  for (const auto& [name, reduce] : {std::pair<const char*, Reduce>{"amax", amax},
                                     {"amin", amin},
                                     {"any", any},
                                     {"all", all},
                                     {"logsumexp", logsumexp}}) {
    f.both(
        name, [reduce = reduce](const Tensor& x, const Dims& d, bool k) { return shaped(reduce(x, d, k), x, d, k); },
        input, dim, keepdim);
  }
  struct Extreme {
    const char* name;
    Tensor (*all)(const Tensor&);
    AlongOne along;
    Tensor (*pairwise)(const Tensor&, const Tensor&);
  };
  for (const auto& [name, all_of, along, pairwise] :
       {Extreme{"max", max, max, maximum}, Extreme{"min", min, min, minimum},
        Extreme{"median", median, median, nullptr}}) {
    f.both(
        name, [all_of = all_of](const Tensor& x) { return scalar(all_of(x)); }, input);
    // Comes before the overload with an axis, because a tensor of one integer is an index, too.
    if (pairwise != nullptr) {
      f.both(
          name, [pairwise = pairwise](const Tensor& a, const Tensor& b) { return pairwise(a, b); }, input, "other"_a);
    }
    f.m.def(
        name,
        [name = name, along = along](const Tensor& x, int d, bool k) {
          MaxResult result;
          {
            const WithoutLock describing;
            result = along(x, d, k);
          }
          return named_pair(name, "values", "indices", result.values, result.indices);
        },
        input, "dim"_a, keepdim, "(values, indices) along the axis.");
  }
  for (const auto& [name, index] : {std::pair<const char*, Index>{"argmax", argmax}, {"argmin", argmin}}) {
    const auto found = [index = index](const Tensor& x, std::optional<int> d, bool k) {
      const Tensor y = index(x, d, k);
      return d || k ? shaped(y, x, d ? Dims(*d) : Dims(), k) : scalar(y);
    };
    f.both(name, found, input, dim, keepdim);
    f.both(name, found, input, "axis"_a, "keepdims"_a = false);
  }
  using Spread = Tensor (*)(const Tensor&, const Dims&, const VarOptions&);
  for (const auto& [name, spread] : {std::pair<const char*, Spread>{"var", var}, {"std", std}}) {
    f.both(
        name,
        [spread = spread](const Tensor& x, bool unbiased) {
          return scalar(spread(x, {}, {.correction = unbiased ? 1.0 : 0.0}));
        },
        input, "unbiased"_a);
    f.both(
        name,
        [spread = spread](const Tensor& x, const Dims& d, std::optional<bool> unbiased, bool k,
                          std::optional<double> correction) {
          const double less = correction.value_or(unbiased.value_or(true) ? 1 : 0);
          return shaped(spread(x, d, {.correction = less, .keepdim = k}), x, d, k);
        },
        input, dim, "unbiased"_a = py::none(), keepdim, py::kw_only(), "correction"_a = py::none());
  }
  const auto with_mean = [&](const char* name, auto spread_and_mean) {
    const auto both = [spread_and_mean](const Tensor& x, const Dims& d, double correction, bool k) {
      Tensor spread, mean;
      {
        const WithoutLock describing;
        const auto found = spread_and_mean(x, d, {.correction = correction, .keepdim = k});
        const auto& [its_spread, its_mean] = found;
        spread = shaped(its_spread, x, d, k);
        mean = shaped(its_mean, x, d, k);
      }
      return py::make_tuple(spread, mean);
    };
    f.m.def(
        name, [both](const Tensor& x, bool unbiased) { return both(x, {}, unbiased ? 1 : 0, false); }, input,
        "unbiased"_a);
    f.m.def(
        name,
        [both](const Tensor& x, const Dims& d, std::optional<bool> unbiased, bool k, std::optional<double> correction) {
          return both(x, d, correction.value_or(unbiased.value_or(true) ? 1 : 0), k);
        },
        input, dim, "unbiased"_a = py::none(), keepdim, py::kw_only(), "correction"_a = py::none());
  };
  with_mean("std_mean", std_mean);
  with_mean("var_mean", var_mean);
  f.both(
      "prod",
      [](const Tensor& x, std::optional<DType> t) {
        return scalar(in_type(x, t, [](const Tensor& y) { return prod(y); }));
      },
      input, py::kw_only(), dtype);
  f.both(
      "prod",
      [](const Tensor& x, int d, bool k, std::optional<DType> t) {
        return shaped(in_type(x, t, [&](const Tensor& y) { return prod(y, d, k); }), x, d, k);
      },
      input, "dim"_a, keepdim, py::kw_only(), dtype);
  f.m.def(
      "norm",
      [](const Tensor& x, const py::object& p, const Dims& d, bool k, std::optional<DType> t) {
        const double order = order_of(p);
        const WithoutLock describing;
        return shaped(in_type(x, t, [&](const Tensor& y) { return norm(y, order, d, k); }), x, d, k);
      },
      input, "p"_a = "fro", dim, keepdim, dtype);
  f.also_method("norm");
  for (const char* name : {"max", "min", "median"}) f.also_method(name);
  for (const auto& [name, along] :
       {std::pair<const char*, Tensor (*)(const Tensor&, int)>{"cumsum", cumsum}, {"cumprod", cumprod}}) {
    const auto summed = [along = along](const Tensor& x, int d, std::optional<DType> t) {
      return in_type(x, t, [&](const Tensor& y) { return along(y, d); });
    };
    f.both(name, summed, input, "dim"_a, py::kw_only(), dtype);
    f.both(name, summed, input, "axis"_a, py::kw_only(), dtype);
  }
}

}  // namespace lockstep::python
