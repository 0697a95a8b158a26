#include "lockstep/backend/cpu/draws.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "lockstep/backend/cpu/cpu_features.h"
#include "lockstep/base/philox.h"

namespace lockstep::cpu {
namespace {

#if defined(__x86_64__)
// GCC's code for loops over philox() takes two to three times as long: it multiplies all 64 bits, in three steps,
// although the upper halves are zero. Here a vector holds the same word of several blocks, in the lower halves of its
// lanes. The upper halves hold remains, which vpmuludq ignores.
struct RoundKeys {
  std::uint32_t k0, k1;
  explicit RoundKeys(RandomKey key)
      : k0(static_cast<std::uint32_t>(key.seed)), k1(static_cast<std::uint32_t>(key.seed >> 32)) {}
  void next() { k0 += 0x9E3779B9, k1 += 0xBB67AE85; }
};
constexpr int kRounds = 10;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // in GCC 12's header: bug 105593
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
struct Words8 {
  __m512i x0, x1, x2, x3;
};
[[gnu::target("avx512f")]] inline __m512i broadcast8(std::uint64_t x) {
  return _mm512_set1_epi64(static_cast<long long>(x));
}
[[gnu::target("avx512f")]] inline Words8 philox8(RandomKey key, __m512i number) {
  Words8 w{number, _mm512_srli_epi64(number, 32), broadcast8(key.stream), broadcast8(key.stream >> 32)};
  RoundKeys k(key);
  for (int round = 0; round < kRounds; ++round, k.next()) {
    const __m512i a = _mm512_mul_epu32(broadcast8(0xD2511F53), w.x0),
                  b = _mm512_mul_epu32(broadcast8(0xCD9E8D57), w.x2);
    w.x0 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(b, 32), w.x1), broadcast8(k.k0));
    w.x1 = b;
    w.x2 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(a, 32), w.x3), broadcast8(k.k1));
    w.x3 = a;
  }
  return w;
}
// The lower halves of `even` and `odd`, alternately.
[[gnu::target("avx512f")]] inline __m512i joined(__m512i even, __m512i odd) {
  return _mm512_or_si512(_mm512_and_si512(even, broadcast8(0xffffffff)), _mm512_slli_epi64(odd, 32));
}
[[gnu::target("avx512f")]] void draw_avx512(RandomKey key, std::uint64_t first_block, std::int64_t count,
                                            std::uint32_t* draws) {
  const __m512i blocks = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i front = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0), back = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
  for (; count > 0; count -= 32, first_block += 8, draws += 32) {
    const Words8 w = philox8(key, _mm512_add_epi64(broadcast8(first_block), blocks));
    const __m512i x01 = joined(w.x0, w.x1), x23 = joined(w.x2, w.x3);
    _mm512_storeu_si512(draws, _mm512_permutex2var_epi64(x01, front, x23));
    _mm512_storeu_si512(draws + 16, _mm512_permutex2var_epi64(x01, back, x23));
  }
}
[[gnu::target("avx512f")]] void draw_across_avx512(RandomKey key, std::uint64_t first_block, std::uint64_t step,
                                                   std::uint32_t* draws) {
  const auto number = [&](std::uint64_t i) { return static_cast<long long>(first_block + i * step); };
  __m512i even =
      _mm512_set_epi64(number(14), number(12), number(10), number(8), number(6), number(4), number(2), number(0));
  for (int i = 0; i < 32; i += 16, draws += 16) {
    const Words8 a = philox8(key, even), b = philox8(key, _mm512_add_epi64(even, broadcast8(step)));
    _mm512_storeu_si512(draws, joined(a.x0, b.x0));
    _mm512_storeu_si512(draws + 32, joined(a.x1, b.x1));
    _mm512_storeu_si512(draws + 64, joined(a.x2, b.x2));
    _mm512_storeu_si512(draws + 96, joined(a.x3, b.x3));
    even = _mm512_add_epi64(even, broadcast8(16 * step));
  }
}
#pragma GCC diagnostic pop

