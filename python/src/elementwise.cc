// Functions that compute each element: arithmetic, comparisons, masks.
#include <cmath>
#include <limits>

#include "creation.h"
#include "functions.h"
#include "in_place.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/tensor_impl.h"
#include "operators.h"

namespace lockstep::python {
namespace {

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Operand&);

// For functions that the library has only for floating types.
template <Tensor (*f)(const Tensor&)>
Tensor of_any(const Tensor& x) {
  return f(counted(x));
}

Tensor with_alpha(const Tensor& a, const Operand& b, const Scalar& alpha, Binary f) {
  // Bools stay bools, whatever alpha.
  const auto is_truth = [](const Tensor& x) { return x.dtype() == DType::boolean; };
  if (is_truth(a) && (b.tensor.defined() ? is_truth(b.tensor) : b.number.is_bool())) {
    check(alpha.is_whole(), "add: alpha is {}, expected a whole number for bools", alpha);
    if (!(alpha == 0)) return f(a, b);
    if (!b.tensor.defined()) return f(a, {.tensor = {}, .number = false});
    return f(a, {.tensor = mul(b.tensor, {.tensor = {}, .number = false}), .number = {}});
  }
  if (alpha == 1) return f(a, b);
  if (!b.tensor.defined()) return f(a, {.tensor = {}, .number = b.number * alpha});
  check(alpha.is_whole() || is_floating(b.tensor.dtype()),
        "add: alpha is {}, expected a whole number for whole numbers", alpha);
  return f(a, {.tensor = mul(b.tensor, {.tensor = {}, .number = alpha}), .number = {}});
}

// The bounds are tensors or numbers. For integer tensors, a float bound rounds the result to float32, as in PyTorch.
Tensor clamped(const Tensor& input, const std::optional<Operand>& low, const std::optional<Operand>& high) {
  check(low || high, "clamp: no bound, expected min, max, or both");
  Tensor x = input;
  for (const auto& bound : {low, high})
    if (bound && !bound->tensor.defined()) x = beside_number(x, bound->number);
  const bool tensors = (low && low->tensor.defined()) || (high && high->tensor.defined());
  if (!tensors) {
    return clamp(x, low ? std::optional(low->number) : std::nullopt, high ? std::optional(high->number) : std::nullopt);
  }
  const auto made = [&](const std::optional<Operand>& bound) {
    if (!bound) return Tensor();
    return bound->tensor.defined() ? bound->tensor : as_tensor_beside(x, bound->number);
  };
  const Tensor least = made(low), most = made(high);
  if (is_floating(x.dtype())) return clamp(x, least, most);
  if (least.defined()) x = maximum(x, least);
  return most.defined() ? minimum(x, most) : x;
}

Rounding rounding_of(const std::optional<std::string>& mode) {
  if (!mode) return Rounding::none;
  check(*mode == "trunc" || *mode == "floor", "div: rounding_mode '{}', expected None, 'trunc', or 'floor'", *mode);
  return *mode == "trunc" ? Rounding::trunc : Rounding::floor;
}

// Returns random elements in x's shape and type, on x's device.
using Draws = Tensor (*)(const Shape&, const RandomOptions&);
Tensor drawn(const Tensor& x, Draws draws, const std::optional<RandomKey>& key) {
  if (!key) return draws == static_cast<Draws>(randn) ? randn_like(x.detach()) : rand_like(x.detach());
  check(x->kind != Kind::cut, "generator: {} is cut over devices, expected one memory", x);
  return draws(x.shape(), {.dtype = x.dtype(), .device = x.device(), .key = key});
}

Tensor bernoulli_of(const Tensor& x, const std::optional<RandomKey>& key) {
  if (!key) return bernoulli(x);
  check(is_floating(x.dtype()), "bernoulli: {}, expected probabilities of a floating type", x);
  const Tensor p = x.detach().to(x.dtype() == DType::f64 ? DType::f64 : DType::f32);
  const Tensor ones = lt(drawn(p, rand, key), p).to(x.dtype());
  return where(logical_and(ge(p, 0), le(p, 1)), ones, std::numeric_limits<double>::quiet_NaN());
}

// Returns the tensor for x[...] = src. With a recorded gradient, x becomes this tensor; otherwise x copies it.
Tensor elements_for(const Tensor& x, const Tensor& src) {
  const Tensor elements = src.to(x.dtype()).expand(x.shape());
  return records_write(x, src.requires_grad()) ? owned(elements, src) : elements;
}

}  // namespace

