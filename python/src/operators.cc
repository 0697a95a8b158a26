// Python's operators of tensors, with tensors and numbers on either side.
#include "operators.h"
#include "bindings.h"
#include "in_place.h"

namespace lockstep::python {
namespace {

// Returns f(a, b), where f takes a tensor or a number as its second operand.
template <typename F>
Tensor arithmetic(const Tensor& a, const Operand& b, const F& f) {
  if (b.tensor.defined()) {
    return f(a, b.tensor);
  }
  return f(beside_number(a, b.number), b.number);
}

// Returns f(b, a) for a number b.
template <typename F>
Tensor reflected(const Tensor& a, const Scalar& b, const F& f) {
  return f(b, beside_number(a, b));
}

template <typename F>
Tensor compared(const Tensor& a, const Operand& b, const F& f) {
  if (b.tensor.defined()) return f(a, b.tensor);
  return f(b.number.is_whole() ? a : beside_number(a, b.number), b.number);
}

// Returns &, |, or ^: logical for bools, bitwise for integers.
template <typename F>
Tensor of_bits(const char* what, const Tensor& a, const Operand& b, const F& f) {
  if (b.tensor.defined()) return f(a, b.tensor);
  check(b.number.is_whole() && !is_floating(a.dtype()), "{}: {} and {}, expected bool or whole numbers", what, a,
        b.number);
  const Tensor x = beside_number(a, b.number);
  return f(x, full_like(x, b.number));
}

struct Named {
  const char* symbol;
  Tensor (*f)(const Tensor&, const Operand&);
};

}  // namespace

Tensor add(const Tensor& a, const Operand& b) {
  return arithmetic(a, b, [](const Tensor& x, const auto& y) { return x + y; });
}
Tensor sub(const Tensor& a, const Operand& b) {
  return arithmetic(a, b, [](const Tensor& x, const auto& y) { return x - y; });
}
Tensor mul(const Tensor& a, const Operand& b) {
  return arithmetic(a, b, [](const Tensor& x, const auto& y) { return x * y; });
}
Tensor true_divide(const Tensor& a, const Operand& b) { return divide(a, b, Rounding::none); }
Tensor floor_divide(const Tensor& a, const Operand& b) { return divide(a, b, Rounding::floor); }
Tensor divide(const Tensor& a, const Operand& b, Rounding rounding) {
  return arithmetic(a, b,
                    [rounding](const Tensor& x, const auto& y) { return div(x, y, {.rounding_mode = rounding}); });
}
Tensor remainder(const Tensor& a, const Operand& b) {
  return arithmetic(a, b, [](const Tensor& x, const auto& y) { return lockstep::remainder(x, y); });
}

Tensor power(const Tensor& a, const Operand& b) {
  return arithmetic(a, b, [](const Tensor& x, const auto& y) { return pow(x, y); });
}
Tensor power_of(const Scalar& a, const Tensor& b) {
  return reflected(b, a, [](const auto& x, const auto& y) { return pow(x, y); });
}

#define LOCKSTEP_COMPARISON(f)                                                               \
  Tensor f(const Tensor& a, const Operand& b) {                                              \
    return compared(a, b, [](const Tensor& x, const auto& y) { return lockstep::f(x, y); }); \
  }
LOCKSTEP_COMPARISON(eq)
LOCKSTEP_COMPARISON(ne)
LOCKSTEP_COMPARISON(lt)
LOCKSTEP_COMPARISON(le)
LOCKSTEP_COMPARISON(gt)
LOCKSTEP_COMPARISON(ge)
#undef LOCKSTEP_COMPARISON

Tensor inverted_bits(const Tensor& x) { return ~x; }
Tensor mask_and(const Tensor& a, const Operand& b) {
  return of_bits("&", a, b, [](const Tensor& x, const Tensor& y) { return x & y; });
}
Tensor mask_or(const Tensor& a, const Operand& b) {
  return of_bits("|", a, b, [](const Tensor& x, const Tensor& y) { return x | y; });
}
Tensor mask_xor(const Tensor& a, const Operand& b) {
  return of_bits("^", a, b, [](const Tensor& x, const Tensor& y) { return x ^ y; });
}

Tensor where_of(const Tensor& condition, const Operand& a, const Operand& b) {
  const auto made = [&](const Operand& x, const Operand& other) {
    if (x.tensor.defined()) return x.tensor;
    if (other.tensor.defined()) return as_tensor_beside(other.tensor, x.number);
    return as_tensor_beside(condition, x.number);
  };
  return where(condition, made(a, b), made(b, a));
}

void add_operators(TensorClass& tensor) {
  for (const auto& [symbol, f] : {Named{"__add__", add},
                                  Named{"__radd__", add},
                                  Named{"__sub__", sub},
                                  Named{"__mul__", mul},
                                  Named{"__rmul__", mul},
                                  Named{"__truediv__", true_divide},
                                  Named{"__floordiv__", floor_divide},
                                  Named{"__mod__", remainder},
                                  Named{"__pow__", power},
                                  Named{"__eq__", eq},
                                  Named{"__ne__", ne},
                                  Named{"__lt__", lt},
                                  Named{"__le__", le},
                                  Named{"__gt__", gt},
                                  Named{"__ge__", ge},
                                  Named{"__and__", mask_and},
                                  Named{"__rand__", mask_and},
                                  Named{"__or__", mask_or},
                                  Named{"__ror__", mask_or},
                                  Named{"__xor__", mask_xor},
                                  Named{"__rxor__", mask_xor}}) {
    tensor.def(symbol, f, py::is_operator(), released());
  }
  // Operators with a number, or a NumPy array, on the left.
  using Of = Tensor (*)(const Tensor&, const Scalar&);
  struct Reflected {
    const char* symbol;
    decltype(&add) of_tensors;
    Of of_number;
  };
  for (const auto& [symbol, of_tensors, of_number] : {
           Reflected{"__rsub__", sub,
                     [](const Tensor&a, const Scalar&b) {
                       return reflected(a, b, [](const auto& x, const auto& y) { return x - y; });
                     }},
           {"__rtruediv__", true_divide,
            [](const Tensor&a, const Scalar&b) {
              return reflected(a, b, [](const auto& x, const auto& y) { return x / y; });
            }},
           {"__rfloordiv__", floor_divide,
            [](const Tensor&a, const Scalar&b) {
              const Tensor x = beside_number(a, b);
              return div(as_tensor_beside(x, b), x, {.rounding_mode = Rounding::floor});
            }},
           {"__rmod__", remainder,
            [](const Tensor&a, const Scalar&b) {
              const Tensor x = beside_number(a, b);
              return lockstep::remainder(as_tensor_beside(x, b), x);
            }},
           {"__rpow__", power, [](const Tensor&a, const Scalar&b) { return power_of(b, a); }},
       }) {
    tensor.def(
        symbol,
        [of_tensors = of_tensors, of_number = of_number](const Tensor& a, const Operand& b) {
          return b.tensor.defined() ? of_tensors(b.tensor, {.tensor = a}) : of_number(a, b.number);
        },
        py::is_operator(), released());
  }
  tensor.def("__matmul__", matrix_product, py::is_operator(), released());
  using Unary = Tensor (*)(const Tensor&);
  for (const auto& [symbol, f] : {std::pair<const char*, Unary>{"__neg__", [](const Tensor& x) { return -x; }},
                                  {"__pos__", [](const Tensor& x) { return x; }},
                                  {"__abs__", [](const Tensor& x) { return abs(x); }},
                                  {"__invert__", inverted_bits}}) {
    tensor.def(symbol, f, released());
  }
  for (const auto& [symbol, f] :
       {Named{"__iadd__", add}, Named{"__isub__", sub}, Named{"__imul__", mul}, Named{"__itruediv__", true_divide},
        Named{"__ifloordiv__", floor_divide}, Named{"__imod__", remainder}, Named{"__ipow__", power},
        Named{"__iand__", mask_and}, Named{"__ior__", mask_or}, Named{"__ixor__", mask_xor}}) {
    tensor.def(
        symbol,
        [f = f, symbol = symbol](const py::object& self, const Operand& b) {
          return write_in_place(symbol, self, [&](const Tensor& x) { return f(x, b); });
        },
        py::is_operator());
  }
  for (const auto& [name, f] :
       {Named{"mul_", mul}, Named{"multiply_", mul}, Named{"true_divide_", true_divide},
        Named{"floor_divide_", floor_divide}, Named{"remainder_", remainder}, Named{"pow_", power}, Named{"eq_", eq},
        Named{"ne_", ne}, Named{"lt_", lt}, Named{"le_", le}, Named{"gt_", gt}, Named{"ge_", ge}}) {
    tensor.def(
        name,
        [f = f, name = name](const py::object& self, const Operand& b) {
          return write_in_place(name, self, [&](const Tensor& x) { return f(x, b); });
        },
        "other"_a);
  }
}

}  // namespace lockstep::python
