#include "lockstep/autograd/autocast.h"

#include "lockstep/autograd/shape.h"

namespace lockstep {
namespace {

thread_local std::optional<DType> autocast_mode;

}  // namespace

void set_autocast_dtype(std::optional<DType> dtype) {
  check(!dtype || is_half_dtype(*dtype), "autocast: type {}, expected bf16 or f16", dtype ? name(*dtype) : "");
  autocast_mode = dtype;
}

std::optional<DType> autocast_dtype() { return autocast_mode; }

AutocastGuard::AutocastGuard(std::optional<DType> dtype) : previous_(autocast_mode) { set_autocast_dtype(dtype); }
AutocastGuard::~AutocastGuard() { autocast_mode = previous_; }

Tensor autocast(const Tensor& x) {
  const bool casts = autocast_mode && x.defined() && is_floating(x.dtype()) && x.dtype() != DType::f64;
  return casts ? cast(x, *autocast_mode) : x;
}

}  // namespace lockstep
