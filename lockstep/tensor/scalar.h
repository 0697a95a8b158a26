// A number as an argument of tensor operations: x + 1, full({2}, 0.5), masked_fill(x, mask, -1). Integers stay exact:
// no int64 passes through a double, which is exact only up to 2^53.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"

namespace LOCKSTEP_API lockstep {

class Scalar {
 public:
  constexpr Scalar() = default;  // 0
  // Throws for an integer that does not fit in an int64.
  template <typename T>
  requires std::is_arithmetic_v<T>
  constexpr Scalar(T value) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::floating;
      real_ = static_cast<double>(value);
    } else {
      if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(std::int64_t)) {
        check(value <= static_cast<T>(std::numeric_limits<std::int64_t>::max()), "a number is {}, expected an int64",
              value);
      }
      kind_ = std::is_same_v<T, bool> ? Kind::boolean : Kind::whole;
      whole_ = static_cast<std::int64_t>(value);
    }
  }

  // True for an integer or a bool; 2.0 is neither.
  constexpr bool is_whole() const { return kind_ != Kind::floating; }
  constexpr bool is_bool() const { return kind_ == Kind::boolean; }
  // Whether an int64 has this value: 2.0 does, 0.5 does not.
  bool fits_int64() const { return is_whole() || (real_ == std::trunc(real_) && real_ >= -0x1p63 && real_ < 0x1p63); }
  // Converts the number to an element of type T, like a cast (to bf16 and f16 through f32): an integer is rounded to a
  // floating type, and a fraction is truncated. A number out of T's range is undefined behavior.
  template <typename T>
  constexpr T to() const {
    if constexpr (is_half<T>) {
      return T(to<float>());
    } else {
      return is_whole() ? static_cast<T>(whole_) : static_cast<T>(real_);
    }
  }
  std::string str() const { return is_whole() ? fmt::format("{}", whole_) : fmt::format("{}", real_); }

  // Whether both are the same number: 2 is 2.0.
  friend constexpr bool operator==(const Scalar& a, const Scalar& b) {
    if (a.is_whole() && b.is_whole()) return a.whole_ == b.whole_;
    return a.to<double>() == b.to<double>();
  }
  // Multiplies integers modulo 2^64, as tensors do.
  friend constexpr Scalar operator*(const Scalar& a, const Scalar& b) {
    if (!a.is_whole() || !b.is_whole()) return a.to<double>() * b.to<double>();
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a.whole_) * static_cast<std::uint64_t>(b.whole_));
  }

 private:
  enum class Kind : std::uint8_t { floating, whole, boolean };
  union {
    std::int64_t whole_ = 0;
    double real_;
  };
  Kind kind_ = Kind::whole;
};

}  // namespace lockstep