void add_elementwise(const FunctionsOf& f) {
  for (const auto& [name, function] : {
           std::pair<const char*, Unary>{"neg", [](const Tensor& x) { return -x; }},
           {"negative", [](const Tensor& x) { return -x; }},
           {"exp", exp},
           {"log", log},
           {"log1p", log1p},
           {"expm1", expm1},
           {"log2", log2},
           {"log10", log10},
           {"sqrt", sqrt},
           {"square", of_any<square>},
           {"abs", abs},
           {"absolute", abs},
           {"sign", sign},
           {"reciprocal", reciprocal},
           {"rsqrt", rsqrt},
           {"sin", sin},
           {"cos", cos},
           {"tan", tan},
           {"erf", erf},
           {"floor", floor},
           {"ceil", ceil},
           {"trunc", trunc},
           {"fix", trunc},
           {"relu", relu},
           {"sigmoid", sigmoid},
           {"tanh", tanh},
           {"isnan", isnan},
           {"isinf", isinf},
           {"isfinite", isfinite},
           {"logical_not", logical_not},
           {"bitwise_not", inverted_bits},
       }) {
    f.both(name, function, "input"_a);
    const std::string in_place = std::string(name) + "_";
    f.tensor.def(in_place.c_str(), [function = function, in_place](const py::object& self) {
      return write_in_place(in_place.c_str(), self, function);
    });
  }
  for (const auto& [name, function] : {std::pair<const char*, Binary>{"mul", mul},
                                       {"multiply", mul},
                                       {"true_divide", true_divide},
                                       {"floor_divide", floor_divide},
                                       {"remainder", remainder},
                                       {"eq", eq},
                                       {"ne", ne},
                                       {"not_equal", ne},
                                       {"lt", lt},
                                       {"less", lt},
                                       {"le", le},
                                       {"less_equal", le},
                                       {"gt", gt},
                                       {"greater", gt},
                                       {"ge", ge},
                                       {"greater_equal", ge},
                                       {"bitwise_and", mask_and},
                                       {"bitwise_or", mask_or},
                                       {"bitwise_xor", mask_xor}}) {
    f.both(name, function, "input"_a, "other"_a);
  }
  f.both("pow", power, "input"_a, "exponent"_a);
  f.function("pow", power_of, "self"_a, "exponent"_a);
  for (const auto& [name, function] : {std::pair<const char*, Binary>{"add", add}, {"sub", sub}, {"subtract", sub}}) {
    f.both(
        name,
        [function = function](const Tensor& a, const Operand& b, const Scalar& alpha) {
          return with_alpha(a, b, alpha, function);
        },
        "input"_a, "other"_a, py::kw_only(), "alpha"_a = 1);
    const std::string in_place = std::string(name) + "_";
    f.tensor.def(
        in_place.c_str(),
        [function = function, in_place](const py::object& self, const Operand& b, const Scalar& alpha) {
          return write_in_place(in_place.c_str(), self,
                                [&](const Tensor& x) { return with_alpha(x, b, alpha, function); });
        },
        "other"_a, py::kw_only(), "alpha"_a = 1);
  }
  for (const char* name : {"div", "divide"}) {
    f.both(
        name,
        [](const Tensor& a, const Operand& b, const std::optional<std::string>& mode) {
          return divide(a, b, rounding_of(mode));
        },
        "input"_a, "other"_a, py::kw_only(), "rounding_mode"_a = py::none());
    f.tensor.def(
        name == std::string("div") ? "div_" : "divide_",
        [](const py::object& self, const Operand& b, const std::optional<std::string>& mode) {
          return write_in_place("div_", self, [&](const Tensor& x) { return divide(x, b, rounding_of(mode)); });
        },
        "other"_a, py::kw_only(), "rounding_mode"_a = py::none());
  }
  using OfTensors = Tensor (*)(const Tensor&, const Tensor&);
  for (const auto& [name, function] : {std::pair<const char*, OfTensors>{"maximum", maximum},
                                       {"minimum", minimum},
                                       {"atan2", atan2},
                                       {"logical_and", logical_and},
                                       {"logical_or", logical_or},
                                       {"logical_xor", logical_xor}}) {
    f.both(
        name, [function = function](const Tensor& a, const Tensor& b) { return function(a, b); }, "input"_a, "other"_a);
  }
  f.function("where", where_of, "condition"_a, "input"_a, "other"_a);
  f.m.def(
      "where",
      [](const Tensor& condition) {
        std::vector<Tensor> places;
        {
          const WithoutLock waiting;
          places = unbind(nonzero(condition.dim() == 0 ? condition.reshape({1}) : condition), 1);
        }
        return py::tuple(py::cast(places));
      },
      "condition"_a);
  f.tensor.def(
      "where",
      [](const Tensor& x, const Tensor& condition, const Operand& other) {
        return where_of(condition, {.tensor = x, .number = {}}, other);
      },
      "condition"_a, "other"_a, released());
  for (const char* name : {"clamp", "clip"}) {
    f.both(name, clamped, "input"_a, "min"_a = py::none(), "max"_a = py::none());
    f.tensor.def(
        name == std::string("clamp") ? "clamp_" : "clip_",
        [](const py::object& self, const std::optional<Operand>& low, const std::optional<Operand>& high) {
          return write_in_place("clamp_", self, [&](const Tensor& x) { return clamped(x, low, high); });
        },
        "min"_a = py::none(), "max"_a = py::none());
  }
  f.both(
      "nan_to_num",
      [](const Tensor& x, double nan, std::optional<double> most, std::optional<double> least) {
        return is_floating(x.dtype()) ? nan_to_num(x, nan, most, least) : clone(x);
      },
      "input"_a, "nan"_a = 0.0, "posinf"_a = py::none(), "neginf"_a = py::none());
  f.both(
      "round",
      [](const Tensor& x, std::int64_t decimals) {
        if (decimals == 0) return round(x);
        const double scale = std::pow(10.0, static_cast<double>(decimals));
        return round(x * scale) / scale;
      },
      "input"_a, py::kw_only(), "decimals"_a = 0);
  using Scaled = Tensor (*)(const Tensor&, const Operand&);
  for (const auto& [name, product] : {std::pair<const char*, Scaled>{"addcmul", mul}, {"addcdiv", true_divide}}) {
    const auto sum = [product = product](const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value) {
      return with_alpha(x, {.tensor = product(a, {.tensor = b, .number = {}}), .number = {}}, value, add);
    };
    f.both(name, sum, "input"_a, "tensor1"_a, "tensor2"_a, py::kw_only(), "value"_a = 1);
    const std::string in_place = std::string(name) + "_";
    f.tensor.def(
        in_place.c_str(),
        [sum, in_place](const py::object& self, const Tensor& a, const Tensor& b, const Scalar& value) {
          return write_in_place(in_place.c_str(), self, [&](const Tensor& x) { return sum(x, a, b, value); });
        },
        "tensor1"_a, "tensor2"_a, py::kw_only(), "value"_a = 1);
  }
  // Computes from the nearer end, as PyTorch does, so that a weight of 0 or 1 gives that end.
  const auto lerp = [](const Tensor& x, const Tensor& end, const Operand& weight) {
    const Tensor distance = end - x;
    if (!weight.tensor.defined()) {
      const auto w = weight.number.to<double>();
      return std::abs(w) < 0.5 ? x + distance * w : end - distance * (1 - w);
    }
    const Tensor& w = weight.tensor;
    return where(lt(abs(w), 0.5), x + distance * w, end - distance * (1 - w));
  };
  f.both("lerp", lerp, "input"_a, "end"_a, "weight"_a);
  f.tensor.def(
      "lerp_",
      [lerp](const py::object& self, const Tensor& end, const Operand& weight) {
        return write_in_place("lerp_", self, [&](const Tensor& x) { return lerp(x, end, weight); });
      },
      "end"_a, "weight"_a);
  f.both("outer", outer, "input"_a, "vec2"_a);

  // In-place functions that write values, or random numbers from the stream of manual_seed().
  f.tensor.def("zero_", [](const py::object& self) {
    return write_in_place("zero_", self, [](const Tensor& x) { return full_like(x.detach(), 0); });
  });
  f.tensor.def(
      "fill_",
      [](const py::object& self, const Operand& value) {
        return write_in_place("fill_", self, [&](const Tensor& x) {
          if (!value.tensor.defined()) return full_like(x.detach(), value.number);
          return written_over(x, elements_for(x, value.tensor));
        });
      },
      "value"_a);
  f.tensor.def(
      "copy_",
      [](const py::object& self, const Tensor& src, bool) {
        return write_in_place("copy_", self, [&](const Tensor& x) { return written_over(x, elements_for(x, src)); });
      },
      "src"_a, "non_blocking"_a = false);
  const auto generator = "generator"_a = py::none();
  f.tensor.def(
      "normal_",
      [](const py::object& self, double mean, double std, const py::object& from) {
        check_write("normal_", self);
        const auto key = next_key_of(from);
        return write_in_place("normal_", self, [&](const Tensor& x) { return drawn(x, randn, key) * std + mean; });
      },
      "mean"_a = 0.0, "std"_a = 1.0, py::kw_only(), generator);
  f.tensor.def(
      "uniform_",
      [](const py::object& self, double from, double to, const py::object& source) {
        check_write("uniform_", self);
        const auto key = next_key_of(source);
        return write_in_place("uniform_", self, [&](const Tensor& x) {
          const Tensor y = drawn(x, rand, key) * (to - from) + from;
          // Where the sum rounds to the excluded end, as in PyTorch.
          return where(eq(y, full_like(y, to)), from, y);
        });
      },
      "from_"_a = 0.0, "to"_a = 1.0, py::kw_only(), generator);
  f.tensor.def(
      "bernoulli_",
      [](const py::object& self, double p, const py::object& from) {
        check_write("bernoulli_", self);
        const auto key = next_key_of(from);
        return write_in_place("bernoulli_", self,
                              [&](const Tensor& x) { return bernoulli_of(full_like(x.detach(), p), key); });
      },
      "p"_a = 0.5, py::kw_only(), generator);
  f.m.def(
      "bernoulli",
      [](const Tensor& x, const py::object& from) {
        const auto key = next_key_of(from);
        const WithoutLock describing;
        return bernoulli_of(x, key);
      },
      "input"_a, py::kw_only(), generator, "1 with the probability that input has, otherwise 0.");
  f.also_method("bernoulli");
}

}  // namespace lockstep::python
