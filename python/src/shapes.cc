// Shapes: views, axes, parts, and joins.
#include <algorithm>

#include "functions.h"

namespace lockstep::python {
namespace {

// f(2, 3), f((2, 3)), f([2, 3]).
template <typename T>
T all_of(const py::args& numbers) {
  return (numbers.size() == 1 ? py::object(numbers[0]) : py::object(numbers)).cast<T>();
}

std::vector<int> ints(const Dims& dims) { return {dims.begin(), dims.end()}; }

template <typename F>
void def_shaped(const FunctionsOf& f, const char* name, const F& g) {
  f.tensor.def(name, [g](const Tensor& x, const py::args& sizes) {
    const auto shape = all_of<Shape>(sizes);
    const WithoutLock describing;
    return g(x, shape);
  });
}

}  // namespace

void add_shapes(const FunctionsOf& f) {
  const auto input = "input"_a;
  def_shaped(f, "view", [](const Tensor& x, const Shape& shape) { return x.view(shape); });
  def_shaped(f, "reshape", [](const Tensor& x, const Shape& shape) { return x.reshape(shape); });
  def_shaped(f, "expand", [](const Tensor& x, const Shape& shape) { return x.expand(shape); });
  def_shaped(f, "repeat", [](const Tensor& x, const Shape& shape) { return repeat(x, shape); });
  def_shaped(f, "tile", [](const Tensor& x, const Shape& shape) { return tile(x, shape); });
  f.function("reshape", [](const Tensor& x, const Shape& shape) { return x.reshape(shape); }, input, "shape"_a);
  f.function("tile", [](const Tensor& x, const Shape& dims) { return tile(x, dims); }, input, "dims"_a);
  f.tensor.def("permute", [](const Tensor& x, const py::args& dims) {
    const std::vector<int> order = ints(all_of<Dims>(dims));
    const WithoutLock describing;
    return permute(x, std::span<const int>(order));
  });
  f.function("permute", [](const Tensor& x, const Dims& dims) { return permute(x, std::span<const int>(ints(dims))); },
             input, "dims"_a);
  for (const char* name : {"transpose", "swapaxes", "swapdims"})
    f.both(name, [](const Tensor& x, int a, int b) { return transpose(x, a, b); }, input, "dim0"_a, "dim1"_a);
  f.both("t", [](const Tensor& x) { return x.dim() < 2 ? x : x.t(); }, input);
  f.both("flatten", [](const Tensor& x, int start, int end) { return flatten(x, start, end); }, input,
         "start_dim"_a = 0, "end_dim"_a = -1);
  f.both("unflatten", [](const Tensor& x, int dim, const Shape& sizes) { return unflatten(x, dim, sizes); }, input,
         "dim"_a, "sizes"_a);
  f.both("squeeze", [](const Tensor& x, const Dims& dim) { return squeeze(x, dim); }, input, "dim"_a = py::none());
  f.both("unsqueeze", [](const Tensor& x, int dim) { return unsqueeze(x, dim); }, input, "dim"_a);
  f.method("view_as", [](const Tensor& x, const Tensor& other) { return x.view(other.shape()); }, "other"_a);
  f.method("reshape_as", [](const Tensor& x, const Tensor& other) { return x.reshape(other.shape()); }, "other"_a);
  f.method("expand_as", [](const Tensor& x, const Tensor& other) { return x.expand(other.shape()); }, "other"_a);
  f.both("cat", [](const std::vector<Tensor>& all, int dim) { return cat(all, dim); }, "tensors"_a, "dim"_a = 0);
  f.function("concat", [](const std::vector<Tensor>& all, int dim) { return cat(all, dim); }, "tensors"_a, "dim"_a = 0);
  f.function("stack", [](const std::vector<Tensor>& all, int dim) { return stack(all, dim); }, "tensors"_a,
             "dim"_a = 0);
}

}  // namespace lockstep::python
