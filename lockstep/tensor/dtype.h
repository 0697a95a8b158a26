// Element types of tensors.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

enum class DType : std::uint8_t { f32, bf16, f64, i64, u8 };

// The upper half of an IEEE f32: 8 bits of exponent, 7 of mantissa. Storage only; arithmetic is done in f32.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  // Rounds to nearest, ties to even; NaN stays NaN.
  constexpr explicit BFloat16(float value) {
    auto u = std::bit_cast<std::uint32_t>(value);
    if (value != value) {
      bits = static_cast<std::uint16_t>((u >> 16) | 0x40);
    } else {
      bits = static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

constexpr std::size_t item_size(DType dtype) {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::bf16: return 2;
    case DType::f64: return 8;
    case DType::i64: return 8;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f64: return "f64";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f64;
}

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> { static constexpr DType value = DType::f32; };
template <>
struct DTypeOf<BFloat16> { static constexpr DType value = DType::bf16; };
template <>
struct DTypeOf<double> { static constexpr DType value = DType::f64; };
template <>
struct DTypeOf<std::int64_t> { static constexpr DType value = DType::i64; };
template <>
struct DTypeOf<std::uint8_t> { static constexpr DType value = DType::u8; };

template <typename T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

// Calls `visitor` with a value-initialized element of the type that `dtype` stands for.
template <typename Visitor>
decltype(auto) visit_dtype(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::f32: return visitor(float{});
    case DType::bf16: return visitor(BFloat16{});
    case DType::f64: return visitor(double{});
    case DType::i64: return visitor(std::int64_t{});
    case DType::u8: return visitor(std::uint8_t{});
  }
  fail("unknown dtype {}", static_cast<int>(dtype));
}

}  // namespace lockstep
