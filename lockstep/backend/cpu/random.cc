#include "lockstep/backend/random.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/base/philox.h"

namespace lockstep {
namespace {

// Numbers drawn at a time: many blocks of four, so that the compiler vectorizes the loop.
constexpr std::int64_t kTile = 256;
using Tile = std::array<std::uint32_t, kTile>;

// Calls f(begin, length, draws [begin, begin + length)) for tiles of [0, count), on the threads of the lane.
template <typename F>
void for_each_tile(const KernelContext& ctx, std::int64_t count, RandomKey key, const F& f) {
  constexpr std::int64_t kGrain = 32 * kTile;
  parallel_for(ctx, count, kGrain, [&](std::int64_t chunk, std::int64_t end) {
    cpu::vectorized([&] {
      Tile tile;
      for (std::int64_t begin = chunk; begin < end; begin += kTile) {
        cpu::vector_loop(0, kTile / 4, [&](std::int64_t block) {
          auto x = philox(key, static_cast<std::uint64_t>(begin / 4 + block));
          for (std::int64_t k = 0; k < 4; ++k) tile[4 * block + k] = x[k];
        });
        f(begin, std::min(kTile, end - begin), tile);
      }
    });
  });
}

class Random final : public RandomKernels {
 public:
  void uniform(KernelContext& ctx, RandomKey key, double low, double high, const View& y) override {
    cpu::visit_floating(y.dtype, "uniform", [&](auto zero) {
      using T = decltype(zero);
      for_each_tile(ctx, y.numel(), key,
                    [=, out = y.as<T>()](std::int64_t begin, std::int64_t length, const Tile& draws) {
                      cpu::vector_loop(0, length, [&](std::int64_t i) {
                        out[begin + i] = cpu::rounded<T>(low + (high - low) * ((draws[i] >> 8) * 0x1p-24));
                      });
                    });
    });
  }

  void normal(KernelContext& ctx, RandomKey key, double mean, double stddev, const View& y) override {
    cpu::visit_floating(y.dtype, "normal", [&](auto zero) {
      using T = decltype(zero);
      for_each_tile(ctx, y.numel(), key,
                    [=, out = y.as<T>()](std::int64_t begin, std::int64_t length, const Tile& draws) {
                      for (std::int64_t i = 0; i < length; i += 4) {
                        auto x = normal_block({draws[i], draws[i + 1], draws[i + 2], draws[i + 3]});
                        for (std::int64_t k = 0; k < std::min<std::int64_t>(4, length - i); ++k) {
                          out[begin + i + k] = cpu::rounded<T>(mean + stddev * x[k]);
                        }
                      }
                    });
    });
  }

  void dropout(KernelContext& ctx, RandomKey key, const View& key_at, double keep, const View& x,
               const View& y) override {
    key = current_key(key, key_at);
    // random_uniform(key, i) < keep, in integers.
    const auto threshold = static_cast<std::uint32_t>(std::ceil(keep * 0x1p24));
    cpu::visit_floating(y.dtype, "dropout", [&](auto zero) {
      using T = decltype(zero);
      for_each_tile(ctx, y.numel(), key,
                    [=, in = x.as<T>(), out = y.as<T>()](std::int64_t begin, std::int64_t length, const Tile& draws) {
                      cpu::vector_loop(0, length, [&](std::int64_t i) {
                        double kept = cpu::widened(in[begin + i]) / keep;
                        out[begin + i] = cpu::rounded<T>(draws[i] >> 8 < threshold ? kept : 0.0);
                      });
                    });
    });
  }
};

}  // namespace

std::unique_ptr<RandomKernels> make_cpu_random() { return std::make_unique<Random>(); }

}  // namespace lockstep
