// exp, logarithms, tanh, erf, the normal distribution, trigonometric functions, and powers in f32, without branches and
// calls, so that the compiler vectorizes loops over them. Errors are a few units in the last place. The polynomials
// interpolate at Chebyshev nodes or are Taylor's (logarithms, sin, cos, and exp in f64).
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace lockstep::cpu {

// c[0] + c[1] x + c[2] x^2 + ...
template <typename T, std::size_t N>
inline T polynomial(T x, const std::array<T, N>& c) {
  T y = c[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) y = y * x + c[i];
  return y;
}

// ln 2 in two parts; products of the first with small integers are exact.
inline constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;

// exp(r) = 1 + r + r^2 p(r) for |r| <= ln(2) / 2.
inline constexpr std::array kExp{0.5f, 0.166665734f, 0.0416665501f, 0.00836377387f, 0.00139269266f};

// exp(x) = 2^n exp(r) with |r| <= ln(2) / 2.
inline float fast_exp(float x) {
  // Outside [-104, 89] the result is 0 or infinity; NaN fails both comparisons and stays. A product that underflows
  // takes processors a hundred times as long, and masks need many exp(-infinity), so 0 is selected instead of computed.
  const bool vanishes = x < -104.f;
  x = vanishes ? 0.f : x;
  x = x > 89.f ? 89.f : x;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits.
  constexpr float kRound = 0x1.8p23f;
  float shifted = x * 1.44269504f + kRound;
  float n = shifted - kRound;
  float r = (x - n * kLn2High) - n * kLn2Low;
  float y = 1.f + (r + r * r * polynomial(r, kExp));
  // Multiply in two steps, because 2^n itself may be too large or too small for a float.
  auto power = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound));
  std::int32_t half = power >> 1;
  auto two_to = [](std::int32_t k) { return std::bit_cast<float>(static_cast<std::uint32_t>(k + 127) << 23); };
  y = y * two_to(half) * two_to(power - half);
  return vanishes ? 0.f : y;
}

// 2^x for x <= 0, to 2 units in the last place; 0 below 2^-125.5, so that no result is subnormal. NaN stays NaN.
inline float exp2_of_negative(float x) {
  const bool vanishes = x < -125.5f;
  x = vanishes ? 0.f : x;
  constexpr float kRound = 0x1.8p23f;
  const float shifted = x + kRound, r = x - (shifted - kRound);
  const float y =
      1.f + r * polynomial(r, std::array{0.693147004f, 0.240222424f, 0.0555073358f, 0.00967151299f, 0.00132647273f});
  // The integer is in the lowest bits; shifted to the exponent's place, the others vanish.
  const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000u);
  return vanishes ? 0.f : y * power;
}

// exp(x) - 1 without cancellation near 0.
inline float fast_expm1(float x) {
  float small = x + x * x * polynomial(x, kExp);
  return std::abs(x) < 0.34f ? small : fast_exp(x) - 1.f;
}

// log(x) = e log(2) + log(m) with m in [sqrt(1/2), sqrt(2)) and log(m) = 2 artanh((m - 1) / (m + 1)).
inline float fast_log(float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  bool subnormal = x < std::numeric_limits<float>::min();
  auto bits = std::bit_cast<std::uint32_t>(subnormal ? x * 0x1p23f : x);
  auto above = static_cast<std::int32_t>(bits - 0x3f3504f3u) >> 23;  // sqrt(1/2)
  float m = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(above) << 23));
  float e = static_cast<float>(above) - (subnormal ? 23.f : 0.f);
  float s = (m - 1.f) / (m + 1.f);
  float z = s * s;
  float tail = s * z * polynomial(z, std::array{2.f / 3, 2.f / 5, 2.f / 7, 2.f / 9});
  float y = e * kLn2High + (2.f * s + (tail + e * kLn2Low));
  y = x < kInfinity ? y : x;  // infinity and NaN
  float outside = x < 0.f ? std::numeric_limits<float>::quiet_NaN() : -kInfinity;
  return x <= 0.f ? outside : y;
}

