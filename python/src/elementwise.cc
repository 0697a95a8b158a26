// Functions of each element: arithmetic, comparisons, masks.
#include "functions.h"
#include "operators.h"

namespace lockstep::python {
namespace {

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Operand&);

// For functions of which the library has only those of floating numbers.
template <Tensor (*f)(const Tensor&)>
Tensor of_any(const Tensor& x) {
  return f(counted(x));
}

Tensor with_alpha(const Tensor& a, const Operand& b, const Number& alpha, Binary f) {
  if (alpha.value == 1) return f(a, b);
  if (!b.tensor.defined()) return f(a, {.tensor = {}, .number = {.value = b.number.value * alpha.value,
                                                                  .whole = b.number.whole * alpha.whole,
                                                                  .is_whole = b.number.is_whole && alpha.is_whole}});
  check(alpha.is_whole || is_floating(b.tensor.dtype()), "add: alpha is {}, expected a whole number for whole numbers",
        alpha.value);
  return f(a, {.tensor = mul(b.tensor, {.tensor = {}, .number = alpha}), .number = {}});
}

Rounding rounding_of(const std::optional<std::string>& mode) {
  if (!mode) return Rounding::none;
  check(*mode == "trunc" || *mode == "floor", "div: rounding_mode '{}', expected None, 'trunc', or 'floor'", *mode);
  return *mode == "trunc" ? Rounding::trunc : Rounding::floor;
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
           {"clone", clone},
           {"isnan", isnan},
           {"isinf", isinf},
           {"isfinite", isfinite},
           {"logical_not", logical_not},
           {"bitwise_not", [](const Tensor& x) { return ~x; }},
       }) {
    f.both(name, function, "input"_a);
  }
  for (const auto& [name, function] : {std::pair<const char*, Binary>{"mul", mul},
                                       {"multiply", mul},
                                       {"true_divide", true_divide},
                                       {"floor_divide", floor_divide},
                                       {"remainder", remainder},
                                       {"pow", power},
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
  f.function("pow", power_of, "self"_a, "exponent"_a);
  for (const auto& [name, function] :
       {std::pair<const char*, Binary>{"add", add}, {"sub", sub}, {"subtract", sub}}) {
    f.both(
        name,
        [function = function](const Tensor& a, const Operand& b, const Number& alpha) {
          return with_alpha(a, b, alpha, function);
        },
        "input"_a, "other"_a, py::kw_only(), "alpha"_a = 1);
  }
  for (const char* name : {"div", "divide"}) {
    f.both(
        name,
        [](const Tensor& a, const Operand& b, const std::optional<std::string>& mode) {
          return divide(a, b, rounding_of(mode));
        },
        "input"_a, "other"_a, py::kw_only(), "rounding_mode"_a = py::none());
  }
  f.function("where", [](const Tensor& c, const Operand& a, const Operand& b) { return where_of(c, a, b); },
             "condition"_a, "input"_a, "other"_a);
}

}  // namespace lockstep::python