struct Words4 {
  __m256i x0, x1, x2, x3;
};
[[gnu::target("avx2")]] inline __m256i broadcast4(std::uint64_t x) {
  return _mm256_set1_epi64x(static_cast<long long>(x));
}
[[gnu::target("avx2")]] inline Words4 philox4(RandomKey key, __m256i number) {
  Words4 w{number, _mm256_srli_epi64(number, 32), broadcast4(key.stream), broadcast4(key.stream >> 32)};
  RoundKeys k(key);
  for (int round = 0; round < kRounds; ++round, k.next()) {
    const __m256i a = _mm256_mul_epu32(broadcast4(0xD2511F53), w.x0),
                  b = _mm256_mul_epu32(broadcast4(0xCD9E8D57), w.x2);
    w.x0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(b, 32), w.x1), broadcast4(k.k0));
    w.x1 = b;
    w.x2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(a, 32), w.x3), broadcast4(k.k1));
    w.x3 = a;
  }
  return w;
}
[[gnu::target("avx2")]] inline __m256i joined(__m256i even, __m256i odd) {
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
[[gnu::target("avx2")]] inline void store8(std::uint32_t* to, __m256i x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
}
[[gnu::target("avx2")]] void draw_avx2(RandomKey key, std::uint64_t first_block, std::int64_t count,
                                       std::uint32_t* draws) {
  const __m256i blocks = _mm256_set_epi64x(3, 2, 1, 0);
  for (; count > 0; count -= 16, first_block += 4, draws += 16) {
    const Words4 w = philox4(key, _mm256_add_epi64(broadcast4(first_block), blocks));
    const __m256i x01 = joined(w.x0, w.x1), x23 = joined(w.x2, w.x3);
    const __m256i even = _mm256_unpacklo_epi64(x01, x23), odd = _mm256_unpackhi_epi64(x01, x23);
    store8(draws, _mm256_permute2x128_si256(even, odd, 0x20));
    store8(draws + 8, _mm256_permute2x128_si256(even, odd, 0x31));
  }
}
[[gnu::target("avx2")]] void draw_across_avx2(RandomKey key, std::uint64_t first_block, std::uint64_t step,
                                              std::uint32_t* draws) {
  const auto number = [&](std::uint64_t i) { return static_cast<long long>(first_block + i * step); };
  __m256i even = _mm256_set_epi64x(number(6), number(4), number(2), number(0));
  for (int i = 0; i < 32; i += 8, draws += 8) {
    const Words4 a = philox4(key, even), b = philox4(key, _mm256_add_epi64(even, broadcast4(step)));
    store8(draws, joined(a.x0, b.x0));
    store8(draws + 32, joined(a.x1, b.x1));
    store8(draws + 64, joined(a.x2, b.x2));
    store8(draws + 96, joined(a.x3, b.x3));
    even = _mm256_add_epi64(even, broadcast4(8 * step));
  }
}
#endif

}  // namespace

void draw(RandomKey key, std::uint64_t first_block, std::int64_t count, std::uint32_t* draws) {
  count = (count + kDrawsAtOnce - 1) / kDrawsAtOnce * kDrawsAtOnce;
#if defined(__x86_64__)
  if (simd() == Simd::avx512) return draw_avx512(key, first_block, count, draws);
  if (simd() == Simd::avx2) return draw_avx2(key, first_block, count, draws);
#endif
  for (std::int64_t i = 0; i < count; i += 4) {
    const auto x = philox(key, first_block++);
    for (std::int64_t w = 0; w < 4; ++w) draws[i + w] = x[static_cast<std::size_t>(w)];
  }
}

void draw_across(RandomKey key, std::uint64_t first_block, std::uint64_t step, std::uint32_t* draws) {
#if defined(__x86_64__)
  if (simd() == Simd::avx512) return draw_across_avx512(key, first_block, step, draws);
  if (simd() == Simd::avx2) return draw_across_avx2(key, first_block, step, draws);
#endif
  for (std::uint64_t i = 0; i < 32; ++i) {
    const auto x = philox(key, first_block + i * step);
    for (std::uint64_t w = 0; w < 4; ++w) draws[32 * w + i] = x[w];
  }
}

}  // namespace lockstep::cpu
