// Functions that create tensors, with PyTorch's arguments: sizes as several arguments or as one sequence, dtype,
// device, requires_grad.
#include "creation.h"
#include <cmath>

#include "bindings.h"
#include "lockstep/autograd/checkpoint.h"

namespace lockstep::python {
namespace {

// Returns the shape of zeros(2, 3), zeros((2, 3)), zeros([2, 3]), or zeros(size=(2, 3)).
Shape shape_of(const py::args& sizes, const py::object& size) {
  if (!size.is_none()) return size.cast<Shape>();
  if (sizes.size() == 1) return py::object(sizes[0]).cast<Shape>();
  return py::object(sizes).cast<Shape>();
}

Tensor as_leaf(Tensor x, bool requires_grad) {
  if (requires_grad) x.set_requires_grad(true);
  return x;
}

template <typename F>
void def_sized(py::module_& m, const char* name, const F& f, const char* doc) {
  m.def(
      name,
      [f](const py::args& sizes, const py::object& size, std::optional<DType> dtype, std::optional<Device> device,
          bool requires_grad) {
        const Shape shape = shape_of(sizes, size);
        const WithoutLock describing;
        return as_leaf(f(shape, dtype, device.value_or(kHost)), requires_grad);
      },
      py::kw_only(), "size"_a = py::none(), "dtype"_a = py::none(), "device"_a = py::none(), "requires_grad"_a = false,
      doc);
}

template <typename F>
void def_random(py::module_& m, const char* name, const F& f, const char* doc) {
  m.def(
      name,
      [f](const py::args& sizes, const py::object& size, const py::object& generator, std::optional<DType> dtype,
          std::optional<Device> device, bool requires_grad) {
        const Shape shape = shape_of(sizes, size);
        const RandomOptions options{.dtype = dtype, .device = device.value_or(kHost), .key = next_key_of(generator)};
        const WithoutLock describing;
        return as_leaf(f(shape, options), requires_grad);
      },
      py::kw_only(), "size"_a = py::none(), "generator"_a = py::none(), "dtype"_a = py::none(), "device"_a = py::none(),
      "requires_grad"_a = false, doc);
}

// Defines a function of x whose result is like x, or with another type or on another device.
template <typename F>
void def_like(py::module_& m, const char* name, const F& f) {
  m.def(
      name,
      [f](const Tensor& x, std::optional<DType> dtype, std::optional<Device> device, bool requires_grad) {
        Tensor made = f(x, dtype.value_or(x.dtype()));
        if (device) made = made.to(*device);
        return as_leaf(made, requires_grad);
      },
      "input"_a, py::kw_only(), "dtype"_a = py::none(), "device"_a = py::none(), "requires_grad"_a = false, released(),
      "A tensor with input's shape, type, and place.");
}

Tensor full_of(const Shape& shape, const Scalar& value, std::optional<DType> dtype, Device device) {
  const DType type = dtype.value_or(value.is_bool() ? DType::boolean : value.is_whole() ? DType::i64 : DType::f32);
  return full(shape, value, {.dtype = type, .device = device});
}

Tensor arange_of_numbers(const Scalar& start, const Scalar& end, const Scalar& step, std::optional<DType> dtype,
                         Device device) {
  if (dtype == DType::i64) {
    // Truncates fractions first, as PyTorch does.
    const auto cut = [](const Scalar& number) -> Scalar {
      if (number.is_whole()) return number;
      const Scalar whole = std::trunc(number.to<double>());
      check(whole.fits_int64(), "arange: {}, expected a number of int64", number);
      return whole.to<std::int64_t>();
    };
    return arange(cut(start), cut(end), cut(step), {.dtype = dtype, .device = device});
  }
  return arange(start, end, step, {.dtype = dtype, .device = device});
}

Tensor whole_draws(std::int64_t low, std::int64_t high, const Shape& size, const py::object& generator,
                   std::optional<DType> type, std::optional<Device> device, bool requires_grad) {
  const RandomOptions options{.dtype = type, .device = device.value_or(kHost), .key = next_key_of(generator)};
  const WithoutLock describing;
  return as_leaf(randint(low, high, size, options), requires_grad);
}

}  // namespace

std::optional<RandomKey> next_key_of(const py::object& generator) {
  if (generator.is_none()) return {};
  if (!py::hasattr(generator, "_next")) {
    throw py::type_error(
        fmt::format("generator is a {}, expected a lockstep.Generator", Py_TYPE(generator.ptr())->tp_name));
  }
  const auto draw = [&] {
    const auto [seed, number] = generator.attr("_next")().cast<std::pair<std::uint64_t, std::uint64_t>>();
    return random_key(seed, {hash_name("generator"), number});
  };
  return checkpoint_key(draw);
}

void add_creation(py::module_& m) {
  const auto dtype = "dtype"_a = py::none();
  const auto device = "device"_a = py::none();
  const auto requires_grad = "requires_grad"_a = false;
  def_sized(
      m, "zeros",
      [](const Shape& s, std::optional<DType> t, Device d) {
        return zeros(s, {t, d});
      },
      "Zeros.");
  def_sized(
      m, "ones",
      [](const Shape& s, std::optional<DType> t, Device d) {
        return ones(s, {t, d});
      },
      "Ones.");
  def_sized(
      m, "empty",
      [](const Shape& s, std::optional<DType> t, Device d) {
        return zeros(s, {t, d});
      },
      "Zeros: no tensor shows memory that nobody has written.");
  def_random(
      m, "rand", [](const Shape& s, const RandomOptions& options) { return rand(s, options); },
      "Uniform in [0, 1), from the generator, or from manual_seed()'s stream.");
  def_random(
      m, "randn", [](const Shape& s, const RandomOptions& options) { return randn(s, options); },
      "Normal, of mean 0 and standard deviation 1, from the generator, or from manual_seed()'s stream.");
  const auto generator = "generator"_a = py::none();
  m.def(
      "normal",
      [](double mean, double std, const Shape& size, const py::object& from, std::optional<DType> type,
         std::optional<Device> d, bool grad) {
        check(std >= 0, "normal: std is {}, expected at least 0", std);
        const RandomOptions options{.dtype = type, .device = d.value_or(kHost), .key = next_key_of(from)};
        const WithoutLock describing;
        return as_leaf(randn(size, options) * std + mean, grad);
      },
      "mean"_a, "std"_a, "size"_a, py::kw_only(), generator, dtype, device, requires_grad,
      "Normal, of this mean and standard deviation, from the generator, or from manual_seed()'s stream.");
  m.def(
      "full",
      [](const Shape& size, const Scalar& value, std::optional<DType> type, std::optional<Device> d, bool grad) {
        return as_leaf(full_of(size, value, type, d.value_or(kHost)), grad);
      },
      "size"_a, "fill_value"_a, py::kw_only(), dtype, device, requires_grad, released(), "The value everywhere.");
  def_like(m, "zeros_like", [](const Tensor& x, DType type) { return full_like(x, 0).to(type); });
  def_like(m, "ones_like", [](const Tensor& x, DType type) { return full_like(x, 1).to(type); });
  def_like(m, "empty_like", [](const Tensor& x, DType type) { return full_like(x, 0).to(type); });
  def_like(m, "rand_like", [](const Tensor& x, DType type) { return rand_like(x, type); });
  def_like(m, "randn_like", [](const Tensor& x, DType type) { return randn_like(x, type); });
  m.def(
      "full_like",
      [](const Tensor& x, const Scalar& value, std::optional<DType> type, std::optional<Device> d, bool grad) {
        Tensor made = full_like(type ? x.detach().to(*type) : x, value);
        if (d) made = made.to(*d);
        return as_leaf(made, grad);
      },
      "input"_a, "fill_value"_a, py::kw_only(), dtype, device, requires_grad, released());

  m.def(
      "arange",
      [](const Scalar& end, std::optional<DType> type, std::optional<Device> d, bool grad) {
        return as_leaf(arange_of_numbers(0, end, 1, type, d.value_or(kHost)), grad);
      },
      "end"_a, py::kw_only(), dtype, device, requires_grad, released(),
      "start, start + step, ..., excluding end: int64 if all are whole.");
  m.def(
      "arange",
      [](const Scalar& start, const Scalar& end, const Scalar& step, std::optional<DType> type, std::optional<Device> d,
         bool grad) { return as_leaf(arange_of_numbers(start, end, step, type, d.value_or(kHost)), grad); },
      "start"_a, "end"_a, "step"_a = Scalar(1), py::kw_only(), dtype, device, requires_grad, released());
  m.def(
      "linspace",
      [](double start, double end, std::int64_t steps, std::optional<DType> type, std::optional<Device> d, bool grad) {
        return as_leaf(linspace(start, end, steps, {type, d.value_or(kHost)}), grad);
      },
      "start"_a, "end"_a, "steps"_a, py::kw_only(), dtype, device, requires_grad, released(),
      "Evenly spaced numbers from start to end, both among them.");
  m.def(
      "logspace",
      [](double start, double end, std::int64_t steps, double base, std::optional<DType> type, std::optional<Device> d,
         bool grad) {
        const Tensor exponents = linspace(start, end, steps, {DType::f64, d.value_or(kHost)});
        return as_leaf(pow(base, exponents).to(type.value_or(DType::f32)), grad);
      },
      "start"_a, "end"_a, "steps"_a, "base"_a = 10.0, py::kw_only(), dtype, device, requires_grad, released());
  m.def(
      "eye",
      [](std::int64_t n, std::optional<std::int64_t> columns, std::optional<DType> type, std::optional<Device> d,
         bool grad) {
        return as_leaf(eye(n, columns.value_or(n), {type, d.value_or(kHost)}), grad);
      },
      "n"_a, "m"_a = py::none(), py::kw_only(), dtype, device, requires_grad, released(), "Ones on the diagonal.");
  m.def(
      "randint",
      [](std::int64_t high, const Shape& size, const py::object& from, std::optional<DType> type,
         std::optional<Device> d, bool grad) { return whole_draws(0, high, size, from, type, d, grad); },
      "high"_a, "size"_a, py::kw_only(), generator, dtype, device, requires_grad,
      "Whole numbers from low to high - 1, from the generator, or from manual_seed()'s stream.");
  m.def("randint", whole_draws, "low"_a, "high"_a, "size"_a, py::kw_only(), generator, dtype, device, requires_grad);
  m.def(
      "randperm",
      [](std::int64_t n, const py::object& from, std::optional<DType> type, std::optional<Device> d) {
        const RandomOptions options{.dtype = type, .device = d.value_or(kHost), .key = next_key_of(from)};
        const WithoutLock describing;
        return randperm(n, options);
      },
      "n"_a, py::kw_only(), generator, dtype, device,
      "0 to n - 1 in random order, from the generator, or from manual_seed()'s stream.");
  m.def(
      "tensor",
      [](const py::object& data, std::optional<DType> type, std::optional<Device> d, bool grad) {
        Tensor x = tensor_of_data(data, type, true);
        const WithoutLock describing;
        if (d) x = x.to(*d);
        return as_leaf(x, grad);
      },
      "data"_a, py::kw_only(), dtype, device, requires_grad,
      "A copy of numbers, nested lists of them, or an array. Fractions make float32, whole numbers int64, bools "
      "bool.");
  m.def(
      "as_tensor",
      [](const py::object& data, std::optional<DType> type, std::optional<Place> place) -> py::object {
        py::object result = py::isinstance<Tensor>(data) ? data : py::cast(tensor_of_data(data, type, false));
        const Tensor x = result.cast<Tensor>();
        if ((!type || x.dtype() == *type) && !place) return result;
        Tensor moved = x;
        {
          const WithoutLock describing;
          if (type) moved = moved.to(*type);
          if (place && !place->has(moved.device())) moved = moved.to(place->device);
        }
        return moved.is_same(x) ? result : py::cast(moved);
      },
      "data"_a, "dtype"_a = py::none(), "device"_a = py::none(),
      "The tensor itself, an array without a copy where that is possible, or tensor(data).");
}

}  // namespace lockstep::python
