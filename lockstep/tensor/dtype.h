// Element types of arrays.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "lockstep/base/error.h"

namespace LOCKSTEP_API lockstep {

// boolean: a byte that is 0 or 1, the type of masks. u8: an unsigned byte.
enum class DType : std::uint8_t { f32, bf16, f64, i64, u8, f16, boolean };

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

// IEEE binary16: 5 bits of exponent, 10 of mantissa, up to 65504. Storage only, like BFloat16.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  // Rounds to nearest, ties to even; 65520 and more become infinity; NaN stays NaN.
  constexpr explicit Float16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    std::uint32_t rest = u & 0x7fffffffu;
    if (rest > 0x7f800000u) {
      rest = 0x7e00u | (rest >> 13 & 0x3ffu);
    } else if (rest >= 0x477ff000u) {
      rest = 0x7c00u;
    } else if (rest >= 0x38800000u) {
      rest = (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13;
    } else {  // below 2^-14: a multiple of 2^-24, the last bit of an f32 in [1/2, 1)
      rest = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000u;
    }
    bits = static_cast<std::uint16_t>((u >> 16 & 0x8000u) | rest);
  }
  constexpr explicit operator float() const {
    std::uint32_t rest = bits & 0x7fffu;
    if (rest >= 0x7c00u) {
      rest = 0x7f800000u | rest << 13;
    } else if (rest >= 0x400u) {
      rest = (rest << 13) + 0x38000000u;
    } else {
      rest = std::bit_cast<std::uint32_t>(std::bit_cast<float>(0x3f000000u | rest) - 0.5f);
    }
    return std::bit_cast<float>((bits & 0x8000u) << 16 | rest);
  }
};

// Types stored in 16 bits and computed in f32.
template <typename T>
inline constexpr bool is_half = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
constexpr bool is_half_dtype(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

constexpr std::size_t item_size(DType dtype) {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::bf16: return 2;
    case DType::f64: return 8;
    case DType::i64: return 8;
    case DType::u8: return 1;
    case DType::f16: return 2;
    case DType::boolean: return 1;
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
    case DType::f16: return "f16";
    case DType::boolean: return "bool";
  }
  return "?";
}

constexpr bool is_floating(DType dtype) { return dtype == DType::f32 || is_half_dtype(dtype) || dtype == DType::f64; }
// True for the types of masks: bool, or u8, where every byte except 0 counts as true.
constexpr bool is_mask(DType dtype) { return dtype == DType::boolean || dtype == DType::u8; }

template <typename T>
struct DTypeOf {
  static_assert(
      sizeof(T) == 0,
      "Elements are float, double, std::int64_t, std::uint8_t, bool, BFloat16, or Float16. Convert others, such "
      "as int, to one of these types.");
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};

template <typename T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

// Calls `visitor` with a value-initialized element of `dtype`'s C++ type.
template <typename Visitor>
decltype(auto) visit_dtype(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::f32: return visitor(float{});
    case DType::bf16: return visitor(BFloat16{});
    case DType::f64: return visitor(double{});
    case DType::i64: return visitor(std::int64_t{});
    case DType::u8: return visitor(std::uint8_t{});
    case DType::f16: return visitor(Float16{});
    case DType::boolean: return visitor(bool{});
  }
  fail("unknown dtype {}", static_cast<int>(dtype));
}

}  // namespace lockstep
