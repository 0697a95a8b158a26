#include "lockstep/autograd/promote.h"

#include "lockstep/autograd/functions.h"

namespace lockstep {
namespace {

DType common_type(const Tensor& a, const Tensor& b) {
  const DType x = a.dtype(), y = b.dtype();
  if (is_floating(x) != is_floating(y)) return is_floating(x) ? x : y;
  if (x == DType::boolean || y == DType::boolean) return x == DType::boolean ? y : x;
  const bool a_is_number = a.dim() == 0, b_is_number = b.dim() == 0;
  if (a_is_number != b_is_number) return a_is_number ? y : x;
  if (!is_floating(x)) return DType::i64;
  return x == DType::f64 || y == DType::f64 ? DType::f64 : DType::f32;
}

}  // namespace

std::pair<Tensor, Tensor> promoted(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.dtype() == b.dtype()) return {a, b};
  const DType type = common_type(a, b);
  return {cast(a, type), cast(b, type)};
}

Tensor counted(const Tensor& x) { return x.defined() && x.dtype() == DType::boolean ? cast(x, DType::i64) : x; }

Tensor promoted_to_floating(const Tensor& x) {
  return x.defined() && !is_floating(x.dtype()) ? cast(x, DType::f32) : x;
}

}  // namespace lockstep
