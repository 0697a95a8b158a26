// Shapes: views, axes, parts, and joins. Functions with views in PyTorch take and return Python's tensors: see views.h.
#include <algorithm>
#include <functional>

#include "functions.h"
#include "in_place.h"
#include "lockstep/autograd/index_list.h"
#include "lockstep/autograd/promote.h"
#include "views.h"

namespace lockstep::python {
namespace {

// Returns the arguments of f(2, 3), f((2, 3)), or f([2, 3]).
template <typename T>
T all_of(const py::args& numbers) {
  return (numbers.size() == 1 ? py::object(numbers[0]) : py::object(numbers)).cast<T>();
}

std::vector<int> ints(const Dims& dims) { return {dims.begin(), dims.end()}; }

int axis_of(int dim, int axes) {
  if (dim < -axes || dim >= axes) {
    throw py::index_error(fmt::format("axis {} is out of range, expected {} to {}", dim, -axes, axes - 1));
  }
  return dim < 0 ? dim + axes : dim;
}

std::size_t at(int axis, std::size_t axes) { return static_cast<std::size_t>(axis_of(axis, static_cast<int>(axes))); }

// Returns a view with other extents, but the elements in the same order.
template <typename F>
py::object reshaped(py::handle self, const F& f) {
  const Tensor x = self.cast<Tensor>();
  Tensor y;
  {
    const WithoutLock describing;
    y = f(x);
  }
  return reshaped_view(self, y);
}

py::object permuted(py::handle self, const std::vector<int>& order) {
  std::vector<int> inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int axis = axis_of(order[i], static_cast<int>(order.size()));
    inverse[static_cast<std::size_t>(axis)] = static_cast<int>(i);
  }
  return viewed(
      self, [order](const Tensor& x) { return permute(x, std::span<const int>(order)); },
      [inverse](const Tensor& original, const Tensor& elements) {
        original.copy_from(permute(elements, std::span<const int>(inverse)));
      },
      [&](const Strides& before) {
        Strides strides;
        for (const int axis : order) strides.push_back(before[at(axis, before.size())]);
        return strides;
      });
}

Strides moved_strides(const Strides& before, const Dims& source, const Dims& destination) {
  const std::vector<int> from = ints(source), to = ints(destination);
  std::vector<std::size_t> order(before.size(), before.size());
  std::vector<bool> moves(before.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t axis = at(from[i], before.size());
    order[at(to[i], before.size())] = axis;
    moves[axis] = true;
  }
  std::size_t next = 0;
  for (std::size_t& axis : order) {
    if (axis < before.size()) continue;
    while (moves[next]) ++next;
    axis = next++;
  }
  Strides strides;
  for (const std::size_t axis : order) strides.push_back(before[axis]);
  return strides;
}

py::object swapped(py::handle self, int a, int b) {
  if (self.cast<Tensor>().dim() == 0 && (a == 0 || a == -1) && (b == 0 || b == -1)) {
    return py::reinterpret_borrow<py::object>(self);
  }
  return viewed(
      self, [a, b](const Tensor& x) { return transpose(x, a, b); },
      [a, b](const Tensor& original, const Tensor& elements) { original.copy_from(transpose(elements, a, b)); },
      [&](Strides strides) {
        std::swap(strides[at(a, strides.size())], strides[at(b, strides.size())]);
        return strides;
      });
}

py::object expanded(py::handle self, const Shape& shape) {
  const Shape before = self.cast<Tensor>().shape();
  return viewed(
      self, [shape](const Tensor& x) { return x.expand(shape); },
      [](const Tensor& original, const Tensor& elements) {
        check(original.numel() == elements.numel(),
              "expand: a write to {} elements that repeat {}, expected a clone() of them", elements.numel(),
              original.numel());
        original.copy_from(elements.reshape(original.shape()));
      },
      [&](const Strides& strides) {
        Strides repeated(static_cast<std::size_t>(shape.dim()));
        for (std::size_t i = 0, first = repeated.size() - strides.size(); i < strides.size(); ++i) {
          if (before[static_cast<int>(i)] != 1) repeated[first + i] = strides[i];
        }
        return repeated;
      });
}

// Writes elements [start, stop) of an axis back.
WriteBack back_to_slice(int axis, std::int64_t start, std::int64_t stop) {
  return [=](const Tensor& original, const Tensor& elements) {
    std::vector<TensorIndex> indices(static_cast<std::size_t>(axis), Slice());
    indices.emplace_back(Slice(start, stop));
    index_put_(original, indices, elements);
  };
}

WriteBack back_to_position(int axis, std::int64_t index) {
  return [=](const Tensor& original, const Tensor& elements) {
    std::vector<TensorIndex> indices(static_cast<std::size_t>(axis), Slice());
    indices.emplace_back(index);
    index_put_(original, indices, elements);
  };
}

Strides without(Strides strides, int axis) {
  strides.erase(strides.begin() + axis);
  return strides;
}

py::object narrowed(py::handle self, int dim, std::int64_t start, std::int64_t length) {
  const Tensor x = self.cast<Tensor>();
  const int axis = axis_of(dim, x.dim());
  const std::int64_t first = start < 0 ? start + x.size(axis) : start;
  return viewed(
      self, [=](const Tensor& t) { return t.narrow(axis, first, length); }, back_to_slice(axis, first, first + length),
      std::identity());
}

py::object selected(py::handle self, int dim, std::int64_t index) {
  const Tensor x = self.cast<Tensor>();
  const int axis = axis_of(dim, x.dim());
  return viewed(
      self, [=](const Tensor& t) { return t.select(axis, index); }, back_to_position(axis, index),
      [&](const Strides& strides) { return without(strides, axis); });
}

// Returns a tuple of views, one after another along an axis.
template <typename F>
py::tuple parts(py::handle self, int dim, const F& f, bool removes_axis = false) {
  const Tensor x = self.cast<Tensor>();
  const int axis = axis_of(dim, x.dim());
  const std::uint64_t writes = writes_to(x);
  std::vector<Tensor> all;
  {
    const WithoutLock describing;
    all = f(x, axis);
  }
  py::tuple views(all.size());
  std::int64_t start = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t stop = start + (removes_axis ? 1 : all[i].size(axis));
    views[i] = view_of(self, all[i], [&](const Strides& strides) {
      if (removes_axis) {
        return ViewKind{.read = [=](const Tensor& t) { return t.select(axis, start); },
                        .back = back_to_position(axis, start),
                        .strides = without(strides, axis),
                        .writes = writes};
      }
      return ViewKind{.read = [=](const Tensor& t) { return t.narrow(axis, start, stop - start); },
                      .back = back_to_slice(axis, start, stop),
                      .strides = strides,
                      .writes = writes};
    });
    start = stop;
  }
  return views;
}

