// The element types of loops. f32 and bf16 are computed in f32; f64 in f64, or by the reference kernels. f16.h handles
// f16.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {

inline bool is_narrow(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

// Calls visitor with an element of a narrow dtype.
template <typename Visitor>
void visit_narrow(DType dtype, const Visitor& visitor) {
  dtype == DType::f32 ? visitor(float{}) : visitor(BFloat16{});
}

// Calls visitor with an element of a floating dtype; any other is an error of `operation`.
template <typename Visitor>
void visit_floating(DType dtype, std::string_view operation, const Visitor& visitor) {
  if (dtype == DType::f64) return visitor(double{});
  check(is_narrow(dtype), "{}: elements are {}, expected f32, bf16 or f64", operation, name(dtype));
  visit_narrow(dtype, visitor);
}

// Calls visitor with an unsigned integer of `dtype`'s size, to move elements without interpreting them.
template <typename Visitor>
void visit_bits(DType dtype, const Visitor& visitor) {
  switch (item_size(dtype)) {
    case 1: return visitor(std::uint8_t{});
    case 2: return visitor(std::uint16_t{});
    case 4: return visitor(std::uint32_t{});
    default: return visitor(std::uint64_t{});
  }
}

// The value used in computation.
template <typename T>
auto widened(T x) {
  if constexpr (is_half<T>) {
    return static_cast<float>(x);
  } else {
    return x;
  }
}

// Rounds to bf16 and f16 through f32.
template <typename T>
T rounded(double x) {
  if constexpr (is_half<T>) {
    return T(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

}  // namespace lockstep::cpu
