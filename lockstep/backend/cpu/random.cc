#include "lockstep/backend/random.h"

#include <algorithm>
#include <array>
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/base/philox.h"

namespace lockstep {
namespace {

// Number of draws at a time: many blocks of four, so that the compiler vectorizes the loop.
constexpr std::int64_t kTile = 256;
using Tile = std::array<std::uint32_t, kTile>;

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // in GCC 12's header: bug 105593
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
[[gnu::target("avx512f")]] inline __m512i broadcast(std::uint64_t x) {
  return _mm512_set1_epi64(static_cast<long long>(x));
}
// GCC's code for the loop in draw() takes twice as long: it multiplies all 64 bits, in three steps, although the upper
// halves are zero. Here a vector holds the same word of eight blocks, in the lower halves of its lanes. vpmuludq
// ignores the upper halves.
[[gnu::target("avx512f")]] void draw_avx512(RandomKey key, std::uint64_t first_block, Tile& tile) {
  const __m512i low = broadcast(0xffffffff), count = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i front = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0), back = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
  for (std::int64_t block = 0; block < kTile / 4; block += 8) {
    const __m512i number = _mm512_add_epi64(broadcast(first_block + static_cast<std::uint64_t>(block)), count);
    __m512i x0 = number, x1 = _mm512_srli_epi64(number, 32), x2 = broadcast(key.stream),
            x3 = broadcast(key.stream >> 32);
    auto k0 = static_cast<std::uint32_t>(key.seed), k1 = static_cast<std::uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const __m512i a = _mm512_mul_epu32(broadcast(0xD2511F53), x0), b = _mm512_mul_epu32(broadcast(0xCD9E8D57), x2);
      x0 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(b, 32), x1), broadcast(k0));
      x1 = b;
      x2 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(a, 32), x3), broadcast(k1));
      x3 = a;
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    const __m512i x01 = _mm512_or_si512(_mm512_and_si512(x0, low), _mm512_slli_epi64(x1, 32));
    const __m512i x23 = _mm512_or_si512(_mm512_and_si512(x2, low), _mm512_slli_epi64(x3, 32));
    _mm512_storeu_si512(&tile[static_cast<std::size_t>(4 * block)], _mm512_permutex2var_epi64(x01, front, x23));
    _mm512_storeu_si512(&tile[static_cast<std::size_t>(4 * block + 16)], _mm512_permutex2var_epi64(x01, back, x23));
  }
}
#pragma GCC diagnostic pop
#endif

// Writes the draws of kTile / 4 blocks; see philox.
void draw(RandomKey key, std::uint64_t first_block, Tile& tile) {
#if defined(__x86_64__)
  if (simd() == Simd::avx512) return draw_avx512(key, first_block, tile);
#endif
  cpu::vectorized([&] {
    cpu::vector_loop(0, kTile / 4, [&](std::int64_t block) {
      auto x = philox(key, first_block + static_cast<std::uint64_t>(block));
      for (std::int64_t k = 0; k < 4; ++k) tile[4 * block + k] = x[k];
    });
  });
}

// Calls f(begin, length, draws [begin, begin + length)) for tiles of [0, count), on the threads of the lane.
template <typename F>
void for_each_tile(const KernelContext& ctx, std::int64_t count, RandomKey key, const F& f) {
  constexpr std::int64_t kGrain = 32 * kTile;
  parallel_for(ctx, count, kGrain, [&](std::int64_t chunk, std::int64_t end) {
    Tile tile;
    for (std::int64_t begin = chunk; begin < end; begin += kTile) {
      draw(key, static_cast<std::uint64_t>(begin / 4), tile);
      cpu::vectorized([&] { f(begin, std::min(kTile, end - begin), tile); });
    }
  });
}

class Random final : public RandomKernels {
 public:
  void run(KernelContext& ctx, const kernels::Uniform& call) override {
    const auto fill = [&](auto zero) {
      using T = decltype(zero);
      const T bottom = cpu::rounded<T>(call.low), top = cpu::rounded<T>(call.high);
      for_each_tile(ctx, call.y.numel(), call.key,
                    [=, out = call.y.as<T>()](std::int64_t begin, std::int64_t length, const Tile& draws) {
                      cpu::vector_loop(0, length, [&](std::int64_t i) {
                        const T y = cpu::rounded<T>(call.low + (call.high - call.low) * unit_uniform<T>(draws[i]));
                        out[begin + i] = cpu::widened(y) == cpu::widened(top) ? bottom : y;
                      });
                    });
    };
    if (call.y.dtype == DType::f16) return fill(Float16{});
    cpu::visit_floating(call.y.dtype, "uniform", fill);
  }

  void run(KernelContext& ctx, const kernels::Normal& call) override {
    cpu::visit_floating(call.y.dtype, "normal", [&](auto zero) {
      using T = decltype(zero);
      for_each_tile(ctx, call.y.numel(), call.key,
                    [=, out = call.y.as<T>()](std::int64_t begin, std::int64_t length, const Tile& draws) {
                      for (std::int64_t i = 0; i < length; i += 4) {
                        auto x = normal_block({draws[i], draws[i + 1], draws[i + 2], draws[i + 3]});
                        for (std::int64_t k = 0; k < std::min<std::int64_t>(4, length - i); ++k) {
                          out[begin + i + k] = cpu::rounded<T>(call.mean + call.stddev * x[k]);
                        }
                      }
                    });
    });
  }

  void run(KernelContext& ctx, const kernels::Dropout& call) override {
    const RandomKey key = current_key(call.key, call.key_at);
    // random_uniform(key, i) < keep, in integers.
    const auto threshold = static_cast<std::uint32_t>(std::ceil(call.keep * 0x1p24));
    cpu::visit_floating(call.y.dtype, "dropout", [&](auto zero) {
      using T = decltype(zero);
      for_each_tile(ctx, call.y.numel(), key,
                    [=, scale = 1 / call.keep, in = call.x.as<T>(), out = call.y.as<T>()](
                        std::int64_t begin, std::int64_t length, const Tile& draws) {
                      cpu::vector_loop(0, length, [&](std::int64_t i) {
                        const double kept = cpu::widened(in[begin + i]) * scale;
                        out[begin + i] = cpu::rounded<T>(draws[i] >> 8 < threshold ? kept : 0.0);
                      });
                    });
    });
  }
};

}  // namespace

std::unique_ptr<RandomKernels> make_cpu_random() { return std::make_unique<Random>(); }

}  // namespace lockstep