// Defines a view as a function and a method: f(input, ...).
template <typename F, typename... Extra>
void def_view(const FunctionsOf& f, const char* name, const F& g, const Extra&... extra) {
  f.m.def(name, g, "input"_a, extra...);
  f.also_method(name);
}

template <typename F>
void def_sized(const FunctionsOf& f, const char* name, const char* keyword, const F& g) {
  f.tensor.def(name, [g](const py::object& self, const py::args& sizes) { return g(self, all_of<Shape>(sizes)); });
  f.tensor.def(
      name, [g](const py::object& self, const Shape& sizes) { return g(self, sizes); }, py::kw_only(),
      py::arg(keyword));
}

using Join = Tensor (*)(std::span<const Tensor>, int);

// Casts to one type. If parts are joined, drops those of shape [0], such as tensor([]), beside parts of several axes.
std::vector<Tensor> joinable(std::vector<Tensor> all, bool drops_nothing) {
  const auto is_nothing = [](const Tensor& x) { return x.dim() == 1 && x.numel() == 0; };
  if (drops_nothing && std::ranges::any_of(all, [](const Tensor& x) { return x.dim() > 1; })) {
    std::erase_if(all, is_nothing);
  }
  Tensor type = all[0];
  for (const Tensor& x : all) {
    const bool axes = x.dim() > 0;
    if (x.dtype() != type.dtype()) type = axes == (type.dim() > 0) ? promoted(x, type).first : axes ? x : type;
  }
  for (Tensor& x : all) {
    if (x.dtype() != type.dtype()) x = x.to(type.dtype());
  }
  return all;
}

}  // namespace

