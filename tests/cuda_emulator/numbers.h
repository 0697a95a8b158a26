// Elements of the types for which Lockstep uses cuDNN and cuBLASLt.
#pragma once

#include <cstdint>
#include <cstring>

namespace cuda_emulator {

enum class Type { f32, bf16, f16, f64 };

__extension__ using Half = _Float16;

inline float widen(std::uint16_t bf16) {
  std::uint32_t bits = std::uint32_t{bf16} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Rounds to nearest, ties to even.
inline std::uint16_t narrow(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline double load(Type type, const void* data, std::int64_t i) {
  switch (type) {
    case Type::f32: return static_cast<const float*>(data)[i];
    case Type::bf16: return widen(static_cast<const std::uint16_t*>(data)[i]);
    case Type::f16: return static_cast<const Half*>(data)[i];
    case Type::f64: return static_cast<const double*>(data)[i];
  }
  return 0;
}

inline void store(Type type, void* data, std::int64_t i, double value) {
  switch (type) {
    case Type::f32: static_cast<float*>(data)[i] = static_cast<float>(value); break;
    case Type::bf16: static_cast<std::uint16_t*>(data)[i] = narrow(static_cast<float>(value)); break;
    case Type::f16: static_cast<Half*>(data)[i] = static_cast<Half>(static_cast<float>(value)); break;
    case Type::f64: static_cast<double*>(data)[i] = value; break;
  }
}

inline double scale(Type type, const void* factor) {
  return type == Type::f64 ? *static_cast<const double*>(factor) : *static_cast<const float*>(factor);
}

// Adds as the libraries do: in f32, except for f64. Each algorithm has a different order.
class Sum {
 public:
  explicit Sum(Type type) : wide_(type == Type::f64) {}
  void add(double a, double b) {
    if (wide_) {
      f64_ += a * b;
    } else {
      f32_ += static_cast<float>(a) * static_cast<float>(b);
    }
  }
  double value() const { return wide_ ? f64_ : f32_; }

 private:
  bool wide_;
  double f64_ = 0;
  float f32_ = 0;
};

}  // namespace cuda_emulator