// log(1 + x) = 2 artanh(x / (2 + x)), for x in [-0.5, 1].
inline float fast_log1p(float x) {
  float s = x / (2.f + x), z = s * s;
  constexpr std::array c{2.f / 3, 2.f / 5, 2.f / 7, 2.f / 9, 2.f / 11, 2.f / 13, 2.f / 15, 2.f / 17};
  return 2.f * s + s * z * polynomial(z, c);
}

inline float fast_sigmoid(float x) { return 1.f / (1.f + fast_exp(-x)); }

inline float fast_tanh(float x) {
  float a = std::abs(x), square = x * x;
  float large = std::copysign(1.f - 2.f / (fast_exp(2.f * a) + 1.f), x);
  // The other formula would cancel near 0.
  constexpr std::array c{-0.333333284f, 0.133327188f, -0.0538432632f, 0.0209613291f, -0.0060451651f};
  float small = x + x * square * polynomial(square, c);
  return a < 0.625f ? small : large;
}

// The standard normal distribution: its density, and Phi(x) by erfc(z) = exp(-z^2) t p(t) for z >= 0, with
// t = 1 / (1 + 0.4 z).
inline float normal_pdf(float x) { return 0.398942280f * fast_exp(-0.5f * x * x); }

inline float normal_cdf(float x) {
  float z = std::abs(x) * 0.707106781f;
  float t = 1.f / (1.f + 0.4f * z);
  constexpr std::array c{0.225625218f, 0.226614594f,  0.200535108f, 0.199175721f, 0.0650612696f,
                         0.11077085f,  0.0627995661f, -0.1295054f,  0.0389231129f};
  float tail = 0.5f * t * polynomial(t, c) * fast_exp(-0.5f * x * x);
  return x < 0.f ? tail : 1.f - tail;
}

// An angle as a number of quarter turns and the rest, |rest| <= pi / 4.
struct Angle {
  std::int32_t quarter;
  double rest;
};

// Accurate for every float: the products of x and 24-bit pieces of 1 / (2 pi) are exact, and only the fraction of a
// turn in each product counts (Payne and Hanek, 1983).
inline Angle angle(float x) {
  constexpr std::array kPieces{0xA2F983p-26,  0x6E4E44p-50,  0x1529FCp-74,  0x2757D1p-98,
                               0xF534DDp-122, 0xC0DB62p-146, 0x95993Cp-170, 0x439041p-194};
  double turns = 0;
  for (double piece : kPieces) {
    double product = static_cast<double>(x) * piece;
    turns += product - std::floor(product + 0.5);
  }
  turns -= std::floor(turns + 0.5);
  // Rounds to an integer and leaves it in the lowest bits.
  constexpr double kRound = 0x1.8p52;
  double shifted = turns * 4 + kRound;
  return {static_cast<std::int32_t>(std::bit_cast<std::uint64_t>(shifted)),
          (turns - (shifted - kRound) * 0.25) * 6.28318530717958648};
}

// sin(rest + quarter * pi / 2)
inline float sine(const Angle& angle) {
  double r = angle.rest, z = r * r;
  constexpr std::array s{-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800};
  constexpr std::array c{-0.5, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600};
  double y = (angle.quarter & 1) ? 1 + z * polynomial(z, c) : r + r * z * polynomial(z, s);
  return static_cast<float>((angle.quarter & 2) ? -y : y);
}

inline float fast_sin(float x) { return sine(angle(x)); }
inline float fast_cos(float x) {
  Angle a = angle(x);
  return sine({a.quarter + 1, a.rest});
}

inline float fast_tan(float x) {
  const Angle a = angle(x);
  double r = a.rest, z = r * r;
  constexpr std::array s{-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800};
  constexpr std::array c{-0.5, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600};
  double sin = r + r * z * polynomial(z, s), cos = 1 + z * polynomial(z, c);
  return static_cast<float>((a.quarter & 1) ? -cos / sin : sin / cos);
}