py::tuple rows_of(py::handle self) {
  const bool none = self.cast<Tensor>().size(0) == 0;
  return none ? py::tuple()
              : parts(
                    self, 0, [](const Tensor& x, int axis) { return unbind(x, axis); }, true);
}

void add_shapes(const FunctionsOf& f) {
  const auto input = "input"_a;
  const auto dim = "dim"_a;
  const auto viewed_as = [](const py::object& self, const Shape& shape) {
    const Tensor x = self.cast<Tensor>();
    Tensor y;
    {
      const WithoutLock describing;
      // For PyTorch, the result of a convolution is contiguous, whatever layout it has here.
      y = x.reshape(shape);
    }
    check(reshaped_strides(x.shape(), strides_of(self), y.shape()).has_value(),
          "view: {} as {}, but at least one dimension spans across two parts of its memory: use reshape()", x,
          y.shape());
    return reshaped_view(self, y);
  };
  const auto reshaped_as = [](const py::object& self, const Shape& shape) {
    return reshaped(self, [&](const Tensor& x) { return x.reshape(shape); });
  };
  f.tensor.def("view", [viewed_as](const py::object& self, const py::args& sizes) {
    check(sizes.size() != 1 || !py::isinstance<DType>(sizes[0]),
          "view: a type, expected the extents of a shape: to(dtype) converts the elements");
    return viewed_as(self, all_of<Shape>(sizes));
  });
  f.tensor.def("view", viewed_as, py::kw_only(), "size"_a);
  def_sized(f, "reshape", "shape", reshaped_as);
  def_sized(f, "expand", "size", expanded);
  f.tensor.def(
      "view_as", [viewed_as](const py::object& self, const Tensor& other) { return viewed_as(self, other.shape()); },
      "other"_a);
  f.tensor.def(
      "reshape_as",
      [reshaped_as](const py::object& self, const Tensor& other) { return reshaped_as(self, other.shape()); },
      "other"_a);
  f.tensor.def(
      "expand_as", [](const py::object& self, const Tensor& other) { return expanded(self, other.shape()); },
      "other"_a);
  f.tensor.def("broadcast_to", expanded, "size"_a);
  f.m.def("broadcast_to", expanded, input, "size"_a);
  f.m.def("reshape", reshaped_as, input, "shape"_a);
  f.tensor.def("permute",
               [](const py::object& self, const py::args& dims) { return permuted(self, ints(all_of<Dims>(dims))); });
  const auto permuted_to = [](const py::object& self, const Dims& dims) { return permuted(self, ints(dims)); };
  f.tensor.def("permute", permuted_to, py::kw_only(), "dims"_a);
  f.m.def("permute", permuted_to, input, "dims"_a);
  f.tensor.def_property_readonly("T", [](const py::object& self) {
    std::vector<int> order;
    for (int i = self.cast<Tensor>().dim() - 1; i >= 0; --i) order.push_back(i);
    return permuted(self, order);
  });
  f.tensor.def_property_readonly("mT", [](const py::object& self) { return swapped(self, -2, -1); });
  for (const char* name : {"transpose", "swapdims"}) def_view(f, name, swapped, "dim0"_a, "dim1"_a);
  def_view(f, "swapaxes", swapped, "axis0"_a, "axis1"_a);
  def_view(f, "t", [](const py::object& self) {
    const int axes = self.cast<Tensor>().dim();
    check(axes <= 2, "t: {} axes, expected at most 2: use transpose()", axes);
    return axes < 2 ? self : swapped(self, 0, 1);
  });
  for (const char* name : {"movedim", "moveaxis"}) {
    def_view(
        f, name,
        [](const py::object& self, const Dims& source, const Dims& destination) {
          return viewed(
              self, [=](const Tensor& x) { return movedim(x, source, destination); },
              [=](const Tensor& original, const Tensor& elements) {
                original.copy_from(movedim(elements, destination, source));
              },
              [&](const Strides& strides) { return moved_strides(strides, source, destination); });
        },
        "source"_a, "destination"_a);
  }
  def_view(
      f, "flatten",
      [](const py::object& self, int start, int end) {
        const int axes = self.cast<Tensor>().dim();
        const auto counted = [axes](int axis) { return axis < 0 ? axis + axes : axis; };
        // Returns the tensor itself for one axis, as PyTorch does.
        if (counted(start) == counted(end) && 0 <= counted(start) && counted(start) < axes) return self;
        return reshaped(self, [&](const Tensor& x) { return x.dim() == 0 ? x.reshape({1}) : flatten(x, start, end); });
      },
      "start_dim"_a = 0, "end_dim"_a = -1);
  for (const char* name : {"ravel"}) {
    def_view(f, name,
             [](const py::object& self) { return reshaped(self, [&](const Tensor& x) { return x.reshape({-1}); }); });
  }
  def_view(
      f, "unflatten",
      [](const py::object& self, int axis, const Shape& sizes) {
        return reshaped(self, [&](const Tensor& x) { return unflatten(x, axis, sizes); });
      },
      dim, "sizes"_a);
  def_view(
      f, "squeeze",
      [](const py::object& self, const Dims& dims) {
        const Tensor x = self.cast<Tensor>();
        if (!dims.empty()) {
          // PyTorch keeps axes of other extents.
          std::vector<int> ones;
          for (const int d : dims)
            if (x.dim() > 0 && x.size(axis_of(d, x.dim())) == 1) ones.push_back(d);
          if (ones.empty()) return reshaped(self, [](const Tensor& t) { return t.reshape(t.shape()); });
          return reshaped(self, [&](const Tensor& t) { return squeeze(t, ones); });
        }
        return reshaped(self, [&](const Tensor& t) { return squeeze(t); });
      },
      "dim"_a = py::none());
  def_view(
      f, "unsqueeze",
      [](const py::object& self, int axis) {
        return reshaped(self, [&](const Tensor& x) { return unsqueeze(x, axis); });
      },
      dim);
  def_view(f, "narrow", narrowed, dim, "start"_a, "length"_a);
  def_view(f, "select", selected, dim, "index"_a);
  const auto split_evenly = [](const py::object& self, std::int64_t size, int axis) {
    return parts(self, axis, [&](const Tensor& x, int a) { return split(x, size, a); });
  };
  const auto split_to = [](const py::object& self, const std::vector<std::int64_t>& sizes, int axis) {
    return parts(self, axis, [&](const Tensor& x, int a) { return split(x, sizes, a); });
  };
  for (const char* name : {"split", "split_with_sizes"}) {
    def_view(f, name, split_evenly, "split_size_or_sections"_a, dim = 0);
    def_view(f, name, split_to, "split_size_or_sections"_a, dim = 0);
  }
  def_view(
      f, "chunk",
      [](const py::object& self, int chunks, int axis) {
        return parts(self, axis, [&](const Tensor& x, int a) { return chunk(x, chunks, a); });
      },
      "chunks"_a, dim = 0);
  def_view(
      f, "unbind",
      [](const py::object& self, int axis) {
        return parts(
            self, axis, [](const Tensor& x, int a) { return unbind(x, a); }, true);
      },
      dim = 0);
  f.tensor.def("contiguous", contiguous_of);
  def_view(f, "clone", clone_of);
  const auto detached = [](const py::object& self) {
    return viewed(
        self, [](const Tensor& x) { return x.detach(); },
        [](const Tensor& original, const Tensor& elements) { original.copy_from(elements); }, std::identity());
  };
  f.tensor.def("detach", detached, "The same elements without a history.");
  f.tensor.def_property("data", detached, [](const py::object& self, const TensorObject& with) {
    check_not_shared(self, with);
    const auto x = self.cast<Tensor>(), value = with.cast<Tensor>();
    {
      const WithoutLock writing;
      x.detach().copy_from(value.detach());
    }
    after_write(self);
  });

  def_sized(f, "repeat", "repeats",
            [](const py::object& self, const Shape& sizes) { return repeat(self.cast<Tensor>(), sizes); });
  def_sized(f, "tile", "dims",
            [](const py::object& self, const Shape& dims) { return tile(self.cast<Tensor>(), dims); });
  f.function(
      "tile", [](const Tensor& x, const Shape& dims) { return tile(x, dims); }, input, "dims"_a);
  f.both(
      "repeat_interleave",
      [](const Tensor& x, std::int64_t repeats, std::optional<int> axis) {
        return repeat_interleave(x, repeats, axis);
      },
      input, "repeats"_a, dim = py::none());
  f.both(
      "repeat_interleave",
      [](const Tensor& x, const Tensor& repeats, std::optional<int> axis) {
        return axis ? repeat_interleave(x, repeats, *axis) : repeat_interleave(x.reshape({-1}), repeats, 0);
      },
      input, "repeats"_a, dim = py::none());
  f.tensor.def(
      "flip",
      [](const Tensor& x, const py::args& dims, const py::object& named) {
        const auto all = named.is_none() ? all_of<Dims>(dims) : named.cast<Dims>();
        const WithoutLock describing;
        return flip(x, all);
      },
      "dims"_a = py::none());
  f.function(
      "flip", [](const Tensor& x, const Dims& dims) { return flip(x, dims); }, input, "dims"_a);
  f.function(
      "fliplr", [](const Tensor& x) { return flip(x, 1); }, input);
  f.function(
      "flipud", [](const Tensor& x) { return flip(x, 0); }, input);
  f.both(
      "roll",
      [](const Tensor& x, const Dims& shifts, const Dims& dims) {
        const std::vector<int> by = ints(shifts);
        if (dims.empty()) {
          check(by.size() == 1, "roll: {} shifts without axes, expected one", by.size());
          return roll(x, by[0]);
        }
        return roll(x, {by.begin(), by.end()}, dims);
      },
      input, "shifts"_a, "dims"_a = py::none());
  f.both(
      "triu", [](const Tensor& x, std::int64_t diagonal) { return triu(x, diagonal); }, input, "diagonal"_a = 0);
  f.both(
      "tril", [](const Tensor& x, std::int64_t diagonal) { return tril(x, diagonal); }, input, "diagonal"_a = 0);

  for (const auto& [name, join] :
       {std::pair<const char*, Join>{"cat", cat}, {"concat", cat}, {"concatenate", cat}, {"stack", stack}}) {
    const auto joined = [join = join](const std::vector<Tensor>& all, int axis) {
      check(!all.empty(), "cat: no tensors, expected at least one");
      return join(joinable(all, join == static_cast<Join>(cat)), axis);
    };
    f.function(name, joined, "tensors"_a, dim = 0);
    f.function(name, joined, "tensors"_a, "axis"_a);
  }
  const auto at_least = [](int axes) {
    return [axes](const Tensor& x) {
      return x.dim() >= axes ? x : axes == 1 ? x.reshape({1}) : x.dim() == 0 ? x.reshape({1, 1}) : unsqueeze(x, 0);
    };
  };
  f.function(
      "vstack",
      [at_least](const std::vector<Tensor>& all) {
        std::vector<Tensor> rows;
        std::ranges::transform(all, std::back_inserter(rows), at_least(2));
        return cat(joinable(std::move(rows), true), 0);
      },
      "tensors"_a);
  f.function(
      "hstack",
      [at_least](const std::vector<Tensor>& all) {
        std::vector<Tensor> columns;
        std::ranges::transform(all, std::back_inserter(columns), at_least(1));
        const int axis = columns.at(0).dim() == 1 ? 0 : 1;
        return cat(joinable(std::move(columns), true), axis);
      },
      "tensors"_a);
  f.m.def(
      "meshgrid",
      [](const py::args& tensors, const std::string& indexing) {
        check(indexing == "ij" || indexing == "xy", "meshgrid: indexing is '{}', expected 'ij' or 'xy'", indexing);
        const bool listed = tensors.size() == 1 && !py::isinstance<Tensor>(tensors[0]);
        const auto all = (listed ? py::object(tensors[0]) : py::object(tensors)).cast<std::vector<Tensor>>();
        const WithoutLock describing;
        return meshgrid(all, indexing == "ij" ? GridIndexing::ij : GridIndexing::xy);
      },
      py::kw_only(), "indexing"_a = "ij");
}

}  // namespace lockstep::python
