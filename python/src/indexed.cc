// Functions that choose, order, or count elements: gather, scatter, sort, unique, masks.
#include "functions.h"
#include "in_place.h"
#include "operators.h"
#include "views.h"

namespace lockstep::python {
namespace {

py::object sorted_pair(const char* name, const MaxResult& result) {
  return named_pair(name, "values", "indices", result.values, result.indices);
}

// Returns the pair that result() computes without the lock, as a named tuple.
template <typename F>
py::object pair_of(const char* name, const F& result) {
  MaxResult both;
  {
    const WithoutLock describing;
    both = result();
  }
  return sorted_pair(name, both);
}

Tensor filled(const Tensor& x, const Tensor& mask, const Operand& value) {
  if (value.tensor.defined()) {
    return kept_type(
        x, masked_fill(x, mask, value.tensor.dtype() == x.dtype() ? value.tensor : value.tensor.to(x.dtype())));
  }
  return masked_fill(x, mask, value.number);
}

Tensor close_of(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  check(rtol >= 0 && atol >= 0, "isclose: rtol {}, atol {}, expected at least 0", rtol, atol);
  if (!is_floating(a.dtype()) && !is_floating(b.dtype())) {
    // Compares in int64 first, because integers above 2^53 can share a double.
    const Tensor p = a.to(DType::i64), q = b.to(DType::i64);
    return logical_or(lockstep::eq(p, q), lockstep::le(abs(p - q).to(DType::f64), abs(q).to(DType::f64) * rtol + atol));
  }
  const Tensor x = is_floating(a.dtype()) ? a.detach() : a.to(DType::f64);
  const Tensor y = is_floating(b.dtype()) ? b.detach() : b.to(DType::f64);
  const Tensor near = logical_and(isfinite(y), lockstep::le(abs(x - y), abs(y) * rtol + atol));
  const Tensor close = logical_or(lockstep::eq(x, y), near);
  return equal_nan ? logical_or(close, logical_and(isnan(x), isnan(y))) : close;
}

// Compares slices as PyTorch does, which swaps the axis with the first one.
UniqueResult unique_slices(const Tensor& x, int dim) {
  if (x.dim() < 3) return unique(x, dim);
  UniqueResult all = unique(transpose(x, 0, dim), 0);
  all.values = transpose(all.values, 0, dim);
  return all;
}

}  // namespace

void add_indexed(const FunctionsOf& f) {
  const auto input = "input"_a;
  const auto dim = "dim"_a;
  f.both(
      "gather", [](const Tensor& x, int d, const Tensor& index) { return gather(x, d, index); }, input, dim, "index"_a);
  f.both(
      "take_along_dim",
      [](const Tensor& x, const Tensor& index, std::optional<int> d) {
        return d ? take_along_dim(x, index, *d) : take_along_dim(x.reshape({-1}), index.reshape({-1}), 0);
      },
      input, "indices"_a, "dim"_a = py::none());
  f.both(
      "index_select",
      [](const Tensor& x, int d, const Tensor& index) {
        return index_select(x, d, index.dim() == 0 ? index.reshape({1}) : index);
      },
      input, dim, "index"_a);
  f.both(
      "scatter",
      [](const Tensor& x, int d, const Tensor& index, const Tensor& src) { return scatter(x, d, index, src); }, input,
      dim, "index"_a, "src"_a);
  f.both(
      "scatter",
      [](const Tensor& x, int d, const Tensor& index, const Scalar& value) { return scatter(x, d, index, value); },
      input, dim, "index"_a, "value"_a);
  f.both(
      "scatter_add",
      [](const Tensor& x, int d, const Tensor& index, const Tensor& src) { return scatter_add(x, d, index, src); },
      input, dim, "index"_a, "src"_a);
  f.both(
      "index_add",
      [](const Tensor& x, int d, const Tensor& index, const Tensor& src, const Scalar& alpha) {
        return index_add(x, d, index, src, alpha);
      },
      input, dim, "index"_a, "source"_a, py::kw_only(), "alpha"_a = 1);
  f.both(
      "masked_select", [](const Tensor& x, const Tensor& mask) { return masked_select(x, mask); }, input, "mask"_a);
  f.both("masked_fill", filled, input, "mask"_a, "value"_a);
  f.tensor.def(
      "masked_fill_",
      [](const py::object& self, const Tensor& mask, const Operand& value) {
        return write_in_place("masked_fill_", self, [&](const Tensor& x) { return filled(x, mask, value); });
      },
      "mask"_a, "value"_a);
  for (const char* name : {"scatter_", "scatter_add_", "index_add_"}) {
    const std::string what = name;
    if (what == "index_add_") {
      f.tensor.def(
          name,
          [](const py::object& self, int d, const Tensor& index, const Tensor& src, const Scalar& alpha) {
            return write_in_place("index_add_", self,
                                  [&](const Tensor& x) { return index_add(x, d, index, src, alpha); });
          },
          dim, "index"_a, "source"_a, py::kw_only(), "alpha"_a = 1);
      continue;
    }
    const bool adds = what == "scatter_add_";
    f.tensor.def(
        name,
        [adds](const py::object& self, int d, const Tensor& index, const Tensor& src) {
          return write_in_place("scatter_", self, [&](const Tensor& x) {
            return adds ? scatter_add(x, d, index, src) : scatter(x, d, index, src);
          });
        },
        dim, "index"_a, "src"_a);
  }
  f.tensor.def(
      "scatter_",
      [](const py::object& self, int d, const Tensor& index, const Scalar& value) {
        return write_in_place("scatter_", self, [&](const Tensor& x) { return scatter(x, d, index, value); });
      },
      dim, "index"_a, "value"_a);
  f.m.def(
      "nonzero",
      [](const Tensor& x, bool as_tuple) -> py::object {
        Tensor places;
        std::vector<Tensor> columns;
        {
          const WithoutLock waiting;
          places = nonzero(as_tuple && x.dim() == 0 ? x.reshape({1}) : x);
          if (as_tuple) columns = unbind(places, 1);
        }
        return as_tuple ? py::object(py::tuple(py::cast(columns))) : py::cast(places);
      },
      input, py::kw_only(), "as_tuple"_a = false, "The places of all elements that are not 0: int64 [n, axes]. Waits.");
  f.also_method("nonzero");

  f.m.def(
      "sort",
      [](const Tensor& x, int d, bool descending, bool stable) {
        (void)stable;  // always stable
        return pair_of("sort", [&] { return sort(x, d, descending); });
      },
      input, "dim"_a = -1, "descending"_a = false, "stable"_a = false,
      "(values, indices); equal elements keep their order.");
  f.also_method("sort");
  f.both(
      "argsort",
      [](const Tensor& x, int d, bool descending, bool stable) {
        (void)stable;
        return argsort(x, d, descending);
      },
      input, "dim"_a = -1, "descending"_a = false, "stable"_a = false);
  f.m.def(
      "topk",
      [](const Tensor& x, std::int64_t k, int d, bool largest, bool ordered) {
        (void)ordered;  // always sorted
        return pair_of("topk", [&] { return topk(x, k, d, largest); });
      },
      input, "k"_a, "dim"_a = -1, "largest"_a = true, "sorted"_a = true, "(values, indices) of the first k.");
  f.also_method("topk");
  using Running = MaxResult (*)(const Tensor&, int);
  for (const auto& [name, running] : {std::pair<const char*, Running>{"cummax", cummax}, {"cummin", cummin}}) {
    f.m.def(
        name,
        [name = name, running = running](const Tensor& x, int d) {
          return pair_of(name, [&] { return running(x, d); });
        },
        input, dim);
    f.also_method(name);
  }
  f.m.def(
      "unique",
      [](const Tensor& x, bool sorted, bool inverse, bool counts, std::optional<int> d) -> py::object {
        (void)sorted;  // always sorted
        UniqueResult all;
        {
          const WithoutLock waiting;
          all = d ? unique_slices(x, *d) : unique(x);
        }
        if (!inverse && !counts) return py::cast(all.values);
        if (!counts) return py::make_tuple(all.values, all.inverse);
        if (!inverse) return py::make_tuple(all.values, all.counts);
        return py::make_tuple(all.values, all.inverse, all.counts);
      },
      input, "sorted"_a = true, "return_inverse"_a = false, "return_counts"_a = false, "dim"_a = py::none(),
      "The different elements in ascending order. Waits.");
  f.also_method("unique");
  f.both(
      "bincount",
      [](const Tensor& x, const std::optional<Tensor>& weights, std::int64_t least) {
        return bincount(x, weights.value_or(Tensor()), least);
      },
      input, "weights"_a = py::none(), "minlength"_a = 0);
  f.both(
      "multinomial", [](const Tensor& x, std::int64_t n, bool replacement) { return multinomial(x, n, replacement); },
      input, "num_samples"_a, "replacement"_a = false);
  f.m.def(
      "einsum",
      [](const std::string& equation, const py::args& operands) {
        const bool listed = operands.size() == 1 && !py::isinstance<Tensor>(operands[0]);
        const auto all = (listed ? py::object(operands[0]) : py::object(operands)).cast<std::vector<Tensor>>();
        const WithoutLock describing;
        return einsum(equation, all);
      },
      "equation"_a, "Sums of products: einsum(\"bij,bjk->bik\", a, b).");
  f.both("isclose", close_of, input, "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8, "equal_nan"_a = false);
  f.both(
      "allclose",
      [](const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
        const Tensor close = close_of(a, b, rtol, atol, equal_nan);
        return close.numel() == 0 || all(close).item() != 0;
      },
      input, "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8, "equal_nan"_a = false,
      "Whether all elements are near. Waits.");
  f.both(
      "equal", [](const Tensor& a, const Tensor& b) { return lockstep::equal(a, b); }, input, "other"_a,
      "Whether shapes and all elements are equal. Waits.");
}

}  // namespace lockstep::python