// The angle of the point (x, y), with C's special cases. atan(q) = pi / 4 + atan((q - 1) / (q + 1)) for q near 1.
inline float fast_atan2(float y, float x) {
  double up = std::abs(static_cast<double>(y)), along = std::abs(static_cast<double>(x));
  bool steep = up > along;
  double most = steep ? up : along, least = steep ? along : up;
  double ratio = least / most;
  double q = least == most ? (most == 0 ? 0. : 1.) : ratio;  // infinities, too
  bool far = q > 0.41421356237309503;
  double t = far ? (q - 1) / (q + 1) : q, z = t * t;
  constexpr std::array c{-0.3333333333144073,  0.1999999891728858,  -0.14285612511387016, 0.11107495135714474,
                         -0.09028983500350463, 0.07135325122330678, -0.04043224825887161};
  constexpr double kPi = 3.14159265358979324;
  double turn = t + t * z * polynomial(z, c) + (far ? kPi / 4 : 0.);
  turn = steep ? kPi / 2 - turn : turn;
  turn = std::bit_cast<std::uint32_t>(x) >> 31 != 0 ? kPi - turn : turn;
  return std::copysign(static_cast<float>(turn), y);
}

// log(x) like fast_log, to a relative error of 1e-12, for normal x > 0.
inline double wide_log(double x) {
  auto bits = std::bit_cast<std::uint64_t>(x);
  // The exponent plus 1024 is a positive integer, which fits in the mantissa of 2^52.
  std::uint64_t biased = (bits - 0x3fe6a09e667f3bcdu + (std::uint64_t{1024} << 52)) >> 52;
  double e = std::bit_cast<double>(0x4330000000000000u | biased) - (0x1p52 + 1024);
  double m = std::bit_cast<double>(bits - ((biased - 1024) << 52));
  double s = (m - 1) / (m + 1), z = s * s;
  constexpr std::array c{2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17};
  return e * 0.693147180559945309 + (2 * s + s * z * polynomial(z, c));
}

// exp(x) like fast_exp, to a relative error of 1e-13, for |x| <= 200.
inline double wide_exp(double x) {
  constexpr double kRound = 0x1.8p52;
  double shifted = x * 1.44269504088896341 + kRound;
  double r = x - (shifted - kRound) * 0.693147180559945309;
  constexpr std::array c{1.0,       1.0,        0.5,         1.0 / 6,      1.0 / 24,      1.0 / 120,
                         1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800};
  std::uint64_t power = std::bit_cast<std::uint64_t>(shifted) - std::bit_cast<std::uint64_t>(kRound) + 1023;
  return polynomial(r, c) * std::bit_cast<double>(power << 52);
}

// log(x) * scale, rounded once, so that the logarithm of a power of the base is an integer.
inline float scaled_log(float x, double scale) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  auto y = static_cast<float>(wide_log(x) * scale);
  y = x < kInfinity ? y : x;  // infinity and NaN
  float outside = x < 0.f ? std::numeric_limits<float>::quiet_NaN() : -kInfinity;
  return x <= 0.f ? outside : y;
}
inline float fast_log2(float x) { return scaled_log(x, 1.44269504088896341); }
inline float fast_log10(float x) { return scaled_log(x, 0.434294481903251828); }

