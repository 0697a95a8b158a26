#include "lockstep/backend/cpu/halves.h"

#include "lockstep/backend/cpu/vectorize.h"

namespace lockstep::cpu {
namespace {

template <typename From, typename To>
void convert_halves(const From* x, std::int64_t n, To* y) {
  vectorized([=] { vector_loop(0, n, [=](std::int64_t i) { y[i] = static_cast<To>(x[i]); }); });
}

}  // namespace

void widen(const BFloat16* x, std::int64_t n, float* y) { convert_halves(x, n, y); }
void widen(const Float16* x, std::int64_t n, float* y) { convert_halves(x, n, y); }
void narrow(const float* x, std::int64_t n, BFloat16* y) { convert_halves(x, n, y); }
void narrow(const float* x, std::int64_t n, Float16* y) { convert_halves(x, n, y); }

}  // namespace lockstep::cpu
