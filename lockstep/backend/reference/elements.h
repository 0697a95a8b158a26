// The elements of a View as doubles, whatever its dtype and layout. Reference kernels compute floating elements in
// double and round once, at the store, unless a contract fixes other bits.
#pragma once

#include <type_traits>
#include <vector>

#include "lockstep/tensor/view.h"

namespace lockstep::reference {

// f64 and i64 become bf16 and f16 through f32; floating to integer truncates.
template <typename To, typename From>
To convert(From x) {
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else if constexpr (is_half<From>) {
    return static_cast<To>(static_cast<float>(x));
  } else if constexpr (is_half<To>) {
    return To(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

// Returns x rounded to `dtype`.
inline double rounded(double x, DType dtype) {
  return visit_dtype(dtype, [&](auto zero) { return convert<double>(convert<decltype(zero)>(x)); });
}

class Elements {
 public:
  explicit Elements(const View& view) : view_(view) {}

  // Returns element i in memory order.
  double operator[](std::int64_t i) const {
    return visit_dtype(view_.dtype, [&](auto zero) { return convert<double>(data<decltype(zero)>()[i]); });
  }
  void set(std::int64_t i, double x) const {
    visit_dtype(view_.dtype, [&](auto zero) { data<decltype(zero)>()[i] = convert<decltype(zero)>(x); });
  }

  // Returns the index of (n, c, h, w) in memory order.
  std::int64_t at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return offset4(view_.layout, view_.shape, n, c, h, w);
  }

 private:
  template <typename T>
  T* data() const {
    return static_cast<T*>(view_.data);
  }

  View view_;
};

// Sets element i, in memory order, to values[i].
inline void store(const std::vector<double>& values, const View& view) {
  Elements out(view);
  for (std::int64_t i = 0; i < view.numel(); ++i) out.set(i, values[i]);
}

// Calls visit(n, c, h, w) for every element of a shape of four axes.
template <typename Visit>
void for_each4(const Shape& shape, const Visit& visit) {
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      for (std::int64_t h = 0; h < shape[2]; ++h) {
        for (std::int64_t w = 0; w < shape[3]; ++w) visit(n, c, h, w);
      }
    }
  }
}

}  // namespace lockstep::reference