// erf(x) = x p(x^2) for |x| <= 1, else 1 - exp(-x^2) t q(t) for x > 0 with t = 1 / (1 + 0.4 x). Larger |x| count as 4,
// where erf(x) rounds to 1 in f32.
inline float fast_erf(float x) {
  double a = std::abs(static_cast<double>(x));
  double z = a > 4 ? 4 : a, square = z * z, t = 1 / (1 + 0.4 * z);
  constexpr std::array p{1.1283791670946768,    -0.3761263888963531,     0.11283791308604582,
                         -0.026866133235095593, 0.005223783477189248,    -0.0008542637997087229,
                         0.0001195656256820733, -1.3909340021874599e-05, 1.058938064107502e-06};
  constexpr std::array q{0.22564601945127333, 0.22604303593046712,  0.20616080129248013,
                         0.1708883119014561,  0.14734623451957166,  -0.033617018290914014,
                         0.21374719119195995, -0.21614792909726574, 0.05995504355922853};
  double near = z * polynomial(square, p), far = 1 - wide_exp(-square) * t * polynomial(t, q);
  return std::copysign(static_cast<float>(a <= 1 ? near : far), x);
}

// x^y with C's special cases. Computed in f64, so that y log(x) does not lose the last bits of the result.
inline float fast_pow(float x, float y) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float a = std::abs(x);
  double log_a = wide_log(a == 0.f ? 1.f : a);
  // Even times the smallest exponent, 1e-45, it gives 0 or infinity.
  log_a = a == 0.f ? -1e60 : log_a;
  log_a = a == kInfinity ? 1e60 : log_a;
  double t = y * log_a;
  t = t < -200 ? -200 : t;
  t = t > 200 ? 200 : t;
  auto size = static_cast<float>(wide_exp(t));
  size = (x != x || y != y) ? x + y : size;
  size = (a == 1.f && y == y) ? 1.f : size;
  bool whole = std::floor(y) == y, odd = whole && std::floor(y * 0.5f) * 2.f != y;
  bool negative = std::bit_cast<std::uint32_t>(x) >> 31 != 0;
  float result = negative && odd ? -size : size;
  result = (x < 0.f && a < kInfinity && !whole) ? std::numeric_limits<float>::quiet_NaN() : result;
  return (y == 0.f || x == 1.f) ? 1.f : result;
}

// The Math of backend/formulas.h, in f32.
struct VectorMath {
  static float exp(float x) { return fast_exp(x); }
  static float expm1(float x) { return fast_expm1(x); }
  static float log(float x) { return fast_log(x); }
  static float log1p(float x) { return fast_log1p(x); }
  static float log2(float x) { return fast_log2(x); }
  static float log10(float x) { return fast_log10(x); }
  static float sin(float x) { return fast_sin(x); }
  static float cos(float x) { return fast_cos(x); }
  static float tan(float x) { return fast_tan(x); }
  static float tanh(float x) { return fast_tanh(x); }
  static float sigmoid(float x) { return fast_sigmoid(x); }
  static float erf(float x) { return fast_erf(x); }
  static float pow(float x, float y) { return fast_pow(x, y); }
  static float atan2(float y, float x) { return fast_atan2(y, x); }
  static float normal_cdf(float x) { return cpu::normal_cdf(x); }
  static float normal_pdf(float x) { return cpu::normal_pdf(x); }
};

// The Math in f64, by the C library.
struct DoubleMath {
  static double exp(double x) { return std::exp(x); }
  static double expm1(double x) { return std::expm1(x); }
  static double log(double x) { return std::log(x); }
  static double log1p(double x) { return std::log1p(x); }
  static double log2(double x) { return std::log2(x); }
  static double log10(double x) { return std::log10(x); }
  static double sin(double x) { return std::sin(x); }
  static double cos(double x) { return std::cos(x); }
  static double tan(double x) { return std::tan(x); }
  static double tanh(double x) { return std::tanh(x); }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double erf(double x) { return std::erf(x); }
  static double pow(double x, double y) { return std::pow(x, y); }
  static double atan2(double y, double x) { return std::atan2(y, x); }
  static double normal_cdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752); }
  static double normal_pdf(double x) { return 0.39894228040143268 * std::exp(-0.5 * x * x); }
};

template <typename C>
using Math = std::conditional_t<std::is_same_v<C, double>, DoubleMath, VectorMath>;

}  // namespace lockstep::cpu
