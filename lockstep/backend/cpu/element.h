// The element types of loops. f32 and bf16 are computed in f32, f64 in f64. f16.h handles f16.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {

inline bool is_narrow(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

// Calls visitor with an element of a narrow dtype.
template <typename Visitor>
void visit_narrow(DType dtype, const Visitor& visitor) {
  dtype == DType::f32 ? visitor(float{}) : visitor(BFloat16{});
}

// Calls visitor with an element of a floating dtype; any other dtype is an error that names `operation`.
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

// Returns the value that computations use.
template <typename T>
auto widened(T x) {
  if constexpr (is_half<T>) {
    return static_cast<float>(x);
  } else {
    return x;
  }
}

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
template <typename T>
T rounded(double x) {
  return convert<T>(x);
}

// The type in which elements are computed. It is also that of their master weights and losses.
template <typename T>
using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Calls vectorized(f) for loops over elements T. Loops over 64-bit elements are rare, so only the baseline is compiled.
template <typename T, typename F>
void vectorized_as(const F& f) {
  if constexpr (sizeof(T) == 8) {
    f();
  } else {
    vectorized(f);
  }
}
// Like parallel_vector_loop(), for elements T.
template <typename T, typename F>
void parallel_element_loop(const KernelContext& ctx, std::int64_t count, const F& f) {
  constexpr std::int64_t kGrain = 16384;
  parallel_for(ctx, count, kGrain,
               [&](std::int64_t begin, std::int64_t end) { vectorized_as<T>([&] { vector_loop(begin, end, f); }); });
}

}  // namespace lockstep::cpu
